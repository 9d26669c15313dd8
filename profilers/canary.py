"""Small fixed workloads timed between blocks: when they slow down, so did everything else."""

from __future__ import annotations

import re
import statistics
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from profilers.measurement import CAUSE_SEPARATOR

MAX_COMPUTE_DRIFT = 0.03
MAX_BANDWIDTH_DRIFT = 0.05
"""Relative slowdown of a canary beside a block that drops the block (protocol v1, step 9)."""

MAX_SPREADS = 3.0
"""A canary that is noisy by itself may drift by so many of its own spreads. Walking 64 MiB of a shared
machine's memory it varies by 20% with nobody else there, walking 4 MiB of its cache by 0.5%."""

LASTING_S = 600.0
"""A canary that was slow for so long, in nine runs or more of which none counted, is what the device now is."""
_MOST_GAP_S = 3600.0
"""Runs further apart are no evidence that it was slow in between."""

_HISTORY = 9
_MATRIX = 160
_LEAST_WINDOW_NS = 2_000_000
_LEAST_COPIES = 5
"""The bandwidth canary runs for 2 ms, five copies at least. The best of four copies of 2 MiB (0.2 ms) was
20 to 70% off in one reading of ten on a quiet machine; the median over 2 ms in one of a hundred."""
_LEAST_FOOTPRINT, _MOST_FOOTPRINT = 4 << 20, 64 << 20

