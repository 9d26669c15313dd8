"""Controls: scores that must be at chance, or the real ones mean something else than they seem to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import stdev
from typing import Any

from nas.front import Direction
from nas.gates.result import GateResult
from nas.training.score import HeldOutScore
from nas.trial import score_from_json, score_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlScores:
    """What one network of the front scores on val when the link between inputs and labels is cut.

    Attributes:
        trial: of the network.
        trained: its own score.
        untrained: before its first step.
        shuffled_labels: trained anew, shortly, on train labels that were dealt out at random.
        shuffled_inputs: as trained, on val inputs dealt out at random.
    """

    trial: int
    trained: HeldOutScore
    untrained: HeldOutScore
    shuffled_labels: HeldOutScore
    shuffled_inputs: HeldOutScore

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` reads back."""
        return {"trial": self.trial, **{name: score_to_json(getattr(self, name)) for name in _SCORES}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ControlScores:
        """The inverse of `to_json`."""
        scores = {name: score_from_json(data[name]) for name in _SCORES}
        return cls(trial=int(data["trial"]), **scores)


_SCORES = ("trained", "untrained", "shuffled_labels", "shuffled_inputs")


SURE = 3.29 / 1.96
"""A 95% interval widened to 99.9%: a leak is seen at a glance, and a study without one must not be stopped."""
SURE_CLASSES = 4.3
"""99.8% quantile of Student's t for ten classes (nine degrees of freedom)."""


def is_surely_above_chance(score: HeldOutScore, chance: float, direction: Direction) -> bool:
    """Whether a score beats `chance` by more than examples and classes explain.

    What a network learnt from shuffled labels answers, it answers for a whole class of look-alikes at
    once: examples of a class are no independent draws, so the spread between classes counts as well.

    >>> from nas.search.testing import made_up_score
    >>> [is_surely_above_chance(made_up_score(right, "val"), 0.1, "maximize") for right in (50, 90)]
    [False, True]
    """
    sign = 1.0 if direction == "maximize" else -1.0
    margin = SURE * (score.value - score.lower if sign > 0 else score.upper - score.value)
    # Answers hold for whole classes at once. Slices of other metrics are no classes (kinds of text or question, whose
    # levels differ anyhow), and their intervals know of files and images.
    classes = [value for _, value in score.slices] if score.metric == "accuracy" else []
    if len(classes) > 1:
        margin = max(margin, SURE_CLASSES * stdev(classes) / math.sqrt(len(classes)))
    return sign * (score.value - chance) > margin


def controls_gate(scores: ControlScores, constant: float, direction: Direction) -> GateResult:
    """Neither shuffled score may be surely better than what an answer scores that does not look at the inputs.

    Args:
        scores: of one network.
        constant: score of the best such answer (`nas.training.baselines`); the untrained network may be better.
        direction: of the metric.
    """
    figures = (
        ("trial", scores.trial), ("trained", scores.trained.value), ("untrained", scores.untrained.value),
        ("constant_answer", constant), ("shuffled_labels", scores.shuffled_labels.value),
        ("shuffled_inputs", scores.shuffled_inputs.value),
    )  # fmt: skip
    better = max if direction == "maximize" else min
    chance = better(constant, scores.untrained.value)
    for name, score, cause in (
        ("labels", scores.shuffled_labels, "evaluation sees what training saw, or does not look at val's labels"),
        ("inputs", scores.shuffled_inputs, "the score does not come from the inputs"),
    ):
        if is_surely_above_chance(score, chance, direction):
            reason = (
                f"with shuffled {name} trial {scores.trial} still scores {score.value:.3f}"
                f" ({score.lower:.3f} to {score.upper:.3f}), chance is {chance:.3f}: {cause}"
            )
            return GateResult(passed=False, reason=reason, figures=figures)
    reason = (
        f"trial {scores.trial} falls from {scores.trained.value:.3f} to chance with shuffled inputs"
        f" ({scores.shuffled_inputs.value:.3f}) and with shuffled labels ({scores.shuffled_labels.value:.3f})"
    )
    return GateResult(passed=True, reason=reason, figures=figures)
