"""The smoke gate: the reference network goes through every stage in small before the first trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nas.gates.result import GateResult
from nas.training.result import Rehearsal, TrainFailure

LOSS_SHARE = 0.9
"""As in `nas.training.rehearsal`: the loss of the repeated batch must fall below this share of the first."""
SHOWN = 3
"""Names of parameters in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeFault:
    """The first thing that is off.

    Attributes:
        stage: `train`, `evaluate`, `reinforce`, `compile`, `parity` or `measure`.
        seen: what was seen.
        likely_cause: where to look first.
    """

    stage: str
    seen: str
    likely_cause: str

    def __str__(self) -> str:
        return f"stage {self.stage}: {self.seen}; likely cause: {self.likely_cause}"


def rehearsal_fault(seen: Rehearsal | TrainFailure) -> SmokeFault | None:
    """What is off about a rehearsed training, the earliest cause first; None when nothing is."""
    if isinstance(seen, TrainFailure):
        return SmokeFault(
            stage="train", seen=f"{seen.kind}: {seen.reason}", likely_cause="the training process itself, or the data"
        )
    return _weights_fault(seen) or _learning_fault(seen) or _scoring_fault(seen)


def _weights_fault(seen: Rehearsal) -> SmokeFault | None:
    if seen.weights_not_finite:
        text = f"{_names(seen.weights_not_finite)} holds NaN or infinity before the first step"
        return SmokeFault(stage="train", seen=text, likely_cause="how the weights are initialised or loaded")
    if any(math.isnan(loss) for loss in seen.losses):
        text = f"the loss was not finite at step {len(seen.losses) - 1}"
        return SmokeFault(
            stage="train", seen=text, likely_cause="inputs that are not finite, or a learning rate too high"
        )
    if seen.gradients_not_finite:
        text = f"the gradient of {_names(seen.gradients_not_finite)} is not finite"
        return SmokeFault(stage="train", seen=text, likely_cause="a division by zero or an overflow in that layer")
    if len(seen.unchanged) == seen.num_parameters:
        text = f"no weight changed in {len(seen.losses)} steps"
        return SmokeFault(
            stage="train", seen=text, likely_cause="a learning rate of zero, or a schedule that never rises"
        )
    if seen.without_gradient:
        text = f"no gradient reaches {_names(seen.without_gradient)}"
        return SmokeFault(
            stage="train", seen=text, likely_cause="a frozen layer, or one that the output does not depend on"
        )
    if seen.unchanged:
        text = f"{_names(seen.unchanged)} has a gradient but never changed"
        return SmokeFault(stage="train", seen=text, likely_cause="a layer that the optimiser was not given")
    return None


def _learning_fault(seen: Rehearsal) -> SmokeFault | None:
    first, last, steps = seen.losses[0], seen.losses[-1], len(seen.losses) - 1
    sign = 1.0 if seen.direction == "maximize" else -1.0
    gained = sign * (seen.grades[-1] - seen.grades[0])
    fallen = last < first - (1 - LOSS_SHARE) * abs(first)
    flipped = "a flipped sign in the loss or in the update"
    if math.isnan(gained):
        return SmokeFault(
            stage="evaluate",
            seen="no grade for the answers to one batch",
            likely_cause="a grading that returns nothing",
        )
    if not fallen:
        cause = flipped if last > first else "a learning rate too low, or labels that inputs say nothing about"
        text = f"the loss of one repeated batch went from {first:.3g} to {last:.3g} in {steps} steps"
        return SmokeFault(stage="train", seen=text, likely_cause=cause)
    if gained <= 0:
        text = (
            f"the loss of one repeated batch fell from {first:.3g} to {last:.3g}, but its answers went from"
            f" {seen.grades[0]:.3g} to {seen.grades[-1]:.3g}"
        )
        return SmokeFault(
            stage="train", seen=text, likely_cause=f"{flipped}, or a loss of something else than the score"
        )
    return None


def _scoring_fault(seen: Rehearsal) -> SmokeFault | None:
    if seen.valid_share < 1.0:
        text = f"{1 - seen.valid_share:.1%} of the outputs on val hold NaN or infinity"
        return SmokeFault(stage="evaluate", seen=text, likely_cause="batch statistics, or inputs that are not finite")
    probe = seen.scoring
    if probe is None:
        text = f"evaluation gave no score: {seen.scoring_error}"
        return SmokeFault(stage="evaluate", seen=text, likely_cause="an evaluation that never runs or returns nothing")
    if not math.isfinite(probe.value):
        return SmokeFault(stage="evaluate", seen=f"the score is {probe.value}", likely_cause="a mean over no example")
    other_split = "evaluation reads another split than it says"
    if probe.split != "val" or probe.num_examples != probe.num_given:
        text = f"{probe.num_given} examples of val were given, {probe.num_examples} of {probe.split} were scored"
        return SmokeFault(stage="evaluate", seen=text, likely_cause=other_split)
    better = probe.if_right > probe.if_wrong if seen.direction == "maximize" else probe.if_right < probe.if_wrong
    if not better:
        text = f"with labels equal to its answers it scores {probe.if_right:.3g}, with none equal {probe.if_wrong:.3g}"
        return SmokeFault(stage="evaluate", seen=text, likely_cause=f"{other_split}, or the metric's sign is flipped")
    return None


def smoke_gate(fault: SmokeFault | None, seen: Rehearsal | None, seconds: float) -> GateResult:
    """The gate's line in a report.

    Args:
        fault: what was off.
        seen: the rehearsal, where there was one.
        seconds: what the whole gate took.
    """
    figures: tuple[tuple[str, float | int | str | None], ...] = (("duration_s", seconds),)
    if seen is not None:
        figures += (("first_loss", _finite(seen.losses[0])), ("last_loss", _finite(seen.losses[-1])),
                    ("valid_share", seen.valid_share), ("steps", len(seen.losses) - 1))  # fmt: skip
        if seen.updates:
            clipped = sum(update.clip_ratio for update in seen.updates) / len(seen.updates)
            figures += (("updates", len(seen.updates)), ("clip_ratio", clipped),
                        ("first_parsed_share", seen.updates[0].parsed_share),
                        ("last_parsed_share", seen.updates[-1].parsed_share))  # fmt: skip
    if fault is not None:
        return GateResult(passed=False, reason=str(fault), figures=figures)
    reason = "the reference network compiles, agrees with torch, is measured, learns one batch and is scored"
    return GateResult(passed=True, reason=reason, figures=figures)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _names(names: Sequence[str]) -> str:
    """The first names of several.

    >>> _names(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
