"""95% intervals of a latency from few blocks in few processes: the one in use, and those it replaced.

The blocks of a process resemble each other, and neighbouring processes resemble each other more than
processes minutes apart. An interval that takes blocks for independent covers the median of later runs
half as often as it says; so does one that draws processes anew when there are only two or three.
`nas bench measurement` counts how often each covers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from profilers.noise import Noise

NUM_RESAMPLES = 2000

# 97.5% quantiles of Student's t for 1 to 10 degrees of freedom (Abramowitz and Stegun, table 26.10).
_T975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
_Z975 = 1.959963984540054
_Z80 = 1.2815515655446004
"""80% of a normal distribution lie within so many standard deviations of its middle."""

Floats = npt.NDArray[np.float64]


def t_quantile_975(degrees: float) -> float:
    """The 97.5% quantile of Student's t: the table, then the expansion A&S 26.7.5 (error < 1e-4).

    >>> round(t_quantile_975(2), 3), round(t_quantile_975(30), 3)
    (4.303, 2.042)
    """
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom; needs at least 1")
    if degrees <= len(_T975):
        return _T975[int(degrees) - 1]
    z, n = _Z975, float(degrees)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4


def half_width(log_groups: Sequence[Floats], noise: Noise, *, with_drift: bool) -> float:
    """Half of the 95% interval of a mean of process medians, from logarithms, one array a process.

    The variance between processes is a weighted mean of what these few show and what the device
    leads one to expect (a moderated t, Smyth 2004, equation 2), so that two processes which happen
    to agree do not make a certainty. Drift is added for statements about other times; in a paired
    comparison both sides share it.

    Args:
        log_groups: logarithms of block medians, or of the ratios of paired ones.
        noise: of the device.
        with_drift: whether later runs are meant as well, and not only this one.

    >>> quiet = [np.log([1.0, 1.001, 0.999]), np.log([1.0, 1.0, 1.002])]
    >>> half_width(quiet, Noise(), with_drift=False) < half_width(quiet, Noise(), with_drift=True) < 0.01
    True
    """
    num_groups = len(log_groups)
    within = _within(log_groups)
    centres = np.asarray([float(np.median(group)) for group in log_groups])
    seen = float(centres.var(ddof=1)) if num_groups > 1 else 0.0
    expected = max(noise.least_spread, noise.spread_ratio * within) ** 2
    degrees = noise.degrees + num_groups - 1
    between = (noise.degrees * expected + (num_groups - 1) * seen) / degrees
    drift = noise.drift_ratio * within if with_drift else 0.0
    return t_quantile_975(degrees) * math.sqrt(between / num_groups + drift**2)


def _within(groups: Sequence[Floats]) -> float:
    """Standard deviation of the values of a group about its median, over all groups.

    By the 80th percentile of the deviations, 1.28 standard deviations of a normal distribution: one
    block of twelve that was hit by something must not decide, and single ones are. Groups of n have
    n-1 free deviations.
    """
    deviations = np.concatenate([np.abs(group - np.median(group)) for group in groups])
    if len(deviations) <= len(groups):
        return 0.0
    free = len(deviations) / (len(deviations) - len(groups))
    return float(np.quantile(deviations, 0.8)) / _Z80 * math.sqrt(free)


def t_interval(groups: Sequence[Floats]) -> tuple[float, float]:
    """Student's 95% interval of the mean of all values, taken for independent. Not in use: too narrow.

    The standard error is the larger of the pooled one and the one between group means.

    >>> tuple(round(edge, 3) for edge in t_interval([np.array([1.0, 2.0, 3.0])]))
    (-0.484, 4.484)
    """
    values = np.concatenate(list(groups))
    if len(values) < 2:
        raise ValueError(f"{len(values)} values; an interval needs at least 2")
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    if len(groups) > 1:
        means = np.asarray([group.mean() for group in groups])
        error = max(error, float(means.std(ddof=1)) / math.sqrt(len(groups)))
    half = t_quantile_975(len(values) - 1) * error
    return float(values.mean()) - half, float(values.mean()) + half


def process_t_interval(groups: Sequence[Floats]) -> tuple[float, float]:
    """Student's 95% interval over process medians alone. Not in use: wide for two, and blind to drift.

    >>> tuple(round(edge, 2) for edge in process_t_interval([np.array([1.0]), np.array([1.2])]))
    (-0.17, 2.37)
    """
    medians = np.asarray([float(np.median(group)) for group in groups])
    half = t_quantile_975(len(medians) - 1) * float(medians.std(ddof=1)) / math.sqrt(len(medians))
    centre = float(medians.mean())
    return centre - half, centre + half


def bootstrap_interval(groups: Sequence[Floats], *, seed: int) -> tuple[float, float]:
    """The 95% percentile interval of the median of all values: draws groups, then values in each.

    Not in use: with two to six processes it covers half as often as it says. Each draw takes as many
    groups as there are, and as many values of each as groups hold on average. Drawing G groups
    understates the variance between them by (G-1)/G (Davison and Hinkley 1997, section 3.8); the
    interval is stretched about the median to make up for it.
    """
    random = np.random.default_rng(seed)
    sizes = np.asarray([len(group) for group in groups])
    padded = np.zeros((len(groups), sizes.max()))
    for row, group in zip(padded, groups, strict=True):
        row[: len(group)] = group
    num_values = round(float(sizes.mean()))
    drawn = random.integers(0, len(groups), size=(NUM_RESAMPLES, len(groups)))
    place = random.random((NUM_RESAMPLES, len(groups), num_values)) * sizes[drawn][..., None]
    values = padded[drawn[..., None], place.astype(np.int64)]
    medians = np.median(values.reshape(NUM_RESAMPLES, -1), axis=1)
    lower, upper = (float(edge) for edge in np.quantile(medians, [0.025, 0.975]))
    centre = float(np.median(np.concatenate(list(groups))))
    stretch = math.sqrt(len(groups) / (len(groups) - 1)) if len(groups) > 1 else 1.0
    return centre - stretch * (centre - lower), centre + stretch * (upper - centre)
