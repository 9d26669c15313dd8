"""Scores over several training seeds, and which neighbours on a front cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, stdev

from nas.training.score import HeldOutScore

_T975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""97.5% quantile of Student's t by degrees of freedom; above 9 the normal one is used."""
_NORMAL = 1.960


def over_seeds(scores: Sequence[HeldOutScore]) -> HeldOutScore:
    """One score of several trainings of the same network: their mean, its interval over seeds and examples.

    The two parts of the variance add: the spread of seeds by Student's t over the number of seeds, and
    the examples' part as in each single score, which more seeds do not reduce: all are scored on the same.

    Raises:
        ValueError: no score, or scores of different metrics, splits or seeds that repeat.
    """
    seeds = tuple(seed for score in scores for seed in score.seeds)
    kinds = {(score.metric, score.split, score.num_examples) for score in scores}
    if len(kinds) != 1 or len(set(seeds)) != len(seeds):
        raise ValueError(f"scores of {sorted(kinds)} with seeds {seeds}: needs one metric and split, each seed once")
    if len(scores) == 1:
        return scores[0]
    value = mean(score.value for score in scores)
    below = mean(score.value - score.lower for score in scores)
    above = mean(score.upper - score.value for score in scores)
    quantile = _T975.get(len(scores) - 1, _NORMAL)
    over = quantile * stdev([score.value for score in scores]) / math.sqrt(len(scores))
    names = [name for name, _ in scores[0].slices]
    tables = [dict(score.slices) for score in scores]
    return replace(
        scores[0],
        value=value,
        lower=value - math.hypot(over, below),
        upper=value + math.hypot(over, above),
        seeds=seeds,
        slices=tuple((name, mean(table[name] for table in tables)) for name in names),
    )


def ties_with_faster(scores: Sequence[HeldOutScore], direction: str) -> tuple[int | None, ...]:
    """For each member of a front, fastest first, the fastest one that it is not better than beyond the intervals.

    None means that it is better than every faster one. Intervals that overlap are not told apart, which
    is careful: two at 95% that just touch differ with more than 99% confidence.
    """
    sign = 1.0 if direction == "maximize" else -1.0

    def is_better(mine: HeldOutScore, other: HeldOutScore) -> bool:
        return mine.lower > other.upper if sign > 0 else mine.upper < other.lower

    return tuple(
        next((faster for faster in range(index) if not is_better(score, scores[faster])), None)
        for index, score in enumerate(scores)
    )
