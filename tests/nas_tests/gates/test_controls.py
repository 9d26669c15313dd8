from __future__ import annotations

import json
from dataclasses import replace

from nas.gates.controls import ControlScores, controls_gate
from nas.search.testing import made_up_score
from nas.training.score import HeldOutScore

CHANCE = made_up_score(36, "val")
SCORES = ControlScores(
    trial=3, trained=made_up_score(340, "val"), untrained=CHANCE, shuffled_labels=CHANCE, shuffled_inputs=CHANCE
)


def test_scores_at_chance_pass_and_are_in_the_figures() -> None:
    result = controls_gate(SCORES, 0.1, "maximize")
    assert result.passed
    assert dict(result.figures)["constant_answer"] == 0.1


def test_a_score_above_chance_with_shuffled_labels_or_inputs_blocks_and_says_which() -> None:
    for name in ("labels", "inputs"):
        leaking = replace(SCORES, **{f"shuffled_{name}": made_up_score(90, "val")})
        result = controls_gate(leaking, 0.1, "maximize")
        assert not result.passed and f"shuffled {name}" in result.reason
    assert controls_gate(replace(SCORES, shuffled_inputs=made_up_score(90, "val")), 0.3, "maximize").passed


def test_where_less_is_better_the_best_constant_answer_is_chance() -> None:
    """A network that learns the frequencies of tokens from shuffled labels is far better than before training."""
    before, unigram, leak = (bits_per_byte(value) for value in (8.0, 4.9, 4.0))
    scores = replace(SCORES, untrained=before, shuffled_labels=unigram, shuffled_inputs=bits_per_byte(6.0))
    assert controls_gate(scores, 4.8, "minimize").passed
    assert not controls_gate(replace(scores, shuffled_labels=leak), 4.8, "minimize").passed
    result = controls_gate(replace(scores, shuffled_inputs=leak), 4.8, "minimize")
    assert not result.passed and "with shuffled inputs" in result.reason
    known = replace(scores, untrained=bits_per_byte(4.0), shuffled_labels=leak)
    assert controls_gate(known, 4.8, "minimize").passed, "a network that starts below the frequencies sets the level"


def test_kinds_of_question_whose_levels_differ_do_not_hide_a_leak() -> None:
    """Yes or no is guessed half the time, a colour one time in eight: that spread says nothing of the mean's error."""
    kinds = (("no/yes", 0.95), ("circle/rectangle/triangle", 0.6), ("black/blue/brown/... (8 answers)", 0.3))
    leak = replace(made_up_score(290, "val"), metric="answer_accuracy", slices=kinds)
    result = controls_gate(replace(SCORES, shuffled_inputs=leak), 0.67, "maximize")
    assert not result.passed and "with shuffled inputs" in result.reason


def bits_per_byte(value: float) -> HeldOutScore:
    domains = (("english", value - 1), ("code", value + 1))
    return replace(CHANCE, metric="bits_per_byte", value=value, lower=value - 0.1, upper=value + 0.1, slices=domains)


def test_answers_that_hold_for_whole_classes_at_once_are_no_evidence_of_a_leak() -> None:
    """Seen with shuffled labels on digits: one class is mostly answered right, by luck."""
    lucky = replace(made_up_score(65, "val"), slices=(("one", 0.9), *((str(digit), 0.1) for digit in range(9))))
    assert controls_gate(replace(SCORES, shuffled_labels=lucky), 0.1, "maximize").passed
    even = replace(made_up_score(90, "val"), slices=tuple((str(digit), 0.25) for digit in range(10)))
    assert not controls_gate(replace(SCORES, shuffled_labels=even), 0.1, "maximize").passed


def test_controls_survive_json() -> None:
    assert ControlScores.from_json(json.loads(json.dumps(SCORES.to_json()))) == SCORES
