"""Which of several results are worth having: the non-dominated set, and the hypervolume that it covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Direction = Literal["minimize", "maximize"]

Values = NDArray[np.floating[Any]] | Sequence[Sequence[float]]


def non_dominated(values: Values, directions: Sequence[Direction]) -> NDArray[np.bool_]:
    """Which points no other point dominates.

    A point dominates another when it is at least as good in every objective and better in one.
    Equal points do not dominate each other: either all copies are in the set or none is. Infinite
    values are allowed, NaN is not: a result without a value has no place in a comparison.

    Args:
        values: shape (points, objectives).
        directions: one an objective.

    Returns:
        Mask of shape (points,).

    Raises:
        ValueError: NaN, wrong shape, or an unknown direction.

    >>> non_dominated([[2.0, 0.9], [3.0, 0.8], [1.0, 0.7]], ["minimize", "maximize"]).tolist()
    [True, False, True]
    """
    costs = _costs(values, directions)
    mask = np.zeros(len(costs), dtype=bool)
    # In lexicographic order no point dominates an earlier one, so only members so far can dominate it.
    members = np.empty_like(costs)
    num_members = 0
    for index in np.lexsort(costs.T[::-1]):
        point, front = costs[index], members[:num_members]
        if not np.any(np.all(front <= point, axis=1) & np.any(front < point, axis=1)):
            members[num_members] = point
            num_members += 1
            mask[index] = True
    return mask


def hypervolume(values: Values, reference: Sequence[float], directions: Sequence[Direction] | None = None) -> float:
    """Volume between the points and a reference point, the larger the better.

    Exact for any number of objectives: the volume is cut into slices along the last objective, as in
    HSO (While et al., "A faster algorithm for calculating hypervolume", IEEE TEVC 2006). Takes
    O(n log n) for two objectives; meant for fronts of some hundred points in up to four.

    Args:
        values: shape (points, objectives), finite. Points not better than the reference in every
            objective add nothing; dominated points and duplicates add nothing either.
        reference: the worst values that count, one an objective.
        directions: one an objective; None minimizes all.

    Raises:
        ValueError: a value that is not finite, wrong shape, or an unknown direction.

    >>> hypervolume([[1.0, 0.9], [2.0, 1.0]], reference=[3.0, 0.5], directions=["minimize", "maximize"])
    0.9
    """
    directions = directions or ["minimize"] * len(reference)
    costs, worst = _costs(values, directions), _costs([reference], directions)[0]
    if not (np.isfinite(costs).all() and np.isfinite(worst).all()):
        raise ValueError("hypervolume: infinite values; allowed: finite points and a finite reference")
    return _volume(costs[np.all(costs < worst, axis=1)], worst)


def _volume(costs: NDArray[np.float64], worst: NDArray[np.float64]) -> float:
    if len(costs) == 0:
        return 0.0
    if costs.shape[1] == 1:
        return float(worst[0] - costs.min())
    costs = costs[np.argsort(costs[:, -1], kind="stable")]
    depths = np.diff(np.append(costs[:, -1], worst[-1]))
    if costs.shape[1] == 2:
        return float(np.sum((worst[0] - np.minimum.accumulate(costs[:, 0])) * depths))
    return sum(
        float(depth) * _volume(costs[: count + 1, :-1], worst[:-1]) for count, depth in enumerate(depths) if depth > 0
    )


def _costs(values: Values, directions: Sequence[Direction]) -> NDArray[np.float64]:
    """The points as an array in which smaller is better."""
    for direction in directions:
        if direction not in ("minimize", "maximize"):
            raise ValueError(f"direction {direction!r}; allowed: minimize, maximize")
    costs = np.array(values, dtype=np.float64)
    if costs.size == 0:
        costs = costs.reshape(0, len(directions))
    if costs.ndim != 2 or costs.shape[1] != len(directions) or not directions:
        raise ValueError(f"values of shape {costs.shape}; allowed: (points, {len(directions)}), one column a direction")
    if np.isnan(costs).any():
        raise ValueError(f"NaN in point {int(np.isnan(costs).any(axis=1).argmax())}; leave out what has no value")
    costs *= [1.0 if direction == "minimize" else -1.0 for direction in directions]
    return costs