MAX_PRIVATE_SHARE = 0.75
"""A program whose code, weights and values take so much of the private cache at most is taken to live there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReading:
    """How long the two canaries took, in ms."""

    compute_ms: float
    bandwidth_ms: float

    def is_within(self, limits: CanaryReading) -> bool:
        """Whether neither canary is slower than in another reading."""
        return self.compute_ms <= limits.compute_ms and self.bandwidth_ms <= limits.bandwidth_ms


def footprint_bytes(model_bytes: int, l2_bytes: int, activation_bytes: int | None = None) -> int:
    """Memory the bandwidth canary should walk for a model: half the private cache, or a power of two from 4 to 64 MiB.

    A program that lives in its core's private cache is not reached by what others do to the shared one, so
    its canary stays in the private cache as well. (Measured on a host whose shared cache others use: with a
    canary of 4 MiB, 20 to 60% slow for most of an hour, two runs of three were refused, and their latencies
    were those of the runs that counted to 0.3%.)

    For any other at least twice the private cache, so that it leaves the core; otherwise as much as the
    model: a canary in main memory would reject a model that lives in the shared cache for a disturbance
    that cannot reach it. (Measured: a copy of 24 MiB slows by up to 300% beside a memory hog, one
    of 12 MiB in a 260 MiB shared cache by 2%.)

    Args:
        model_bytes: code and weights.
        l2_bytes: the core's private cache.
        activation_bytes: values alive at once; None: not known, and the program may be anywhere.

    >>> footprint_bytes(1_000_000, 2 << 20) >> 20, footprint_bytes(110_000_000, 2 << 20) >> 20
    (4, 64)
    >>> footprint_bytes(300_000, 1 << 20, 250_000) >> 10, footprint_bytes(300_000, 1 << 20, 700_000) >> 10
    (512, 4096)
    """
    if activation_bytes is not None and model_bytes + activation_bytes <= MAX_PRIVATE_SHARE * l2_bytes:
        return l2_bytes // 2
    wanted = max(2 * l2_bytes, model_bytes, _LEAST_FOOTPRINT)
    size = _LEAST_FOOTPRINT
    while size < wanted and size < _MOST_FOOTPRINT:
        size *= 2
    return size


class Canaries:
    """The workloads, allocated once; they run in the measuring child, on one thread."""

    def __init__(self, footprint: int) -> None:
        """`footprint`: bytes read and written by the bandwidth canary, together."""
        self._matrix = np.random.default_rng(0).standard_normal((_MATRIX, _MATRIX)).astype(np.float32)
        self._product = np.empty_like(self._matrix)
        self._source = np.ones(footprint // 2, np.uint8)
        self._copy = np.zeros_like(self._source)
        self.read()

    def read(self) -> CanaryReading:
        """Times both, about 5 ms for small footprints; robust to single interrupts."""
        compute = min(self._multiply() for _ in range(8))
        self._duplicate()  # brings back what the candidate pushed out of the caches
        start, copies = time.perf_counter_ns(), list[float]()
        while time.perf_counter_ns() - start < _LEAST_WINDOW_NS or len(copies) < _LEAST_COPIES:
            copies.append(self._duplicate())
        return CanaryReading(compute_ms=compute, bandwidth_ms=statistics.median(copies))

    def _multiply(self) -> float:
        start = time.perf_counter_ns()
        for _ in range(4):
            np.matmul(self._matrix, self._matrix, out=self._product)
        return (time.perf_counter_ns() - start) / 1e6

    def _duplicate(self) -> float:
        start = time.perf_counter_ns()
        np.copyto(self._copy, self._source)
        return (time.perf_counter_ns() - start) / 1e6


def quiet_level(readings: Sequence[CanaryReading]) -> CanaryReading:
    """What the canaries take when nothing disturbs: the median of the faster half of the readings.

    Not the minimum, which one lucky reading decides, and not the first readings, which may be the
    disturbed ones.

    >>> quiet_level([CanaryReading(compute_ms=c, bandwidth_ms=1.0) for c in (2.0, 1.0, 9.0, 1.2)]).compute_ms
    1.1
    """

    def level(values: Sequence[float]) -> float:
        ordered = sorted(values)
        return statistics.median(ordered[: (len(ordered) + 1) // 2])

    return CanaryReading(
        compute_ms=level([reading.compute_ms for reading in readings]),
        bandwidth_ms=level([reading.bandwidth_ms for reading in readings]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryBaseline:
    """What the canaries take when nothing disturbs, in ms, and the relative slowdown that is still nothing."""

    compute_ms: float
    bandwidth_ms: float
    compute_allowed: float = MAX_COMPUTE_DRIFT
    bandwidth_allowed: float = MAX_BANDWIDTH_DRIFT

    def limits(self) -> CanaryReading:
        """The slowest readings that are still nothing."""
        return CanaryReading(
            compute_ms=self.compute_ms * (1 + self.compute_allowed),
            bandwidth_ms=self.bandwidth_ms * (1 + self.bandwidth_allowed),
        )

    def to_text(self) -> str:
        """For the conditions of a measurement; `change_since` reads it.

        >>> CanaryBaseline(compute_ms=1.0, bandwidth_ms=0.5).to_text()
        'compute 1.0000, bandwidth 0.5000'
        """
        return f"compute {self.compute_ms:.4f}, bandwidth {self.bandwidth_ms:.4f}"

    def change_since(self, text: str) -> str | None:
        """How a canary has changed, for good, since a baseline was written down as text.

        Returns:
            A text for people; None where both are what they were, or nothing is known of then.

        >>> now = CanaryBaseline(compute_ms=1.0, bandwidth_ms=0.5)
        >>> now.change_since("compute 1.0200, bandwidth 0.4900") is None, now.change_since("") is None
        (True, True)
        >>> now.change_since("compute 1.1400, bandwidth 0.5000")
        'compute canary 1.0000 ms, 1.1400 ms when it was measured'
        """
        for name in ("compute", "bandwidth"):
            found = re.search(rf"{name} (\d+\.\d+)", text)
            now = float(getattr(self, f"{name}_ms"))
            then = float(found[1]) if found else now
            if max(then, now) > (1 + getattr(self, f"{name}_allowed")) * min(then, now):
                return f"{name} canary {now:.4f} ms, {then:.4f} ms when it was measured"
        return None


def worst_drift(around: Sequence[CanaryReading], baseline: CanaryBaseline) -> float:
    """The largest relative slowdown of either canary, 0 when neither is slower."""
    drifts = [reading.compute_ms / baseline.compute_ms - 1 for reading in around]
    drifts += [reading.bandwidth_ms / baseline.bandwidth_ms - 1 for reading in around]
    return max(0.0, *drifts)


def drift_cause(around: Sequence[CanaryReading], baseline: CanaryBaseline) -> str | None:
    """Why a block between these readings must be dropped: a canary was slow before or after it.

    One side is enough: what disturbs comes and goes within tenths of a second, and a block with a quiet reading on one
    side was 2 to 7% slow where one with both was right to 1%. Single readings are slow now and then for no reason;
    that costs a block. Faster is no reason. When both canaries slowed, both are named: a program that floods the
    memory often slows the compute canary as well, and which of the two is further beyond what is allowed says little
    about who disturbs.

    >>> quiet = CanaryReading(compute_ms=1.0, bandwidth_ms=1.0)
    >>> slow = CanaryReading(compute_ms=1.05, bandwidth_ms=1.0)
    >>> drift_cause([quiet, quiet], CanaryBaseline(compute_ms=1.0, bandwidth_ms=1.0)) is None
    True
    >>> drift_cause([quiet, slow], CanaryBaseline(compute_ms=1.0, bandwidth_ms=1.0))
    'compute canary 5.0% slower than its baseline, allowed 3%'
    >>> worse = CanaryReading(compute_ms=1.05, bandwidth_ms=1.4)
    >>> drift_cause([worse], CanaryBaseline(compute_ms=1.0, bandwidth_ms=1.0)).split(CAUSE_SEPARATOR)[1]
    'bandwidth canary 40.0% slower than its baseline, allowed 5%'
    """
    found = []
    for name in ("compute", "bandwidth"):
        allowed = getattr(baseline, f"{name}_allowed")
        drift = max(getattr(reading, f"{name}_ms") for reading in around) / getattr(baseline, f"{name}_ms") - 1
        if drift > allowed:
            found.append(f"{name} canary {drift:.1%} slower than its baseline, allowed {allowed:.0%}")
    return CAUSE_SEPARATOR.join(found) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryLevel:
    """The canaries in one run: quiet level in ms, and robust relative spread of single readings."""

    compute_ms: float
    bandwidth_ms: float
    compute_spread: float
    bandwidth_spread: float


def level_of(readings: Sequence[CanaryReading]) -> CanaryLevel:
    """What a run's readings say about the canaries."""
    quiet = quiet_level(readings)
    return CanaryLevel(
        compute_ms=quiet.compute_ms,
        bandwidth_ms=quiet.bandwidth_ms,
        compute_spread=_spread([reading.compute_ms for reading in readings]),
        bandwidth_spread=_spread([reading.bandwidth_ms for reading in readings]),
    )


