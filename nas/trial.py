"""What became of one trial: its outcome, its cost, its score, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

from nas.training.score import HeldOutScore
from profilers.measurement import LatencyEstimate
from search_spaces.candidate import Candidate

RungVerdict = Literal["promoted", "stopped", "top"]


class Outcome(StrEnum):
    """How a trial ended. Quality, screening and infrastructure are never mixed."""

    SCORED = "scored"
    OVER_BUDGET = "over_budget"
    DIVERGED = "diverged"
    STOPPED_EARLY = "stopped_early"
    PREDICTED_OVER_BUDGET = "predicted_over_budget"
    COMPILE_FAILED = "compile_failed"
    PARITY_FAILED = "parity_failed"
    PROFILE_FAILED = "profile_failed"
    TRAIN_FAILED = "train_failed"

    @property
    def is_infrastructure(self) -> bool:
        """True when the trial says nothing about the candidate's quality."""
        return self in _INFRASTRUCTURE

    @property
    def kind(self) -> str:
        """`quality`, `screening` or `infrastructure`.

        >>> Outcome.OVER_BUDGET.kind, Outcome.TRAIN_FAILED.kind
        ('quality', 'infrastructure')
        """
        if self.is_infrastructure:
            return "infrastructure"
        return "screening" if self is Outcome.PREDICTED_OVER_BUDGET else "quality"


