"""From raw blocks to a latency with an interval: pure functions, seeded where they draw."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from profilers.measurement import Block

MIN_BLOCKS_TO_BOOTSTRAP = 20
"""Below this many blocks the interval is Student's (shared measuring protocol v1, step 6)."""

MAX_DROPPED_SHARE = 0.2
"""A run that lost more of its blocks is rejected (protocol v1, step 8)."""

NUM_RESAMPLES = 2000

DEFAULT_NOISE_FLOOR = 0.01
"""Relative gap below which no difference counts on a device that was not enrolled (protocol v1, step
10: the largest floor that an A/A gate lets pass)."""

# 97.5% quantiles of Student's t for 1 to 10 degrees of freedom (Abramowitz and Stegun, table 26.10).
_T975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
_Z975 = 1.959963984540054

Floats = npt.NDArray[np.float64]


def t_quantile_975(degrees: int) -> float:
    """The 97.5% quantile of Student's t: the table, then the expansion A&S 26.7.5 (error < 1e-4).

    >>> round(t_quantile_975(2), 3), round(t_quantile_975(30), 3)
    (4.303, 2.042)
    """
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom; needs at least 1")
    if degrees <= len(_T975):
        return _T975[degrees - 1]
    z, n = _Z975, float(degrees)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4


def drop_disturbed(blocks: Sequence[Block], min_cpu_over_wall: float) -> tuple[Block, ...]:
    """The same blocks; one whose threads were kept from their processors is marked with the cause.

    A block that was dropped already keeps its first cause.
    """
    marked = []
    for block in blocks:
        if block.dropped_because is None and not block.cpu_over_wall >= min_cpu_over_wall:
            cause = f"CPU over wall {block.cpu_over_wall:.3f}, needs {min_cpu_over_wall:g}"
            block = replace(block, dropped_because=cause)
        marked.append(block)
    return tuple(marked)


def reject_for_drops(blocks: Sequence[Block]) -> str | None:
    """Why a run with these blocks must be rejected: too many dropped, or too few left for an interval."""
    causes = [block.dropped_because for block in blocks if block.dropped_because is not None]
    if len(causes) > MAX_DROPPED_SHARE * len(blocks):
        return (
            f"{len(causes)} of {len(blocks)} blocks were disturbed (most often: {commonest_cause(causes)}), allowed:"
            f" {MAX_DROPPED_SHARE:.0%}; free the device of other work"
        )
    if len(blocks) - len(causes) < 2:
        return f"{len(blocks) - len(causes)} block left, an interval needs at least 2"
    return None


def commonest_cause(causes: Sequence[str]) -> str:
    """The first of the commonest kind; causes that differ only in their numbers are of one kind.

    >>> commonest_cause(["compute canary 4% slower", "CPU over wall 0.9", "CPU over wall 0.8"])
    'CPU over wall 0.9'
    """
    kinds = [re.sub(r"[\d.]+", "", cause) for cause in causes]
    return causes[kinds.index(Counter(kinds).most_common(1)[0][0])]


def medians_by_process(blocks: Sequence[Block]) -> list[Floats]:
    """Medians of the blocks that count, in ms, one array for each process that has any.

    >>> blocks = [Block(process=0, latencies_ms=(1.0, 5.0, 2.0), cpu_over_wall=1.0)]
    >>> medians_by_process(blocks)
    [array([2.])]
    """
    medians: dict[int, list[float]] = {}
    for block in blocks:
        if block.dropped_because is None:
            medians.setdefault(block.process, []).append(float(np.median(block.latencies_ms)))
    return [np.asarray(medians[process]) for process in sorted(medians)]


def t_interval(groups: Sequence[Floats]) -> tuple[float, float]:
    """Student's 95% interval of the mean of all values, given in groups that may differ.

    The standard error is the larger of the pooled one and the one between group means: blocks of
    one process resemble each other, and treating them as independent is too sure of itself.

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


def bootstrap_interval(groups: Sequence[Floats], *, seed: int) -> tuple[float, float]:
    """The 95% percentile interval of the median of all values: draws groups, then values in each.

    Each draw takes as many groups as there are, and as many values of each as groups hold on
    average. Drawing G groups understates the variance between them by (G-1)/G (Davison and Hinkley
    1997, section 3.8); the interval is stretched about the median to make up for it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a set of blocks says, in ms; see `Measurement` for the meaning."""

    latency_ms: float
    lower_ms: float
    upper_ms: float
    p90_ms: float
    best_ms: float


def summarise(blocks: Sequence[Block], *, seed: int) -> Summary:
    """Median of block medians with its 95% interval, 90th percentile and minimum of single runs.

    Blocks that were dropped do not count; with fewer than two that do there is no interval and a
    `ValueError`. When every block was dropped, use `reject_for_drops` first.
    """
    groups = medians_by_process(blocks)
    if sum(map(len, groups)) < 2:
        raise ValueError("fewer than 2 blocks count; no interval")
    latency = float(np.median(np.concatenate(groups)))
    if sum(map(len, groups)) < MIN_BLOCKS_TO_BOOTSTRAP:
        lower, upper = t_interval(groups)
    else:
        lower, upper = bootstrap_interval(groups, seed=seed)
    runs = np.concatenate([block.latencies_ms for block in blocks if block.dropped_because is None])
    return Summary(
        latency_ms=latency,
        # Two wild blocks can push Student's bound below zero, which no duration is.
        lower_ms=max(min(lower, latency), latency * 1e-3),
        upper_ms=max(upper, latency),
        p90_ms=float(np.quantile(runs, 0.9)),
        best_ms=float(runs.min()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Latency of a first program over that of a second, with its 95% interval.

    Attributes:
        ratio, lower, upper: below 1 the first is faster.
        verdict: `tied` unless the interval excludes 1 and the gap exceeds the noise floor.
    """

    ratio: float
    lower: float
    upper: float
    verdict: Literal["faster", "slower", "tied"]


def compare(first: Sequence[Block], second: Sequence[Block], *, noise_floor: float) -> Comparison:
    """Compares two programs that were measured interleaved, pairing their blocks round by round.

    Args:
        first: blocks of one program; process k ran next to process k of the other.
        second: blocks of the other.
        noise_floor: relative gap below which no difference counts: the device's A/A gap.

    Raises:
        ValueError: fewer than two pairs of blocks count in both.
    """
    rounds = []
    for process in sorted({block.process for block in first} & {block.process for block in second}):
        pairs = zip(
            [block for block in first if block.process == process],
            [block for block in second if block.process == process],
            strict=False,  # a dropped tail in one leaves its partners unpaired
        )
        logs = [
            math.log(float(np.median(a.latencies_ms)) / float(np.median(b.latencies_ms)))
            for a, b in pairs
            if a.dropped_because is None and b.dropped_because is None
        ]
        if logs:
            rounds.append(np.asarray(logs))
    if sum(map(len, rounds)) < 2:
        raise ValueError("fewer than 2 pairs of blocks count in both programs; measure them interleaved")
    lower, upper = (math.exp(edge) for edge in t_interval(rounds))
    ratio = math.exp(float(np.concatenate(rounds).mean()))
    verdict: Literal["faster", "slower", "tied"] = "tied"
    if not lower <= 1 <= upper and abs(ratio - 1) > noise_floor:
        verdict = "faster" if ratio < 1 else "slower"
    return Comparison(ratio=ratio, lower=lower, upper=upper, verdict=verdict)
