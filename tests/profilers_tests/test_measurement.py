from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from profilers.errors import ProfileFailure, ProfilerError
from profilers.measurement import SEARCH, Block, Measurement, MeasureProtocol, verdict

MEASUREMENT = Measurement(
    artifact_digest="a" * 64,
    fingerprint="f" * 16,
    protocol=SEARCH,
    blocks=(
        Block(process=0, latencies_ms=(1.0, 1.5), cpu_over_wall=0.99),
        Block(process=1, latencies_ms=(1.25,), cpu_over_wall=0.5, dropped_because="CPU"),
    ),
    latency_ms=1.25,
    lower_ms=1.0,
    upper_ms=1.5,
    p90_ms=1.5,
    best_ms=1.0,
    first_inference_ms=9.0,
    peak_memory_bytes=1024,
    parity_max_abs=1e-6,
    canary_drift=None,
    rejected_because=None,
    duration_s=3.0,
    conditions=(("load_1min", "0.10"),),
)


def test_a_measurement_survives_json_text() -> None:
    assert Measurement.from_json(json.loads(json.dumps(MEASUREMENT.to_json()))) == MEASUREMENT


@pytest.mark.parametrize(
    "change", [{"format": 2}, {"extra": 1}, {"blocks": [{"process": 0}]}, {"protocol": {"colour": 1}}, {"blocks": None}]
)
def test_a_stored_measurement_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ProfilerError, match="measurement"):
        Measurement.from_json({**MEASUREMENT.to_json(), **change})


def test_a_missing_key_is_refused() -> None:
    data = MEASUREMENT.to_json()
    del data["latency_ms"]
    with pytest.raises(ProfilerError, match="latency_ms"):
        Measurement.from_json(data)


def test_a_rejected_measurement_has_no_estimate() -> None:
    estimate = MEASUREMENT.estimate()
    assert not isinstance(estimate, ProfileFailure)
    assert (estimate.latency_ms, estimate.source) == (1.25, "measured")
    assert MEASUREMENT.half_width == pytest.approx(0.2)
    rejected = replace(MEASUREMENT, rejected_because="a hog").estimate()
    assert rejected == ProfileFailure(kind="rejected", reason="a hog")


def test_a_bound_on_the_budget_meets_it_and_a_doubtful_one_does_not() -> None:
    assert verdict(1.0, 2.0, 2.0) == "meets"
    assert verdict(2.0, 3.0, 2.0) == "undecided"


@pytest.mark.parametrize(
    "wrong", [{"num_processes": 0}, {"blocks_per_process": 0}, {"blocks_per_process": 99}, {"block_ms": 0.0}]
)
def test_an_impossible_protocol_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="protocol"):
        MeasureProtocol(**wrong)
