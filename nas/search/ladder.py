"""Successive halving of trainings: who goes on at a rung, and what the ledger keeps of it.

As in ASHA (Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", MLSys) in its form that decides
once, when a candidate arrives (as Optuna's `SuccessiveHalvingPruner` does): a record that is written stays, and no
worker waits for another. Unlike there a study has two objectives: by val alone the fast end of the front would be
stopped first, so whoever no faster candidate of the rung beats goes on as well (Schmucker et al. 2021,
"Multi-objective Asynchronous Successive Halving", rank by dominance for the same reason).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.front import Direction
from nas.ledger import Ledger
from nas.training.recipe import Recipe
from nas.training.result import TrainFailure
from nas.training.score import LOWER_IS_BETTER, HeldOutScore
from nas.trial import Rung, score_from_json, score_to_json

if TYPE_CHECKING:
    from nas.search.pipeline import Proposal, Workbench


@dataclass(frozen=True, slots=True, kw_only=True)
class RungPoint:
    """What is compared at a rung.

    Attributes:
        value: on val, after the rung's epochs.
        latency_ms: measured, of the primary phase.
    """

    value: float
    latency_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The rungs of a study.

    Attributes:
        epochs: of each rung, the last one being the whole training; none: there is no ladder.
        factor: of the best of a rung, one in so many goes on.
    """

    epochs: tuple[int, ...] = ()
    factor: int = 2

    @classmethod
    def of(cls, recipe: Recipe) -> Ladder:
        """That of a recipe."""
        return cls() if recipe.ladder is None else cls(epochs=recipe.rungs, factor=recipe.ladder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """How far a candidate got below the top rung.

    Attributes:
        rungs: those it reached, shortest first.
        failure: what ended it besides a rung; None when nothing did.
    """

    rungs: tuple[Rung, ...]
    failure: TrainFailure | None = None

    @property
    def seconds(self) -> float:
        """Of training so far."""
        return sum(rung.seconds for rung in self.rungs)

    @property
    def stopped_because(self) -> str | None:
        """Why it goes no further; None when it does."""
        if not self.rungs or self.rungs[-1].verdict != "stopped":
            return None
        rung = self.rungs[-1]
        return (
            f"stopped by the ladder after {rung.epochs} epochs: val {rung.score.metric} {rung.score.value:.4g} there is"
            f" not among the best of {1 + (rung.num_others or 0)}, and a faster one is as good"
        )


def stage_of(epochs: int) -> str:
    """The ledger's name of a rung.

    >>> stage_of(2)
    'rung@2'
    """
    return f"rung@{epochs}"


def is_promoted(mine: RungPoint, others: Sequence[RungPoint], factor: int, direction: Direction) -> bool:
    """Whether a candidate trains on: it is among the best 1 / `factor` on val, or no faster one is as good.

    Args:
        mine: the candidate's.
        others: of all candidates that reached the rung before it; none: it goes on.
        factor: 2 or more.
        direction: of the value.

    >>> rung = [RungPoint(value=value, latency_ms=2.0) for value in (0.5, 0.6, 0.7)]
    >>> [is_promoted(RungPoint(value=value, latency_ms=3.0), rung, 2, "maximize") for value in (0.55, 0.65)]
    [False, True]
    >>> is_promoted(RungPoint(value=0.55, latency_ms=1.0), rung, 2, "maximize")
    True
    """
    sign = 1.0 if direction == "maximize" else -1.0
    values = sorted((sign * point.value for point in (*others, mine)), reverse=True)
    if sign * mine.value >= values[max(1, len(values) // factor) - 1]:
        return True
    return not any(point.latency_ms <= mine.latency_ms and sign * point.value >= sign * mine.value for point in others)


def direction_of(score: HeldOutScore) -> Direction:
    """Which values of the score's metric are better."""
    return "minimize" if score.metric in LOWER_IS_BETTER else "maximize"


def climb(proposal: Proposal, latency_ms: float, bench: Workbench) -> Climb:
    """Trains from rung to rung below the top one, until one stops it; without a ladder nothing is done.

    Each rung goes on from the state of the one before. Its decision is in the ledger before anything follows from it,
    so a study that is killed in between neither trains nor decides again.
    """
    climbed = Climb(rungs=())
    for epochs in bench.ladder.epochs[:-1]:
        reached = _reach(epochs, proposal, latency_ms, climbed.seconds, bench)
        if isinstance(reached, TrainFailure):
            return Climb(rungs=climbed.rungs, failure=reached)
        climbed = Climb(rungs=(*climbed.rungs, reached))
        if reached.verdict == "stopped":
            bench.forget_training(proposal.trial)
            break
    return climbed


def _reach(
    epochs: int, proposal: Proposal, latency_ms: float, before_s: float, bench: Workbench
) -> Rung | TrainFailure:
    failures: list[TrainFailure] = []

    def work() -> tuple[Mapping[str, Any] | None, float]:
        trained = bench.train(proposal, epochs)
        if isinstance(trained, TrainFailure):
            failures.append(trained)
            return None, trained.duration_s
        others = bench.rung_points(epochs, proposal.trial)
        mine = RungPoint(value=trained.score.value, latency_ms=latency_ms)
        payload = {
            "score": score_to_json(trained.score),
            "latency_ms": latency_ms,
            "num_others": len(others),
            "verdict": "promoted"
            if is_promoted(mine, others, bench.ladder.factor, direction_of(trained.score))
            else "stopped",
        }
        return payload, max(0.0, trained.duration_s - before_s)

    payload, seconds = bench.remember(proposal.trial, stage_of(epochs), work)
    if payload is None:
        return failures[0]
    return Rung(
        epochs=epochs, score=score_from_json(payload["score"]), seconds=seconds, verdict=payload["verdict"],
        num_others=payload["num_others"],
    )  # fmt: skip


def top_rung(epochs: int, score: HeldOutScore, seconds: float) -> Rung:
    """The rung of a training that came to its end."""
    return Rung(epochs=epochs, score=score, seconds=max(0.0, seconds), verdict="top")


def rung_points(ledger: Ledger, epochs: int, trial: int) -> tuple[RungPoint, ...]:
    """What trials other than `trial` scored at a rung."""
    return tuple(
        RungPoint(value=payload["score"]["value"], latency_ms=payload["latency_ms"])
        for other, payload in ledger.payloads(stage_of(epochs))
        if other != trial
    )
