"""Which phases are timed, which one a name means, and budgets that a space cannot be held against."""

from __future__ import annotations

import pytest

from nas.budget import BudgetError, parse_budget
from nas.phases import PhaseError, chosen_phase, phase_names, study_budgets, timed_phases
from search_spaces import layers
from tests.nas_tests.search.small_studies import DECODE, PHASED, PREFILL, SHORT, SMALL


def test_a_space_has_its_phases_in_its_own_order() -> None:
    assert phase_names(SMALL) == ("infer",)
    assert phase_names(PHASED) == (DECODE, PREFILL, SHORT)


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        ([], (DECODE,)),
        (["5ms"], (DECODE,)),
        (["params=1M", "state=64KiB"], (DECODE,)),
        ([f"{PREFILL}=120ms"], (DECODE, PREFILL)),
        ([f"{SHORT}=4ms", f"{PREFILL}=120ms", "5ms"], (DECODE, PREFILL, SHORT)),
    ],
)
def test_the_first_phase_and_those_that_latency_budgets_name_are_timed(
    budgets: list[str], expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(layers.STATES, "classifier", lambda candidate, phase: 4096)
    resolved = study_budgets([parse_budget(text) for text in budgets], PHASED)
    assert timed_phases(phase_names(PHASED), resolved) == expected


def test_a_budget_on_a_phase_that_the_space_has_not_got_is_one_line_that_lists_its_phases() -> None:
    with pytest.raises(BudgetError) as caught:
        study_budgets([parse_budget("decode@1024=8ms")], PHASED)
    message = str(caught.value)
    assert "no phase 'decode@1024'; it has decode@512, prefill@512, decode@256" in message
    assert "\n" not in message


def test_a_budget_on_the_state_of_networks_that_keep_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = parse_budget("state=64KiB")
    with pytest.raises(BudgetError, match="networks of the space 'small' keep no state between calls; leave it out"):
        study_budgets([budget], SMALL)
    monkeypatch.setitem(layers.STATES, "classifier", lambda candidate, phase: 4096)
    assert study_budgets([budget], SMALL) == (budget,)


def test_a_phase_is_the_first_unless_it_is_named_and_a_wrong_name_lists_the_right_ones() -> None:
    assert chosen_phase(None, (DECODE, PREFILL)) == DECODE
    assert chosen_phase(PREFILL, (DECODE, PREFILL)) == PREFILL
    with pytest.raises(PhaseError, match=r"phase 'infer' is unknown; allowed: decode@512, prefill@512$"):
        chosen_phase("infer", (DECODE, PREFILL))
