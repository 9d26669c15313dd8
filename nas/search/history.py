"""What a study's trials say to `BudgetSampler`, in columns, and no more of them than a proposal has time for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from optuna.trial import TrialState

from nas.front import non_dominated
from nas.search.candidate_source import CandidateSource, Options
from nas.search.sampler import PREDICTED_ATTRIBUTE, RUNG_ATTRIBUTE
from search_spaces.space import Choices

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from nas.search.cost import Cost, Measured

Floats = NDArray[np.float64]

MAX_KEPT = 2000
"""Networks that a proposal looks at; what the surrogates learn from is chosen among them, and is fewer still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One network something is known about.

    Attributes:
        choices: what makes it.
        quality: larger is better; NaN was not scored.
        costs: one for each of the sampler's costs; NaN is not known.
        is_within: whether it met every budget it was held against.
        is_measured: whether its costs were measured; a cost model predicted them otherwise.
    """

    choices: Choices
    quality: float
    costs: tuple[float, ...]
    is_within: bool
    is_measured: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Networks something is known about, in columns, the earliest trial first.

    Attributes:
        options: the networks; those that were only measured, which may still be tried, come last.
        qualities, costs, is_within, is_measured: as in `Told`; costs have shape (networks, costs).
        tried: keys of all that were tried, also of those that are not among `options`.
    """

    options: Options
    qualities: Floats
    costs: Floats
    is_within: NDArray[np.bool_]
    is_measured: NDArray[np.bool_]
    tried: frozenset[str]


def read_history(
    trials: Sequence[FrozenTrial],
    source: CandidateSource,
    costs: Sequence[Cost],
    measured: Sequence[Measured],
    *,
    sign: float,
    rng: np.random.Generator,
) -> History:
    """Scored and measured trials, each network once, and what was measured besides.

    Args:
        trials: of the study, in any state.
        source: says which choices make one network.
        costs: the sampler's.
        measured: outside the study's trials.
        sign: of the study's quality: -1 where smaller is better.
        rng: chooses which results to leave out where there are more than `MAX_KEPT`. In the same state for
            every proposal of a study it chooses mostly the same ones, whose encodings are known.
    """
    ended = [
        trial
        for trial in sorted(trials, key=lambda trial: trial.number)
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and trial.params
    ]
    tried: dict[str, Told] = {}
    for trial, key in zip(ended, source.keys([trial.params for trial in ended]), strict=True):
        if key is not None and key not in tried:
            tried[key] = Told(
                choices=trial.params,
                quality=_quality(trial, sign),
                costs=_filled([cost.known(trial) for cost in costs]),
                is_within=all(excess <= 0 for excess in trial.constraints.values()),
                is_measured=PREDICTED_ATTRIBUTE not in trial.user_attrs,
            )
    besides: dict[str, Told] = {}
    for each, key in zip(measured, source.keys([each.choices for each in measured]), strict=True):
        if key is not None and key not in tried and key not in besides:
            besides[key] = Told(choices=each.choices, quality=np.nan, costs=_filled(each.costs), is_within=True)
    rows = [*_kept(list(tried.values()), costs, rng), *besides.values()]
    return History(
        options=source.describe([row.choices for row in rows]),
        qualities=np.array([row.quality for row in rows], dtype=float),
        costs=np.array([row.costs for row in rows], dtype=float).reshape(len(rows), len(costs)),
        is_within=np.array([row.is_within for row in rows], dtype=bool),
        is_measured=np.array([row.is_measured for row in rows], dtype=bool),
        tried=frozenset(tried),
    )


def _quality(trial: FrozenTrial, sign: float) -> float:
    """NaN where it was not trained; with a ladder the score of the lowest rung, which all have, and no other."""
    if RUNG_ATTRIBUTE in trial.user_attrs:
        return sign * float(trial.user_attrs[RUNG_ATTRIBUTE])
    return np.nan if trial.values is None else sign * float(trial.values[0])


def _filled(costs: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(np.nan if cost is None else float(cost) for cost in costs)


def _kept(rows: list[Told], costs: Sequence[Cost], rng: np.random.Generator) -> list[Told]:
    """All, or of more than `MAX_KEPT`: the front, the best, the worst, the latest, and at random from the others."""
    if len(rows) <= MAX_KEPT:
        return rows
    quality = np.array([row.quality for row in rows])
    is_within = np.array([row.is_within for row in rows])
    objectives = [position for position, cost in enumerate(costs) if cost.objective is not None]
    spent = np.array([row.costs for row in rows])[:, objectives]
    scored = np.flatnonzero(~np.isnan(quality))
    within = scored[is_within[scored] & ~np.isnan(spent[scored]).any(axis=1)]
    points = np.column_stack([-quality[within], spent[within]])
    front = within[non_dominated(points, ["minimize"] * points.shape[1])] if len(within) else within
    best = within[np.argsort(-quality[within], kind="stable")][: MAX_KEPT // 4]
    worst = scored[np.argsort(quality[scored], kind="stable")][:1]
    latest = np.arange(len(rows) - MAX_KEPT // 4, len(rows))
    chosen = np.unique(np.concatenate([front, best, worst, latest]))
    others = np.setdiff1d(np.arange(len(rows)), chosen)
    drawn = others[np.argsort(rng.random(len(rows))[others])][: max(0, MAX_KEPT - len(chosen))]
    return [rows[index] for index in np.sort(np.concatenate([chosen, drawn]))]