_INFRASTRUCTURE = frozenset(
    {Outcome.COMPILE_FAILED, Outcome.PARITY_FAILED, Outcome.PROFILE_FAILED, Outcome.TRAIN_FAILED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedAmount:
    """A size or a peak of memory that a cost model predicts, of the phase that takes most.

    Attributes:
        metric: `model_bytes` or `peak_memory_bytes`.
        value: the best guess, in bytes.
        lower, upper: ends of the 90% interval.
    """

    metric: str
    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCost:
    """What one candidate costs on the study's device, besides its quality.

    Attributes:
        latencies: (phase, estimate) of each timed phase, the primary one first. A phase is missing where an
            earlier one had missed its budget already.
        num_params, num_macs: parameters and multiply-accumulates of one inference of the primary phase.
        model_bytes: code and weights on disk, of the phase that takes most; None before it was compiled.
        peak_memory_bytes: of the measuring child, of the phase that takes most; None before it was measured.
        runtime: of the artifacts that were timed; of a predicted cost, that which the prediction is for.
        tuned_coverage: the lowest over the timed phases.
        parity_max_abs: the largest over the timed phases.
        state_bytes: what a network keeps from one call to the next after the primary phase, caches for
            instance; None for networks that keep nothing.
        predicted_amounts: of a candidate that was not measured, what a cost model says besides its latencies.
    """

    latencies: tuple[tuple[str, LatencyEstimate], ...]
    num_params: int
    num_macs: int
    model_bytes: int | None
    peak_memory_bytes: int | None
    runtime: str
    tuned_coverage: float | None
    parity_max_abs: float | None
    state_bytes: int | None = None
    predicted_amounts: tuple[PredictedAmount, ...] = ()

    def predicted(self, metric: str) -> PredictedAmount | None:
        """The prediction of a size or a peak; None where there is none."""
        return next((each for each in self.predicted_amounts if each.metric == metric), None)

    def latency(self, phase: str) -> LatencyEstimate | None:
        """The latency of `phase`; None when it was not timed."""
        return dict(self.latencies).get(phase)

    @property
    def is_measured(self) -> bool:
        """Whether its costs are measurements; a cost model predicted them otherwise, all of them."""
        return not self.predicted_amounts and all(estimate.source == "measured" for _, estimate in self.latencies)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` reads back."""
        # By hand: `asdict` copies recursively, which 10,000 trials would notice.
        predicted = [asdict(each) for each in self.predicted_amounts]
        return {
            "latencies": [[phase, asdict(estimate)] for phase, estimate in self.latencies],
            "num_params": self.num_params,
            "num_macs": self.num_macs,
            "model_bytes": self.model_bytes,
            "peak_memory_bytes": self.peak_memory_bytes,
            "runtime": self.runtime,
            "tuned_coverage": self.tuned_coverage,
            "parity_max_abs": self.parity_max_abs,
            "state_bytes": self.state_bytes,
            **({"predicted_amounts": predicted} if predicted else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CandidateCost:
        """The inverse of `to_json`; unknown or missing keys raise `TypeError` or `KeyError`.

        `state_bytes` and `predicted_amounts` may be missing: a ledger from before there were any still loads.
        """
        latencies = tuple((phase, LatencyEstimate(**estimate)) for phase, estimate in data["latencies"])
        predicted = tuple(PredictedAmount(**each) for each in data.get("predicted_amounts", ()))
        return cls(**{**data, "latencies": latencies, "predicted_amounts": predicted})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One length of training that a candidate reached (`Recipe.ladder`).

    Attributes:
        epochs: trained by then.
        score: on val, of a training that is not over unless `verdict` is `top`: its learning rate is still high, so
            it is compared with scores of the same rung alone.
        seconds: wall clock from the rung before.
        verdict: `promoted` to the next one, `stopped` here, or `top`: there is no next one.
        num_others: candidates that it was compared with; None at the top, where nothing is decided.
    """

    epochs: int
    score: HeldOutScore
    seconds: float
    verdict: RungVerdict
    num_others: int | None = None

    def __str__(self) -> str:
        """For people, in one cell."""
        return f"{self.epochs}: {self.score.value:.4g} {self.verdict}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` reads back."""
        return {"epochs": self.epochs, "score": score_to_json(self.score), "seconds": self.seconds,
                "verdict": self.verdict, "num_others": self.num_others}  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rung:
        """The inverse of `to_json`."""
        return cls(**{**data, "score": score_from_json(data["score"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One finished trial.

    Attributes:
        trial: number in the study, from 0.
        candidate: what was tried.
        outcome: how it ended.
        cost: None when the trial ended before it was measured; predicted, and marked so, when the outcome
            is `predicted_over_budget`, and when a cost model was trusted that the network meets the budgets.
        score: on the val split; None unless the outcome is `scored`.
        error: the reason, for every outcome but `scored`.
        seconds: (stage, wall seconds): `tune`, `compile`, `profile`, `train`.
        rungs: lengths of training that it reached, shortest first; empty in a study without a ladder.
        duplicate_of: the earlier trial whose result this one reuses.
    """

    trial: int
    candidate: Candidate
    outcome: Outcome
    cost: CandidateCost | None = None
    score: HeldOutScore | None = None
    error: str | None = None
    seconds: tuple[tuple[str, float], ...] = ()
    rungs: tuple[Rung, ...] = ()
    duplicate_of: int | None = None

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.SCORED) != (self.score is not None):
            raise ValueError(f"trial {self.trial}: outcome {self.outcome} with score {self.score}; only scored has one")
        if self.outcome in (Outcome.SCORED, Outcome.STOPPED_EARLY) and self.cost is None:
            raise ValueError(f"trial {self.trial}: {self.outcome} without a cost")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` reads back to an equal record."""
        return {
            "trial": self.trial,
            "candidate": self.candidate.to_json(),
            "outcome": self.outcome.value,
            "cost": None if self.cost is None else self.cost.to_json(),
            "score": None if self.score is None else score_to_json(self.score),
            "error": self.error,
            "seconds": [list(pair) for pair in self.seconds],
            "duplicate_of": self.duplicate_of,
            # Left out where there are none, so that records of before there were any stay what they are.
            **({"rungs": [rung.to_json() for rung in self.rungs]} if self.rungs else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrialRecord:
        """The inverse of `to_json`; what is no such record raises `KeyError`, `TypeError` or `ValueError`."""
        fields = {
            **data,
            "candidate": Candidate.from_json(data["candidate"]),
            "outcome": Outcome(data["outcome"]),
            "cost": None if data["cost"] is None else CandidateCost.from_json(data["cost"]),
            "score": None if data["score"] is None else score_from_json(data["score"]),
            "seconds": tuple((stage, seconds) for stage, seconds in data["seconds"]),
            "rungs": tuple(Rung.from_json(rung) for rung in data.get("rungs", ())),
        }
        return cls(**fields)


def score_to_json(score: HeldOutScore) -> dict[str, Any]:
    """A score as plain JSON."""
    return {**asdict(score), "seeds": list(score.seeds), "slices": [list(pair) for pair in score.slices]}


def score_from_json(data: Mapping[str, Any]) -> HeldOutScore:
    """The inverse of `score_to_json`."""
    slices = tuple((name, value) for name, value in data["slices"])
    return HeldOutScore(**{**data, "seeds": tuple(data["seeds"]), "slices": slices})
