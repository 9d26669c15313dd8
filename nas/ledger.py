"""What became of every trial: the outcomes and the one store that remembers them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nas.training.score import HeldOutScore
from profilers.measurement import LatencyEstimate
from search_spaces.candidate import Candidate


class Outcome(StrEnum):
    """How a trial ended. Quality, screening and infrastructure are never mixed."""

    SCORED = "scored"
    OVER_BUDGET = "over_budget"
    DIVERGED = "diverged"
    PREDICTED_OVER_BUDGET = "predicted_over_budget"
    COMPILE_FAILED = "compile_failed"
    PARITY_FAILED = "parity_failed"
    PROFILE_FAILED = "profile_failed"
    TRAIN_FAILED = "train_failed"

    @property
    def is_infrastructure(self) -> bool:
        """True when the trial says nothing about the candidate's quality."""
        return self in _INFRASTRUCTURE


_INFRASTRUCTURE = frozenset(
    {Outcome.COMPILE_FAILED, Outcome.PARITY_FAILED, Outcome.PROFILE_FAILED, Outcome.TRAIN_FAILED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCost:
    """What one candidate costs on the study's device, besides its quality.

    Attributes:
        latencies: (phase, estimate) of each timed phase.
        num_params, num_macs: parameters and multiply-accumulates of one inference.
        model_bytes: code and weights on disk.
        peak_memory_bytes: of the measuring child; None before it was measured.
        runtime, tuned_coverage, parity_max_abs: of the artifact that was timed.
    """

    latencies: tuple[tuple[str, LatencyEstimate], ...]
    num_params: int
    num_macs: int
    model_bytes: int
    peak_memory_bytes: int | None
    runtime: str
    tuned_coverage: float | None
    parity_max_abs: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One finished trial.

    Attributes:
        trial: number in the study, from 0.
        candidate: what was tried.
        outcome: how it ended.
        cost: None when the trial ended before it was measured.
        score: on the val split; None unless the outcome is `scored`.
        error: the reason, for every outcome but `scored`.
        seconds: (stage, wall seconds): `tune`, `compile`, `profile`, `train`.
        duplicate_of: the earlier trial whose result this one reuses.
    """

    trial: int
    candidate: Candidate
    outcome: Outcome
    cost: CandidateCost | None = None
    score: HeldOutScore | None = None
    error: str | None = None
    seconds: tuple[tuple[str, float], ...] = ()
    duplicate_of: int | None = None

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.SCORED) != (self.score is not None):
            raise ValueError(f"trial {self.trial}: outcome {self.outcome} with score {self.score}; only scored has one")
        if self.outcome is Outcome.SCORED and self.cost is None:
            raise ValueError(f"trial {self.trial}: scored without a measured cost")
