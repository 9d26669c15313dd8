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
        metric: `accuracy`, `bits_per_byte`, or `answer_accuracy` (share of questions whose whole answer is right).
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
    return _wilson(num_right / num_examples, num_examples)


def _wilson(share: float, count: float) -> tuple[float, float]:
    z2 = Z95 * Z95
    centre = share + z2 / (2 * count)
    spread = Z95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    scale = 1 + z2 / count
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


def clustered_share_interval(grades: NDArray[Any], groups: NDArray[Any] | None) -> tuple[float, float]:
    """The 95% interval of the share of ones among `grades` when examples of one group are right or wrong together.

    Wilson's interval with the effective number of examples in the place of their number (Korn and Graubard 1998,
    "Confidence intervals for proportions with small expected number of positive counts estimated from survey data";
    Kish 1965 on the design effect): so many independent examples have the variance that the groups show. It stays
    within [0, 1] and has width at 0 and 1, where the variance says nothing and each group counts as one example.

    Args:
        grades: 0 or 1 of each example.
        groups: cluster of each example; None takes each for a cluster of its own.

    >>> import numpy as np
    >>> grades = np.array([1.0] * 60 + [0.0] * 40)
    >>> [round(end, 3) for end in clustered_share_interval(grades, None)] == [
    ...     round(end, 3) for end in wilson_interval(60, 100)
    ... ]
    True
    >>> [round(end, 2) for end in clustered_share_interval(grades, np.arange(100) // 10)]
    [0.3, 0.84]
    """
    import numpy as np

    count = len(grades)
    if groups is None:
        return wilson_interval(int(grades.sum()), count)
    _, cluster = np.unique(groups, return_inverse=True)
    right, sizes = np.bincount(cluster, weights=grades), np.bincount(cluster)
    share, num_clusters = float(grades.mean()), len(sizes)
    if num_clusters < 2 or share in (0.0, 1.0):
        return _wilson(share, num_clusters)
    scale = num_clusters / (num_clusters - 1)
    variance = scale * float(((right - share * sizes) ** 2).sum()) / count**2
    effective = count if variance == 0 else min(count, share * (1 - share) / variance)
    return _wilson(share, effective)
