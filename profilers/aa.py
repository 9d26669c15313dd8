"""The A/A gate: a program compared with itself, to see how often a difference is found that is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profilers.artifact import Artifact
from profilers.enrolment import AaResult, Enrolment, now
from profilers.errors import ProfileFailure
from profilers.local import LocalProfiler
from profilers.looks import combine
from profilers.measurement import Measurement, MeasureProtocol
from profilers.noise import UNKNOWN_NOISE, Noise
from profilers.statistics import Comparison, compare, medians_by_process

PAIR = MeasureProtocol(num_processes=3, blocks_per_process=3, max_blocks_per_process=3, half_width=0.01)
"""One look at two programs: three rounds."""

MAX_LOOKS = 3
PAIR_HALF_WIDTH = 0.012
"""Another look while the interval of the ratio is wider, whatever it says: to look until a difference
shows would find one that is not there."""

GATE_PAIRS = 40
MAX_FALSE_ALARM_SHARE = 0.1
MAX_GAP = 0.01
"""A device passes with at most 4 false alarms in 40 pairs and a 95th percentile gap of at most 1% (protocol
v1, step 10)."""

LEAST_PAIRS_TO_STORE = 20
"""A 95th percentile of fewer is the largest of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two artifacts measured in turn.

    Attributes:
        first, second: the measurements; None when one failed.
        comparison: None when either must not be used.
        rejected_because: why.
    """

    first: Measurement | None
    second: Measurement | None
    comparison: Comparison | None
    rejected_because: str | None

    @property
    def gap(self) -> float | None:
        """Relative gap between the two."""
        return None if self.comparison is None else abs(self.comparison.ratio - 1)

    @property
    def excludes_one(self) -> bool:
        """Whether the interval of the ratio excludes 1, no floor applied."""
        return self.comparison is not None and not self.comparison.lower <= 1 <= self.comparison.upper


def measure_pair(
    profiler: LocalProfiler, first: Artifact, second: Artifact, *, protocol: MeasureProtocol = PAIR, noise: Noise
) -> Pair:
    """Measures two artifacts in turn and compares them; at most three looks, until the ratio is known to 1.2%."""
    looks: list[tuple[Measurement, Measurement]] = []
    while True:
        seen = profiler.measure_interleaved([first, second], protocol)
        for each in seen:
            if isinstance(each, ProfileFailure):
                return Pair(first=None, second=None, comparison=None, rejected_because=f"{each.kind}: {each.reason}")
        one, other = (each for each in seen if isinstance(each, Measurement))
        if (reason := one.rejected_because or other.rejected_because) is not None:
            return Pair(first=one, second=other, comparison=None, rejected_because=reason)
        looks.append((one, other))
        pooled = combine([look[0] for look in looks]), combine([look[1] for look in looks])
        comparison = compare(pooled[0].blocks, pooled[1].blocks, noise=noise)
        if (comparison.upper - comparison.lower) / 2 <= PAIR_HALF_WIDTH or len(looks) == MAX_LOOKS:
            return Pair(first=pooled[0], second=pooled[1], comparison=comparison, rejected_because=None)


def run_aa(
    profiler: LocalProfiler,
    artifact: Artifact,
    num_pairs: int,
    *,
    protocol: MeasureProtocol = PAIR,
    noise: Noise = UNKNOWN_NOISE,
    on_pair: Callable[[int, int], None] = lambda done, total: None,
) -> list[Pair]:
    """Compares an artifact with itself `num_pairs` times."""
    pairs = []
    for number in range(num_pairs):
        on_pair(number, num_pairs)
        pairs.append(measure_pair(profiler, artifact, artifact, protocol=protocol, noise=noise))
    return pairs


def aa_result(pairs: Sequence[Pair]) -> AaResult:
    """What the pairs say.

    Raises:
        ValueError: every pair was rejected.
    """
    gaps = [pair.gap for pair in pairs if pair.gap is not None]
    if not gaps:
        raise ValueError("every pair was rejected; nothing is known")
    return AaResult(
        num_pairs=len(gaps),
        num_rejected=len(pairs) - len(gaps),
        num_false_alarms=sum(pair.excludes_one for pair in pairs),
        gap95=float(np.quantile(gaps, 0.95)),
        at=now(),
    )


def passes(result: AaResult) -> bool:
    """Whether a device may be measured on."""
    return result.num_false_alarms <= MAX_FALSE_ALARM_SHARE * result.num_pairs and result.gap95 <= MAX_GAP


def enrolled(enrolment: Enrolment, pairs: Sequence[Pair]) -> Enrolment:
    """The enrolment with what an A/A gate found: the floor, and how far processes are apart."""
    result = aa_result(pairs)
    noise = replace(enrolment.noise, floor=result.gap95, least_spread=process_spread(pairs))
    return replace(enrolment, noise=noise, aa=result)


def process_spread(pairs: Sequence[Pair]) -> float:
    """Relative standard deviation between the process medians of a run, pooled over the runs that count.

    Raises:
        ValueError: no run counts.
    """
    squares, degrees = 0.0, 0
    for pair in pairs:
        if pair.comparison is None:
            continue
        for each in (pair.first, pair.second):
            assert each is not None
            logs = np.log([float(np.median(group)) for group in medians_by_process(each.blocks)])
            squares += float(((logs - logs.mean()) ** 2).sum())
            degrees += len(logs) - 1
    if degrees == 0:
        raise ValueError("no run counts; nothing is known")
    return float(np.sqrt(squares / degrees))
