"""What a training returns: a result or a failure, both plain values that survive pickling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nas.training.score import HeldOutScore

if TYPE_CHECKING:
    from nas.training.grpo import UpdateRecord

TrainFailureKind = Literal["diverged", "out_of_memory", "bad_data", "storage", "crashed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """Telemetry of one epoch: the curve of held-out quality over steps.

    Attributes:
        step: steps done when the epoch ended.
        train_loss: mean over the epoch's examples, with augmentation and label smoothing; of a training by
            reinforcement minus the mean reward.
        learning_rate: of the epoch's last step.
        val_value: the task's metric on val after the epoch.
    """

    step: int
    train_loss: float
    learning_rate: float
    val_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """One finished training, or one that paused after an epoch (`train`, `until_epoch`): it then has no weights.

    Attributes:
        candidate_id, seed: what was trained.
        score: on val, with the weights of `chosen_step`. Chosen by the same val, it flatters a little, as
            the search's choice of a candidate does; the test score is the one to quote.
        untrained_score: on val, before the first step; a score not above it learnt nothing.
        history: one record an epoch.
        num_steps: optimiser steps that were done.
        chosen_step: after which step the weights are, the last one or the best on val (`Recipe.keep`).
        resumed_from_step: where an interrupted training went on; 0 when it ran in one go.
        duration_s: wall clock of training and val scoring, interrupted parts included.
        task_fingerprint: of the data it was trained on.
        weights_path, weights_sha256: the final state_dict; None when no folder was given, or it paused.
    """

    candidate_id: str
    seed: int
    score: HeldOutScore
    untrained_score: HeldOutScore
    history: tuple[EpochRecord, ...]
    num_steps: int
    resumed_from_step: int
    duration_s: float
    task_fingerprint: str
    weights_path: str | None
    weights_sha256: str | None
    chosen_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainFailure:
    """A training that gave no score.

    Attributes:
        kind: `diverged` says something about the candidate; the others are infrastructure.
        reason: one line.
        step: steps done before it failed.
        duration_s: wall clock until then.
        traceback: of the exception behind it; empty for `diverged`.
    """

    kind: TrainFailureKind
    reason: str
    step: int = 0
    duration_s: float = 0.0
    traceback: str = ""

    @property
    def is_infrastructure(self) -> bool:
        """True when the failure says nothing about the candidate's quality."""
        return self.kind != "diverged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringProbe:
    """What scoring says of one network when the labels of val are exchanged.

    Attributes:
        split, value, num_examples: of the score with the true labels.
        if_right, if_wrong: with labels equal to the network's own answers, and with none equal to them.
        num_given: examples of val that there were.
    """

    split: str
    value: float
    if_right: float
    if_wrong: float
    num_examples: int
    num_given: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What was seen of a few training steps and one scoring (`nas.training.rehearsal`).

    Attributes:
        num_parameters: parameter tensors.
        weights_not_finite: parameters and buffers that hold NaN or infinity before the first step.
        without_gradient: parameters whose gradient was missing or zero at every step.
        gradients_not_finite: parameters whose gradient held NaN or infinity.
        unchanged: parameters that no step changed.
        losses, grades: loss and mean grade of one repeated batch before each step; NaN when not finite.
        valid_share: share of val outputs without NaN or infinity.
        scoring: None when scoring gave nothing.
        scoring_error: why.
        direction: of the task's metric.
        updates: the first ones of a training by reinforcement; None for one by examples.
        duration_s: wall clock.
    """

    num_parameters: int
    weights_not_finite: tuple[str, ...]
    without_gradient: tuple[str, ...]
    gradients_not_finite: tuple[str, ...]
    unchanged: tuple[str, ...]
    losses: tuple[float, ...]
    grades: tuple[float, ...]
    valid_share: float
    scoring: ScoringProbe | None
    scoring_error: str | None
    direction: Literal["maximize", "minimize"]
    updates: tuple[UpdateRecord, ...] | None = None
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffled:
    """Scores on val with shuffled train labels, and with shuffled val inputs (`nas.training.controls`)."""

    labels: HeldOutScore
    inputs: HeldOutScore
