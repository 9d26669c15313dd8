from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.budget import Budget, parse_budget, resolve_budgets
from nas.gates.budget import budget_verdict, explain_miss, spent, violations
from nas.trial import CandidateCost
from tests.nas_tests.trials import make_cost, make_estimate

COST = make_cost(2.0)
"""2 ms within [1.96, 2.04], 120,000 parameters, 500,000 bytes, 48 MiB."""


def budgets(*texts: str) -> tuple[Budget, ...]:
    return resolve_budgets([parse_budget(text) for text in texts], ["infer"])


def test_a_latency_is_spent_as_an_interval_and_a_count_as_a_point() -> None:
    (latency, params) = budgets("5ms", "params=1M")
    assert spent(latency, COST) == pytest.approx((1.96, 2.04))
    assert spent(params, COST) == (120_000, 120_000)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2.1ms"], "meets"),
        (["2ms"], "undecided"),
        (["1.9ms"], "misses"),
        (["2.1ms", "params=120k"], "meets"),
        (["2.1ms", "params=119k"], "misses"),
        (["2ms", "params=119k"], "misses"),
        (["params=119k", "2ms"], "misses"),
        (["2ms", "model=1MB"], "undecided"),
        (["memory=48MiB"], "meets"),
        (["memory=47MiB"], "misses"),
        ([], "meets"),
    ],
)
def test_the_worst_verdict_counts(texts: list[str], expected: str) -> None:
    assert budget_verdict(budgets(*texts), COST) == expected


@pytest.mark.parametrize("text", ["5ms", "memory=1GB"])
def test_what_was_never_measured_is_no_verdict_and_no_number(text: str) -> None:
    unmeasured = replace(COST, latencies=(), peak_memory_bytes=None)
    assert budget_verdict(budgets(text), unmeasured) is None
    assert budget_verdict(budgets(text, "params=1"), unmeasured) is None, "not even where another one misses"
    with pytest.raises(ValueError, match="was never measured"):
        violations(budgets(text), unmeasured)
    assert "was not measured" in explain_miss(budgets(text), unmeasured)


def test_another_phases_latency_does_not_answer_for_this_one() -> None:
    other = replace(COST, latencies=(("prefill@512", make_estimate(1.0)),))
    assert budget_verdict(budgets("5ms"), other) is None


def test_a_budget_without_a_phase_is_not_met_by_any() -> None:
    assert budget_verdict((parse_budget("5ms"),), COST) is None


def test_violations_are_relative_to_the_budget_and_by_the_upper_bound() -> None:
    names, amounts = zip(*violations(budgets("2ms", "params=60k", "memory=96MiB"), COST), strict=True)
    assert names == ("infer=2ms", "params=60k", "memory=96MiB")
    assert amounts == pytest.approx((0.02, 1.0, -0.5))


@given(latency_ms=st.floats(0.01, 1e4), maximum=st.floats(0.01, 1e4), spread=st.floats(0, 0.5))
def test_no_violation_is_positive_exactly_where_the_budget_is_met(
    latency_ms: float, maximum: float, spread: float
) -> None:
    cost = replace(COST, latencies=(("infer", make_estimate(latency_ms, spread)),))
    budget = (Budget(metric="latency_ms", phase="infer", maximum=maximum),)
    ((_, excess),) = violations(budget, cost)
    # Both compare the upper bound with the maximum; only the division rounds.
    if abs(excess) > 1e-9:
        assert (excess < 0) == (budget_verdict(budget, cost) == "meets")
        assert (excess < 0) == (explain_miss(budget, cost) == "")


def test_an_explanation_names_only_what_is_missed_and_says_what_was_seen() -> None:
    line = explain_miss(budgets("1ms", "params=1M", "model=400kB"), COST)
    assert line == "infer=1ms: seen 1.96ms to 2.04ms; model=400kB: seen 500kB"
    assert "undecided" in explain_miss(budgets("2ms"), COST)
    assert explain_miss(budgets("5ms"), COST) == ""


def test_a_predicted_latency_is_judged_by_its_interval_too() -> None:
    cost: CandidateCost = make_cost(2.0, predicted=True)
    assert budget_verdict(budgets("2ms"), cost) == "undecided"
