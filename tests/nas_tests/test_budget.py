from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nas.budget import Budget, BudgetError, Metric, contradictions, parse_budget, resolve_budgets


@pytest.mark.parametrize(
    ("text", "metric", "phase", "maximum"),
    [
        ("5ms", "latency_ms", None, 5.0),
        (" 5 ms ", "latency_ms", None, 5.0),
        ("1e-2s", "latency_ms", None, 10.0),
        ("latency=5ms", "latency_ms", None, 5.0),
        ("decode@512=8ms", "latency_ms", "decode@512", 8.0),
        ("infer=800us", "latency_ms", "infer", 0.8),
        ("infer=.5µs", "latency_ms", "infer", 0.0005),
        ("params=200k", "num_params", None, 200_000),
        ("params=200000", "num_params", None, 200_000),
        ("model=1MB", "model_bytes", None, 1_000_000),
        ("memory=64MiB", "peak_memory_bytes", None, 64 * 2**20),
        ("state=64KiB", "state_bytes", None, 64 * 2**10),
    ],
)
def test_a_budget_is_read_in_its_base_unit(text: str, metric: Metric, phase: str | None, maximum: float) -> None:
    budget = parse_budget(text)
    assert (budget.metric, budget.phase) == (metric, phase)
    assert budget.maximum == pytest.approx(maximum)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("5", ["unit is missing", "us, µs, ms, s", "latency=5ms"]),
        ("latency=5", ["unit is missing", "ms"]),
        ("model=5", ["unit is missing", "MiB"]),
        ("infer=5", ["unknown metric 'infer'", "a phase with a duration"]),
        ("5msec", ["unknown unit 'msec'", "ms"]),
        ("latency=5MB", ["unknown unit 'MB'", "ms"]),
        ("memory=5ms", ["unknown unit 'ms'", "MiB"]),
        ("5MB", ["say what is bounded", "model=1MB"]),
        ("latncy=5ms", ["did you mean latency?"]),
        ("num_params=5k", ["did you mean params?"]),
        ("speed=5MB", ["unknown metric 'speed'", "latency, params, model, memory"]),
        ("-5ms", ["-5 is not allowed", "above 0"]),
        ("0ms", ["0 is not allowed"]),
        ("params=nan", ["nan is not allowed"]),
        ("infms", ["inf is not allowed"]),
        ("1e400ms", ["1e400 is not allowed"]),
        ("1e308s", ["too large"]),
        ("5e-324us", ["too small"]),
        ("", ["number and unit", "5ms"]),
        ("infer", ["number and unit"]),
        ("5ms 6ms", ["number and unit"]),
        ("=5ms", ["unknown metric ''"]),
        ("a b=5ms", ["unknown metric 'a b'"]),
    ],
)
def test_a_bad_budget_gets_one_line_that_says_what_is_allowed(text: str, names: list[str]) -> None:
    with pytest.raises(BudgetError) as caught:
        parse_budget(text)
    message = str(caught.value)
    assert "\n" not in message
    assert repr(text) in message
    for name in names:
        assert name in message


@pytest.mark.parametrize(
    "fields",
    [
        {"metric": "latency_ms", "maximum": float("nan")},
        {"metric": "latency_ms", "maximum": 0.0},
        {"metric": "seconds", "maximum": 1.0},
        {"metric": "num_params", "phase": "infer", "maximum": 1.0},
        {"metric": "latency_ms", "phase": "params", "maximum": 1.0},
        {"metric": "latency_ms", "phase": "a=b", "maximum": 1.0},
    ],
)
def test_an_impossible_budget_cannot_be_made(fields: dict[str, object]) -> None:
    with pytest.raises(BudgetError):
        Budget(**fields)  # type: ignore[arg-type]


_amounts = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False) | st.integers(1, 2**60).map(
    float
)
_budgets = st.builds(
    Budget,
    metric=st.just("latency_ms"),
    phase=st.none() | st.from_regex(r"(infer|prefill@[0-9]{1,4}|decode@[0-9]{1,4})", fullmatch=True),
    maximum=_amounts,
) | st.builds(Budget, metric=st.sampled_from(["num_params", "model_bytes", "peak_memory_bytes"]), maximum=_amounts)


@given(_budgets)
@example(Budget(metric="model_bytes", maximum=1024e6))
@example(Budget(metric="num_params", maximum=1e-7))
@example(Budget(metric="latency_ms", maximum=1e22))
def test_the_text_of_a_budget_reads_back_to_the_same_budget(budget: Budget) -> None:
    assert parse_budget(str(budget)) == budget
    assert str(parse_budget(str(budget))) == str(budget)


def test_two_budgets_on_one_thing_are_named() -> None:
    budgets = [parse_budget(text) for text in ("infer=5ms", "model=1MB", "infer=4ms", "decode@8=4ms")]
    assert contradictions(budgets) == ["infer=5ms and infer=4ms bound the same thing; keep one"]


def test_a_latency_without_phase_becomes_the_first_phase_of_the_space() -> None:
    resolved = resolve_budgets([parse_budget("5ms"), parse_budget("params=1k")], ["prefill@512", "decode@512"])
    assert [str(budget) for budget in resolved] == ["prefill@512=5ms", "params=1k"]


def test_a_phase_the_space_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(BudgetError, match=r"no phase 'decode@8'; it has infer"):
        resolve_budgets([parse_budget("decode@8=5ms")], ["infer"])


def test_a_default_phase_that_is_also_bounded_by_name_is_a_contradiction() -> None:
    with pytest.raises(BudgetError, match="bound the same thing"):
        resolve_budgets([parse_budget("5ms"), parse_budget("infer=4ms")], ["infer"])
