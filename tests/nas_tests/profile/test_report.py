from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nas.profile.artifacts import Made, NotMade
from nas.profile.histogram import draw_histograms, histogram_data
from nas.profile.report import report_lines, to_json
from nas.profile.run import (
    FOREIGN_TOLERANCE,
    INT8_TOLERANCE,
    Pair,
    Profile,
    ProfileOptions,
    ProfileReport,
    explain,
    parity_tolerance,
)
from nas.search.testing import made_up_measurement
from profilers.artifact import Artifact
from profilers.errors import ProfileFailure
from profilers.statistics import Comparison
from profilers.testing import FAKE_DEVICE

ARTIFACT = Artifact(
    folder=Path("nowhere"), candidate_id="c", phase="infer", runtime="onnxruntime", target="any", precision="float32",
    num_threads=1, inputs=(), outputs=(), files=(), tuned_coverage=None, model_bytes=2_000_000,
)  # fmt: skip
MADE = Made(artifact=ARTIFACT, planned_memory_bytes=1 << 20, is_foreign=True, duration_s=1.0)
GOOD = Profile(
    target="a.onnx", runtime="onnxruntime", num_threads=1, precision="float32", device=FAKE_DEVICE, made=MADE,
    result=made_up_measurement(2.0),
)  # fmt: skip
REJECTED = replace(GOOD, result=made_up_measurement(2.0, rejected_because="someone else was there"))
ABSENT = replace(
    GOOD, runtime="tvm", made=NotMade(reason="no operator Foo"),
    result=ProfileFailure(kind="bad_artifact", reason="no operator Foo"),
)  # fmt: skip


def test_one_profile_is_the_object_that_the_design_asks_for() -> None:
    row = to_json(ProfileReport(profiles=(GOOD,), pairs=()))
    assert {
        "target", "phase", "runtime", "device", "latency_ms", "parity_max_abs", "tuned_coverage", "canary_drift",
        "rejected_because", "peak_memory_bytes",
    } <= row.keys()  # fmt: skip
    assert {"value", "lower", "upper", "p90", "blocks", "processes"} <= row["latency_ms"].keys()
    assert row["latency_ms"]["lower"] <= row["latency_ms"]["value"] == 2.0 <= row["latency_ms"]["upper"]
    assert row["model_bytes"] == 2_000_000 and row["failure"] is None
    json.dumps(row, allow_nan=False)


def test_what_was_not_measured_is_null_and_says_why() -> None:
    row = to_json(ProfileReport(profiles=(ABSENT,), pairs=()))
    assert row["latency_ms"] is None and row["peak_memory_bytes"] is None
    assert "no operator Foo" in row["failure"]


def test_a_rejected_number_is_shown_and_marked_unusable() -> None:
    report = ProfileReport(profiles=(REJECTED,), pairs=())
    assert to_json(report)["failure"] == "rejected: someone else was there"
    assert to_json(report)["latency_ms"] is None, "a script that reads it must not get a number"
    assert to_json(report)["rejected_latency_ms"]["value"] == 2.0
    lines = report_lines(report)
    assert "NOT USABLE" in lines[1] and "someone else" in lines[1], "before the number"
    assert not any(line.strip().startswith("latency") for line in lines)
    (data,) = histogram_data(report)
    assert data.rejected_because == "someone else was there"


@pytest.mark.parametrize(
    ("verdict", "words"), [("faster", "is faster than"), ("slower", "is slower than"), ("tied", "is tied with")]
)
def test_a_comparison_is_one_sentence(verdict: str, words: str) -> None:
    comparison = Comparison(ratio=0.97, lower=0.96, upper=0.98, verdict=verdict)  # type: ignore[arg-type]
    pair = Pair(first=GOOD, second=replace(GOOD, target="b.onnx"), comparison=comparison, noise_floor=0.01)
    report = ProfileReport(profiles=(GOOD, GOOD), pairs=(pair,))
    assert words in report_lines(report)[-1]
    assert to_json(report)["comparisons"][0]["verdict"] == verdict


def test_a_histogram_shows_almost_every_run_of_the_blocks_that_count() -> None:
    rows = histogram_data(ProfileReport(profiles=(GOOD, ABSENT), pairs=()))
    assert len(rows) == 1
    runs = sum(len(block.latencies_ms) for block in GOOD.result.blocks)  # type: ignore[union-attr]
    assert len(rows[0].latencies_ms) + rows[0].num_beyond == runs
    assert draw_histograms(rows).startswith(b"\x89PNG")


def test_int8_is_for_onnxruntime_and_other_runtimes_sit_out() -> None:
    both = ProfileOptions(runtimes=("onnxruntime", "tvm"), precisions=("float32", "int8"))
    assert both.combinations == (("onnxruntime", "float32"), ("onnxruntime", "int8"), ("tvm", "float32"))
    assert ProfileOptions(runtimes=("tvm",), precisions=("int8",)).combinations == (("tvm", "int8"),)


def test_outputs_of_int8_may_differ_by_more_and_too_much_gets_its_own_advice() -> None:
    int8 = replace(MADE, artifact=replace(ARTIFACT, precision="int8"))
    assert parity_tolerance(int8) == INT8_TOLERANCE > parity_tolerance(MADE) == FOREIGN_TOLERANCE
    assert parity_tolerance(MADE) > parity_tolerance(replace(MADE, is_foreign=False))
    failure = ProfileFailure(kind="outputs_differ", reason="output 0 differs by 3; compile it again")
    changed = explain(int8, failure)
    assert isinstance(changed, ProfileFailure) and "int8 changes this model" in changed.reason
    assert "compile it again" not in changed.reason
    assert explain(MADE, failure) == failure
