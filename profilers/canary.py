"""Small fixed workloads timed between blocks: when they slow down, so did everything else."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MAX_COMPUTE_DRIFT = 0.03
MAX_BANDWIDTH_DRIFT = 0.05
"""Relative slowdown of a canary beside a block that drops the block (protocol v1, step 9)."""

_HISTORY = 9
_MATRIX = 160
_LEAST_FOOTPRINT, _MOST_FOOTPRINT = 4 << 20, 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReading:
    """How long the two canaries took, in ms."""

    compute_ms: float
    bandwidth_ms: float


def footprint_bytes(model_bytes: int, l2_bytes: int) -> int:
    """Memory the bandwidth canary should walk for a model, a power of two from 4 to 64 MiB.

    At least twice the private cache, so that it leaves the core; otherwise as much as the model:
    a canary in main memory would reject a model that lives in the shared cache for a disturbance
    that cannot reach it. (Measured: a copy of 24 MiB slows by up to 300% beside a memory hog, one
    of 12 MiB in a 260 MiB shared cache by 2%.)

    >>> footprint_bytes(1_000_000, 2 << 20) >> 20, footprint_bytes(110_000_000, 2 << 20) >> 20
    (4, 64)
    """
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
        """Times both, about 3 ms for small footprints; the best of a few, so that one interrupt is not drift."""
        compute = min(self._multiply() for _ in range(8))
        self._duplicate()  # brings back what the candidate pushed out of the caches
        bandwidth = min(self._duplicate() for _ in range(4))
        return CanaryReading(compute_ms=compute, bandwidth_ms=bandwidth)

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


def worst_drift(around: Sequence[CanaryReading], baseline: CanaryReading) -> float:
    """The largest relative slowdown of either canary, 0 when neither is slower."""
    drifts = [reading.compute_ms / baseline.compute_ms - 1 for reading in around]
    drifts += [reading.bandwidth_ms / baseline.bandwidth_ms - 1 for reading in around]
    return max(0.0, *drifts)


def drift_cause(around: Sequence[CanaryReading], baseline: CanaryReading) -> str | None:
    """Why a block between these readings must be dropped; faster than the baseline is no reason.

    >>> quiet = CanaryReading(compute_ms=1.0, bandwidth_ms=1.0)
    >>> drift_cause([quiet, CanaryReading(compute_ms=1.05, bandwidth_ms=1.0)], quiet)
    'compute canary 5.0% slower than its baseline, allowed 3%'
    """
    for name, allowed in (("compute", MAX_COMPUTE_DRIFT), ("bandwidth", MAX_BANDWIDTH_DRIFT)):
        quiet = getattr(baseline, f"{name}_ms")
        slowest = max(getattr(reading, f"{name}_ms") for reading in around)
        if slowest > (1 + allowed) * quiet:
            return f"{name} canary {slowest / quiet - 1:.1%} slower than its baseline, allowed {allowed:.0%}"
    return None


class CanaryHistory:
    """The baseline of one canary size on one device: the median level of the last nine runs.

    A run is compared with the runs before it, so that a disturbance that lasts through all of a
    run is seen as well. Rejected runs enter too: a lasting change (a laptop that has become warm)
    is refused for a few runs and then is the new baseline, instead of stopping a search for good.
    """

    def __init__(self) -> None:
        self._levels: deque[CanaryReading] = deque(maxlen=_HISTORY)

    def baseline(self, readings: Sequence[CanaryReading]) -> CanaryReading:
        """The baseline to hold a run's readings against; then remembers the run's own level."""
        level = quiet_level(readings)
        known = list(self._levels) or [level]
        self._levels.append(level)
        return CanaryReading(
            compute_ms=statistics.median(reading.compute_ms for reading in known),
            bandwidth_ms=statistics.median(reading.bandwidth_ms for reading in known),
        )
