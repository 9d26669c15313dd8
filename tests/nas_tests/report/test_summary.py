from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nas.budget import parse_budget, resolve_budgets
from nas.gates.budget import budget_verdict
from nas.gates.result import GateResult
from nas.report.summary import FrontMember, PhaseLatency, StudySummary, to_json
from nas.trial import Outcome
from tests.nas_tests.report.studies import make_blocked_summary, make_phased_summary, make_summary
from tests.nas_tests.trials import make_cost, make_estimate, make_record, make_score

NUMBER, OPTIONAL = (int, float), (int, float, type(None))
SCORE = {"metric": str, "split": str, "value": NUMBER, "lower": NUMBER, "upper": NUMBER}
LATENCY = {
    "phase": str, "value": NUMBER, "lower": NUMBER, "upper": NUMBER, "source": str, "runtime": str,
    "tuned_coverage": OPTIONAL,
}  # fmt: skip
SCHEMA = {
    "study": str,
    "out": str,
    "space": str,
    "device": {"id": str, "fingerprint": str, "runtime": str, "threads": int},
    "budgets": [{"metric": str, "phase": (str, type(None)), "max": NUMBER}],
    "outcomes": dict.fromkeys([outcome.value for outcome in Outcome], int),
    "front": [
        {
            "candidate_id": str,
            "trial": int,
            "metrics": {
                "latency_ms": LATENCY,
                "latencies": [{**LATENCY, "is_plain_look": bool}],
                "params": int,
                "macs": int,
                "peak_memory_bytes": (int, type(None)),
                "state_bytes": (int, type(None)),
            },
            "score": SCORE,
            "test_score": SCORE,
            "seed_score": (dict, type(None)),
            "tied_with": (str, type(None)),
        }
    ],
    "baselines": [{"name": str, "split": str, "value": NUMBER}],
    "gates": {gate: {"passed": bool, "reason": str} for gate in ("parity", "smoke", "publish")},
    "rungs": [{"epochs": int, "reached": int, "stopped": int, "seconds": NUMBER}],
    "seconds": dict.fromkeys(["tune", "compile", "profile", "train", "gates", "total"], NUMBER),
}
"""The object documented in design.md, the baselines, the rungs of a ladder, and what the gates took."""


def _check(value: Any, schema: Any, path: str = "$", *, extra: bool = False) -> None:
    if isinstance(schema, dict):
        assert isinstance(value, dict), path
        unexpected = set(value) - set(schema)
        assert set(value) >= set(schema), path
        assert not unexpected or extra, (path, unexpected)
        for key, inner in schema.items():
            # Figures of a gate are its own.
            _check(value[key], inner, f"{path}.{key}", extra=path == "$.gates")
    elif isinstance(schema, list):
        assert isinstance(value, list), path
        for index, item in enumerate(value):
            _check(item, schema[0], f"{path}[{index}]")
    else:
        assert isinstance(value, schema), (path, value)


def test_the_json_has_exactly_the_documented_keys_and_types() -> None:
    value = json.loads(json.dumps(to_json(make_summary()), allow_nan=False))
    _check(value, SCHEMA)
    assert len(value["front"]) > 1


def test_the_json_of_a_study_without_front_has_the_same_shape() -> None:
    value = json.loads(json.dumps(to_json(make_blocked_summary()), allow_nan=False))
    _check(value, {**SCHEMA, "gates": {"publish": {"passed": bool, "reason": str}}})
    assert value["front"] == []
    assert value["budgets"][1] == {"metric": "peak_memory_bytes", "phase": None, "max": 64 * 2**20}


def test_the_json_has_the_latency_of_the_second_look_and_the_figures_of_gates() -> None:
    summary = make_summary()
    value = to_json(summary)
    member = summary.front[0]
    assert value["front"][0]["metrics"]["latency_ms"]["value"] == member.latency.latency_ms
    assert member.latency != member.cost.latency("infer")
    assert value["gates"]["publish"]["dropped"] == 1


