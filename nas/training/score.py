"""Held-out scores and their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Z95 = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutScore:
    """Quality on examples that the training never saw.

    Attributes:
        metric: for instance `accuracy`.
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
