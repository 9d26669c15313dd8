"""Held-out scores and their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from numpy.typing import NDArray

Z95 = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""


LOWER_IS_BETTER = frozenset({"bits_per_byte"})
"""Metrics of which less is better; of all others more is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutScore:
    """Quality on examples that the training never saw.

    Attributes:
        metric: `accuracy`, or `bits_per_byte`.
        split: `val` steers the search; `test` is opened once, at the end.
        value, lower, upper: the score with its 95% interval, in the metric's own unit.
        num_examples: examples behind the value.
        seeds: training seeds behind the value.
        slices: (name, value) by class or domain.
    """

    metric: str
    split: Literal["val", "test"]
    value: float
    lower: float
    upper: float
    num_examples: int
    seeds: tuple[int, ...]
    slices: tuple[tuple[str, float], ...] = ()


def wilson_interval(num_right: int, num_examples: int) -> tuple[float, float]:
    """The 95% interval of a proportion (Wilson 1927, equation for the score interval).

    Unlike the normal approximation it stays within [0, 1] and has width at 0 and 1.

    >>> low, high = wilson_interval(90, 100)
    >>> round(low, 3), round(high, 3)
    (0.826, 0.945)
    """
    if not 0 <= num_right <= num_examples or num_examples < 1:
        raise ValueError(f"{num_right} right of {num_examples}: needs 0 <= right <= examples, and at least one example")
    share, z2 = num_right / num_examples, Z95 * Z95
    centre = share + z2 / (2 * num_examples)
    spread = Z95 * math.sqrt(share * (1 - share) / num_examples + z2 / (4 * num_examples**2))
    scale = 1 + z2 / num_examples
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def ratio_interval(totals: NDArray[Any], sizes: NDArray[Any], groups: NDArray[Any] | None) -> tuple[float, float]:
    """The 95% interval of `sum(totals) / sum(sizes)` when examples of one group are correlated.

    The variance of a ratio R over m clusters with totals y and sizes x, to first order (Cochran 1977, "Sampling
    Techniques", third edition, section 6.3 with clusters as the units; in econometrics the sandwich estimator
    with clusters, Liang and Zeger 1986): m / (m - 1) * sum((y - R x)^2) / sum(x)^2; times Student's t with m - 1
    degrees of freedom. Examples that agree within a file then count as little as they tell.

    Args:
        totals, sizes: of each example, for instance bits and bytes.
        groups: cluster of each example; None, or one cluster in all, takes each example for a cluster of its own.

    Returns:
        Lower and upper end; of a single example the value itself, twice: nothing is known of its spread.

    >>> import numpy as np
    >>> totals, sizes = np.array([2.0, 2.0, 4.0, 4.0]), np.array([1, 1, 1, 1])
    >>> [round(end, 2) for end in ratio_interval(totals, sizes, None)]
    [1.16, 4.84]
    >>> [round(end, 2) for end in ratio_interval(totals, sizes, np.array([7, 7, 9, 9]))]
    [-9.71, 15.71]
    """
    import numpy as np
    from scipy.stats import t

    names = np.arange(len(totals)) if groups is None or (groups == groups[0]).all() else groups
    _, cluster = np.unique(names, return_inverse=True)
    y, x = np.bincount(cluster, weights=totals), np.bincount(cluster, weights=sizes)
    ratio, count = float(y.sum() / x.sum()), len(y)
    if count < 2:
        return ratio, ratio
    variance = count / (count - 1) * float(((y - ratio * x) ** 2).sum()) / float(x.sum()) ** 2
    margin = float(t.ppf(0.975, count - 1)) * math.sqrt(variance)
    return ratio - margin, ratio + margin
