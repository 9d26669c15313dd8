"""Equal is not the same: a faster way to train must give the losses and scores of the slow one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean

from nas.gates.result import GateResult

MIN_SEEDS = 3
"""Trainings of each kind: with fewer there is no spread to compare with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRun:
    """One training by one path.

    Attributes:
        seed: of weights and batches; the same seed means the same of both.
        losses: of each step; the last one is NaN where the training diverged there.
        score: on val, at the end; NaN of one that diverged.
    """

    seed: int
    losses: tuple[float, ...]
    score: float


def equal_paths_gate(name: str, slow: Sequence[PathRun], fast: Sequence[PathRun]) -> GateResult:
    """Refuses a path whose losses or final scores differ more than those of two seeds do.

    Both are judged per seed, on the same batches: the mean absolute difference of losses over the
    steps against the same between two seeds of the slow path, and the mean difference of final scores
    against the largest between two seeds.

    Raises:
        ValueError: fewer than `MIN_SEEDS` runs, or runs that do not pair.
    """
    if len(slow) < MIN_SEEDS or [run.seed for run in slow] != [run.seed for run in fast]:
        raise ValueError(f"{len(slow)} slow and {len(fast)} fast runs; needs at least {MIN_SEEDS} with equal seeds")
    between = mean(_distance(left, right) for left, right in combinations(slow, 2))
    apart = _largest([_distance(left, right) for left, right in zip(slow, fast, strict=True)])
    score_spread = _largest([abs(left.score - right.score) for left, right in combinations(slow, 2)])
    score_apart = abs(mean(run.score for run in fast) - mean(run.score for run in slow))
    figures = (
        ("seeds", len(slow)), ("loss_difference", _finite(apart)), ("loss_spread_of_seeds", _finite(between)),
        ("score_difference", _finite(score_apart)), ("score_spread_of_seeds", _finite(score_spread)),
    )  # fmt: skip
    if not math.isfinite(between):
        reason = f"{name}: the slow way itself diverged on the reference network, so nothing can be compared"
        return GateResult(passed=False, reason=f"{reason}: it is refused", figures=figures)
    if not apart <= between:  # NaN is refused as well
        reason = f"{name}: losses differ by {apart:.3g} on the same batches, two seeds by {between:.3g}: it is refused"
        return GateResult(passed=False, reason=reason, figures=figures)
    if not score_apart <= score_spread:
        reason = f"{name}: final scores differ by {score_apart:.3g}, seeds by at most {score_spread:.3g}: it is refused"
        return GateResult(passed=False, reason=reason, figures=figures)
    reason = f"{name}: losses differ by {apart:.3g} on the same batches, two seeds by {between:.3g}"
    return GateResult(passed=True, reason=reason, figures=figures)


def _distance(left: PathRun, right: PathRun) -> float:
    if len(left.losses) != len(right.losses):  # one of them diverged
        return math.nan
    return mean(abs(a - b) for a, b in zip(left.losses, right.losses, strict=True))


def _largest(values: list[float]) -> float:
    """The largest, NaN where one is: `max` would answer by their order."""
    return math.nan if any(math.isnan(value) for value in values) else max(values)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
