"""From raw blocks to a latency with an interval: pure functions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from profilers.intervals import Floats, half_width
from profilers.measurement import CAUSE_SEPARATOR, Block
from profilers.noise import UNKNOWN_NOISE, Noise

MAX_STARVED_SHARE = 0.2
"""A run in which more of the blocks were kept from their processors is rejected (protocol v1, step 8)."""

MAX_DROPPED_SHARE = 0.75
"""A run that lost more of its blocks to slow canaries is rejected. On a host that clocked 5 to 15% lower half of the
time, the blocks that counted of runs that lost up to three quarters were right to 1.5%; with nine in ten lost, one
run of two was 7% slow."""


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


def reject_for_drops(blocks: Sequence[Block], allowed: float = MAX_DROPPED_SHARE) -> str | None:
    """Why a run with these blocks must be rejected: more than a share of them dropped, or too few left."""
    causes = [block.dropped_because for block in blocks if block.dropped_because is not None]
    if len(causes) > allowed * len(blocks):
        return (
            f"{len(causes)} of {len(blocks)} blocks were disturbed (most often: {common_causes(causes)}), allowed:"
            f" {allowed:.0%}; free the device of other work"
        )
    if len(blocks) - len(causes) < 2:
        return f"{len(blocks) - len(causes)} block left, an interval needs at least 2"
    return None


def reject_for_starvation(blocks: Sequence[Block]) -> str | None:
    """The same for blocks of which only those are marked that were kept from their processors."""
    return reject_for_drops(blocks, MAX_STARVED_SHARE)


def common_causes(causes: Sequence[str]) -> str:
    """What disturbed at least half of the blocks, or the commonest cause; causes that differ only in numbers are one.

    Args:
        causes: of each dropped block, several joined by `CAUSE_SEPARATOR`.

    >>> common_causes(["compute canary 4% slower", "CPU over wall 0.9", "CPU over wall 0.8"])
    'CPU over wall 0.9'
    >>> common_causes(["compute canary 4% slower and bandwidth canary 9% slower", "bandwidth canary 8% slower"])
    'bandwidth canary 9% slower and compute canary 4% slower'
    """
    parts = [part for cause in causes for part in cause.split(CAUSE_SEPARATOR)]
    kinds = Counter(re.sub(r"[\d.]+", "", part) for part in parts)
    first = {kind: next(part for part in parts if re.sub(r"[\d.]+", "", part) == kind) for kind in kinds}
    ordered = [kind for kind, _ in kinds.most_common()]
    return CAUSE_SEPARATOR.join(first[kind] for kind in ordered if kind == ordered[0] or 2 * kinds[kind] >= len(causes))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a set of blocks says, in ms; see `Measurement` for the meaning."""

    latency_ms: float
    lower_ms: float
    upper_ms: float
    p90_ms: float
    best_ms: float


def summarise(blocks: Sequence[Block], *, noise: Noise = UNKNOWN_NOISE) -> Summary:
    """Median of block medians with its 95% interval, 90th percentile and minimum of single runs.

    The interval is about the median of later runs on this device; no narrower than its noise floor.
    Blocks that were dropped do not count; with fewer than two that do there is no interval and a
    `ValueError`. When every block was dropped, use `reject_for_drops` first.
    """
    groups = medians_by_process(blocks)
    if sum(map(len, groups)) < 2:
        raise ValueError("fewer than 2 blocks count; no interval")
    latency = float(np.median(np.concatenate(groups)))
    half = max(half_width([np.log(group) for group in groups], noise, with_drift=True), noise.floor or 0.0)
    runs = np.concatenate([block.latencies_ms for block in blocks if block.dropped_because is None])
    return Summary(
        latency_ms=latency,
        lower_ms=latency * math.exp(-half),
        upper_ms=latency * math.exp(half),
        p90_ms=float(np.quantile(runs, 0.9)),
        best_ms=float(runs.min()),
    )


def needs_more(blocks: Sequence[Block], target: float, *, noise: Noise = UNKNOWN_NOISE) -> bool:
    """Whether more processes would narrow the interval, and it is not yet within `target` on each side.

    Drift between times is not counted: no number of processes now reduces it.
    """
    groups = [np.log(group) for group in medians_by_process(blocks)]
    return half_width(groups, noise, with_drift=False) > target


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


def compare(first: Sequence[Block], second: Sequence[Block], *, noise: Noise = UNKNOWN_NOISE) -> Comparison:
    """Compares two programs that were measured interleaved, pairing their blocks round by round.

    Args:
        first: blocks of one program; process k ran next to process k of the other.
        second: blocks of the other.
        noise: of the device; no gap within its floor counts.

    Raises:
        ValueError: fewer than two pairs of blocks count in both.
    """
    rounds = paired_log_ratios(first, second)
    if sum(map(len, rounds)) < 2:
        raise ValueError("fewer than 2 pairs of blocks count in both programs; measure them interleaved")
    centre = float(np.mean([np.median(logs) for logs in rounds]))
    # Either program varies between processes, so their ratio varies by more.
    both = replace(noise, least_spread=noise.least_spread * math.sqrt(2))
    half = half_width(rounds, both, with_drift=False)
    ratio, lower, upper = math.exp(centre), math.exp(centre - half), math.exp(centre + half)
    verdict: Literal["faster", "slower", "tied"] = "tied"
    if not lower <= 1 <= upper and abs(ratio - 1) > noise.floor_or_default:
        verdict = "faster" if ratio < 1 else "slower"
    return Comparison(ratio=ratio, lower=lower, upper=upper, verdict=verdict)


def paired_log_ratios(first: Sequence[Block], second: Sequence[Block]) -> list[Floats]:
    """Logarithms of the ratios of block medians that were timed side by side, one array a round."""
    rounds = []
    for process in sorted({block.process for block in first} & {block.process for block in second}):
        kept = [
            [block for block in blocks if block.process == process and block.dropped_because is None]
            for blocks in (first, second)
        ]
        logs = [
            math.log(float(np.median(a.latencies_ms)) / float(np.median(b.latencies_ms)))
            for a, b in zip(*kept, strict=False)  # one lost more blocks than the other
        ]
        if logs:
            rounds.append(np.asarray(logs))
    return rounds