def _spread(values: Sequence[float]) -> float:
    """Relative standard deviation by the median absolute deviation, which a disturbed minority does not move."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values) / middle


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSpell:
    """Runs in a row that were refused because a canary was slow throughout, while nobody here held the processor.

    Attributes:
        since_s, last_s: wall clock of the first and the last of them.
        levels: of the last of them, the oldest first.
    """

    since_s: float
    last_s: float
    levels: tuple[CanaryLevel, ...]


class CanaryHistory:
    """The baseline of one canary size on one device: the median level of the last nine runs that counted.

    A run is compared with the runs before it, so that a disturbance that lasts through all of a
    run is seen as well. Runs that were refused do not move the baseline: a host that clocked 10 to 15%
    lower for five minutes was taken for the device after 20 seconds when they did, and 16 latencies that
    were as much too long counted. A change that lasts (a laptop that has become warm) is the new baseline
    after `LASTING_S` in which no run counted, instead of stopping a search for good.
    """

    def __init__(self, levels: Iterable[CanaryLevel] = (), spell: SlowSpell | None = None) -> None:
        """`levels`: of earlier runs, the oldest first; `spell`: how it stands now; both as an enrolment keeps them."""
        self._levels: deque[CanaryLevel] = deque(levels, maxlen=_HISTORY)
        self._spell = spell

    @property
    def levels(self) -> tuple[CanaryLevel, ...]:
        """Of the last runs that counted, the oldest first."""
        return tuple(self._levels)

    @property
    def spell(self) -> SlowSpell | None:
        """The refused runs since the last one that counted."""
        return self._spell

    def baseline(self, readings: Sequence[CanaryReading]) -> CanaryBaseline:
        """The baseline to hold a run's readings against; the run's own level where nothing is known."""
        return self.known_baseline() or _baseline([level_of(readings)])

    def known_baseline(self) -> CanaryBaseline | None:
        """What the canaries take here; None before the first run that counted."""
        return _baseline(self._levels) if self._levels else None

    def count(self, readings: Sequence[CanaryReading]) -> None:
        """Remembers a run that counts."""
        self._levels.append(level_of(readings))
        self._spell = None

    def refuse(self, readings: Sequence[CanaryReading], at_s: float) -> None:
        """Remembers a run that a canary refused.

        Args:
            readings: of the run.
            at_s: wall clock; kept from run to run, also of other processes.
        """
        level, spell = level_of(readings), self._spell
        if spell is None or not 0 <= at_s - spell.last_s <= _MOST_GAP_S:
            spell = SlowSpell(since_s=at_s, last_s=at_s, levels=())
        levels = (*spell.levels, level)[-_HISTORY:]
        self._spell = SlowSpell(since_s=spell.since_s, last_s=at_s, levels=levels)
        if at_s - spell.since_s >= LASTING_S and len(levels) == _HISTORY:
            self._levels.extend(levels)
            self._spell = None


def _baseline(known: Iterable[CanaryLevel]) -> CanaryBaseline:
    levels = list(known)
    compute_spread = statistics.median(each.compute_spread for each in levels)
    bandwidth_spread = statistics.median(each.bandwidth_spread for each in levels)
    return CanaryBaseline(
        compute_ms=statistics.median(each.compute_ms for each in levels),
        bandwidth_ms=statistics.median(each.bandwidth_ms for each in levels),
        compute_allowed=max(MAX_COMPUTE_DRIFT, MAX_SPREADS * compute_spread),
        bandwidth_allowed=max(MAX_BANDWIDTH_DRIFT, MAX_SPREADS * bandwidth_spread),
    )