def test_baselines_are_beside_the_scores_in_json_and_words() -> None:
    summary = make_summary()
    assert to_json(summary)["baselines"] == [
        {"name": "question only", "split": "val", "value": 0.664},
        {"name": "question only", "split": "test", "value": 0.67},
    ]
    assert summary.baselines_text == "baseline (question only): 0.664 on val, 0.670 on test"
    assert replace(summary, baselines=()).baselines_text is None


def test_outcomes_add_up_to_the_trials() -> None:
    summary = make_summary()
    assert sum(to_json(summary)["outcomes"].values()) == len(summary.records)


def test_a_front_member_without_test_score_has_none_in_the_json() -> None:
    summary = make_summary()
    front = (replace(summary.front[0], test_score=None),)
    assert to_json(replace(summary, front=front))["front"][0]["test_score"] is None


@pytest.mark.parametrize(
    "fields",
    [
        {"record": make_record(0, Outcome.OVER_BUDGET)},
        {"latency": make_estimate(1.0, predicted=True)},
        {"onnxruntime": make_estimate(1.0, predicted=True)},
        {"other_phases": (PhaseLatency(phase="prefill@512", latency=make_estimate(1.0, predicted=True)),)},
        {"test_score": make_score(300, split="val")},
    ],
)
def test_what_was_not_scored_and_measured_cannot_be_a_front_member(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="trial 0"):
        FrontMember(**{"record": make_record(0), "latency": make_estimate(1.0), **fields})


def test_a_study_is_published_only_with_a_front_and_every_gate_passed() -> None:
    summary = make_summary()
    assert summary.blocked_because is None
    failed = {**summary.gates, "parity": GateResult(passed=False, reason="outputs differ")}
    assert replace(summary, gates=failed).blocked_because == "parity: outputs differ"
    assert replace(summary, front=(), gates={}).blocked_because == "no network met the budget"


def test_a_gate_figure_cannot_hide_whether_the_gate_passed() -> None:
    with pytest.raises(ValueError, match="unique"):
        GateResult(passed=False, reason="no", figures=(("passed", 1),))


@pytest.mark.parametrize(
    ("budgets", "verdict"),
    [
        (["5ms"], "meets"),
        (["2ms"], "undecided"),
        (["1ms"], "misses"),
        (["5ms", "params=1k"], "misses"),
        (["2ms", "params=1k"], "misses"),
        (["2ms", "memory=1GB"], "undecided"),
        ([], "meets"),
    ],
)
def test_the_verdict_over_budgets_is_the_worst_one(budgets: list[str], verdict: str) -> None:
    resolved = resolve_budgets([parse_budget(text) for text in budgets], ["infer"])
    assert budget_verdict(resolved, make_cost(2.0)) == verdict


def test_a_budget_that_was_never_measured_has_no_verdict() -> None:
    cost = replace(make_cost(2.0), peak_memory_bytes=None)
    assert budget_verdict((parse_budget("memory=1GB"),), cost) is None


def test_seconds_are_summed_by_stage() -> None:
    summary: StudySummary = replace(make_summary(), records=(make_record(0), make_record(1)))
    assert summary.stage_seconds == {"tune": 23.0, "compile": 6.5, "profile": 8.0, "train": 15.0}


def test_the_json_has_every_phase_and_the_primary_one_where_it_always_was() -> None:
    summary = make_phased_summary()
    value = json.loads(json.dumps(to_json(summary), allow_nan=False))
    _check(value, SCHEMA)
    metrics = value["front"][0]["metrics"]
    assert metrics["latency_ms"] == {k: v for k, v in metrics["latencies"][0].items() if k != "is_plain_look"}
    assert [(each["phase"], each["is_plain_look"]) for each in metrics["latencies"]] == [
        ("decode@512", False), ("prefill@512", False), ("decode@256", True), ("prefill@256", True),
    ]  # fmt: skip
    assert metrics["latencies"][1]["tuned_coverage"] == 0.96 != metrics["latency_ms"]["tuned_coverage"]
    assert metrics["state_bytes"] == 1 << 16
