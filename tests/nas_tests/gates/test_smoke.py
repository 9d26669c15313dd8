from __future__ import annotations

import math
from dataclasses import replace

import pytest

from nas.gates.smoke import rehearsal_fault, smoke_gate
from nas.search.testing import made_up_rehearsal
from nas.training.result import Rehearsal, TrainFailure

GOOD = made_up_rehearsal()
assert GOOD.scoring is not None


def test_a_rehearsal_in_which_nothing_is_off_passes() -> None:
    assert rehearsal_fault(GOOD) is None
    result = smoke_gate(None, GOOD, 1.5)
    assert result.passed
    assert dict(result.figures)["duration_s"] == 1.5


FAULTS = {
    "weights": (replace(GOOD, weights_not_finite=("stem.weight",)), "train", "initialised"),
    "loss": (replace(GOOD, losses=(2.3, math.nan)), "train", "learning rate too high"),
    "gradient": (replace(GOOD, gradients_not_finite=("a",)), "train", "overflow"),
    "rate": (replace(GOOD, unchanged=("a", "b", "c", "d")), "train", "learning rate of zero"),
    "frozen": (replace(GOOD, without_gradient=("a",), unchanged=("a",)), "train", "a frozen layer"),
    "left out": (replace(GOOD, unchanged=("a",)), "train", "the optimiser was not given"),
    "rising": (replace(GOOD, losses=(2.3, 2.9)), "train", "flipped sign"),
    "flat": (replace(GOOD, losses=(2.3, 2.2)), "train", "learning rate too low"),
    "wrong way": (replace(GOOD, grades=(0.1, 0.0)), "train", "flipped sign"),
    "no grade": (replace(GOOD, grades=(math.nan, math.nan)), "evaluate", "returns nothing"),
    "invalid": (replace(GOOD, valid_share=0.99), "evaluate", "not finite"),
    "no score": (replace(GOOD, scoring=None, scoring_error="it returned nothing"), "evaluate", "never runs"),
    "other split": (replace(GOOD, scoring=replace(GOOD.scoring, split="test")), "evaluate", "another split"),
    "fewer": (replace(GOOD, scoring=replace(GOOD.scoring, num_examples=3)), "evaluate", "another split"),
    "blind": (replace(GOOD, scoring=replace(GOOD.scoring, if_right=0.2, if_wrong=0.2)), "evaluate", "another split"),
    "nan score": (replace(GOOD, scoring=replace(GOOD.scoring, value=math.nan)), "evaluate", "no example"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_off_is_named_with_its_stage_and_likely_cause(name: str) -> None:
    seen, stage, cause = FAULTS[name]
    fault = rehearsal_fault(seen)
    assert fault is not None and fault.stage == stage
    assert cause in fault.likely_cause
    result = smoke_gate(fault, seen, 1.0)
    assert not result.passed and f"stage {stage}" in result.reason


def test_a_loss_to_be_lowered_is_watched_the_other_way_round() -> None:
    assert GOOD.scoring is not None
    turned = replace(GOOD.scoring, if_right=0.0, if_wrong=1.0)
    seen: Rehearsal = replace(GOOD, direction="minimize", grades=(0.9, 0.1), scoring=turned)
    assert rehearsal_fault(seen) is None
    assert rehearsal_fault(replace(seen, grades=(0.1, 0.9))) is not None


def test_a_rehearsal_that_crashed_is_a_fault_of_training() -> None:
    fault = rehearsal_fault(TrainFailure(kind="crashed", reason="signal 9"))
    assert fault is not None and "signal 9" in str(fault)
