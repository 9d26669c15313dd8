"""What a device can do at best: arithmetic and memory traffic per second, and how near a kernel comes.

Roofline: Williams, Waterman and Patterson 2009. A kernel cannot take less time than its operations
at the peak rate, nor less than its bytes at the bandwidth of the memory they fit into.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from profilers.device import DeviceSpec
from profilers.errors import ProfileFailure
from profilers.sandbox import Limits, run_child, thread_environment

Bound = Literal["operations", "bytes"]

FOOTPRINTS_BYTES = tuple(1 << power for power in range(15, 28, 2))
"""32 KiB to 128 MiB in steps of four: from a first-level cache to main memory."""

_MATRICES = (192, 320, 512)
"""Sides of the products that the peak rate is the best of: small enough for a private cache."""
_REPEATS = 7
_LEAST_NS = 4_000_000
_LIMITS = Limits(wall_s=60.0, cpu_s=240.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeaks:
    """The best rates seen on a device.

    Attributes:
        flops_per_s: floating-point operations per second of single-precision matrix products.
        bandwidths: (footprint in bytes, bytes per second), smallest footprint first: the best of reading
            two arrays and of copying one onto another, which together have that size.
    """

    flops_per_s: float
    bandwidths: tuple[tuple[int, float], ...]

    def bandwidth(self, num_bytes: float) -> float:
        """Bytes per second where `num_bytes` are in use: of the smallest footprint that holds them.

        >>> peaks = DevicePeaks(flops_per_s=1e9, bandwidths=((1024, 9.0), (4096, 3.0)))
        >>> peaks.bandwidth(100), peaks.bandwidth(2000), peaks.bandwidth(1e9)
        (9.0, 3.0, 3.0)
        """
        for footprint, rate in self.bandwidths:
            if num_bytes <= footprint:
                return rate
        return self.bandwidths[-1][1]

    def floor_s(
        self, num_operations: float, num_bytes: float, footprint_bytes: float | None = None
    ) -> tuple[float, Bound]:
        """The least seconds for so much work, and which of the two bounds it.

        Args:
            num_operations: floating-point operations.
            num_bytes: bytes that move.
            footprint_bytes: what decides which memory they come from; the bytes themselves when None. A network's
                are its weights: what is between two kernels may stay in a cache, they must fit into one together.

        >>> peaks = DevicePeaks(flops_per_s=10.0, bandwidths=((1024, 100.0), (4096, 50.0)))
        >>> peaks.floor_s(20.0, 100.0), peaks.floor_s(20.0, 1000.0, 2048)
        ((2.0, 'operations'), (20.0, 'bytes'))
        """
        footprint = num_bytes if footprint_bytes is None else footprint_bytes
        by_operations, by_bytes = num_operations / self.flops_per_s, num_bytes / self.bandwidth(footprint)
        return (by_operations, "operations") if by_operations >= by_bytes else (by_bytes, "bytes")


def measure_peaks(device: DeviceSpec) -> DevicePeaks | ProfileFailure:
    """Measures this machine's peaks on the cores of `device`, about 2 s; hold the device's lock meanwhile.

    numpy's matrix product gives the rate of arithmetic: a good library reaches 80 to 95% of what
    the processor's data sheet says, so a kernel may come out a little above 1.
    """
    job = {"cores": list(device.cores), "num_threads": device.num_threads}
    environment = thread_environment(device.num_threads) | {"OPENBLAS_NUM_THREADS": str(device.num_threads)}
    answer = run_child("profilers.roofline:probe", job, limits=_LIMITS, environment=environment)
    if isinstance(answer, ProfileFailure):
        return answer
    return DevicePeaks(
        flops_per_s=float(answer["flops_per_s"]),
        bandwidths=tuple((int(footprint), float(rate)) for footprint, rate in answer["bandwidths"]),
    )


def probe(job: Mapping[str, Any], seal: Callable[..., str]) -> dict[str, Any]:
    """Entry point for `run_child`."""
    os.sched_setaffinity(0, job["cores"])
    seal(readable=[])
    rates = [(size, _bandwidth(size, job["num_threads"])) for size in FOOTPRINTS_BYTES]
    return {
        "flops_per_s": max(_flops_per_s(side) for side in _MATRICES),
        # A nearer memory is no slower than a farther one; in small pieces the calls cost more than the bytes.
        "bandwidths": [(size, max(rate for other, rate in rates if other >= size)) for size, _ in rates],
    }


def _flops_per_s(side: int) -> float:
    matrix = np.full((side, side), 0.5, np.float32)
    product = np.empty_like(matrix)
    return 2 * side**3 / _best_s([lambda: np.matmul(matrix, matrix, out=product)])


def _bandwidth(footprint: int, num_threads: int) -> float:
    """Each thread works on its part of the footprint; numpy lets go of the interpreter meanwhile."""
    count = footprint // (2 * 4 * num_threads)
    parts = [(np.ones(count, np.float32), np.ones(count, np.float32)) for _ in range(num_threads)]
    works: Sequence[Callable[[Any, Any], object]] = (np.dot, np.copyto)
    best_s = min(_best_s([partial(work, *part) for part in parts]) for work in works)
    return 2 * 4 * count * num_threads / best_s


def _best_s(works: Sequence[Callable[[], object]]) -> float:
    """Seconds of one call of all `works` at once: the best of a few batches, each long enough for the clock."""
    with ThreadPoolExecutor(len(works)) as pool:

        def run(times: int) -> float:
            start = time.perf_counter_ns()
            for pending in [pool.submit(_repeat, work, times) for work in works]:
                pending.result()
            return time.perf_counter_ns() - start

        run(1)
        batch = max(1, round(_LEAST_NS / run(1)))
        return min(run(batch) for _ in range(_REPEATS)) / batch / 1e9


def _repeat(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()
