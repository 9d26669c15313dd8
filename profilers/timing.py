"""Inside the measuring child: check, load, compare, warm up, time. The parent judges."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from profilers.artifact import Artifact, ArtifactError
from profilers.canary import Canaries, CanaryReading
from profilers.energy import EnergyMeter
from profilers.errors import ChildFailureError, FailureKind, ProfileFailure, ProfilerError
from profilers.measurement import MeasureProtocol
from profilers.runtimes.runtime import Array, Runtime, Session, make_runtime
from profilers.surroundings import Surroundings, disturbances, status_bytes

_LEAST_SAMPLE_NS = 25_000
"""Shorter runs are timed in batches: 25 us against some 0.1 us for reading the clock twice, and at
most 2,000 samples in a block of 50 ms."""

_RECOVERY_NS = 2_000_000
"""After a canary has emptied the caches, runs of this length in all, at least one, are not timed."""

_SUCCESSIVE = 3

_MOST_EXTRA_S = 5.0
"""A process times no longer than this beyond its blocks, however slow the canaries."""


def measure(job: Mapping[str, Any], seal: Callable[..., str]) -> dict[str, Any]:
    """Entry point for `run_child`: one process of a measurement.

    What one sample means: the wall time of one call of the runtime with its inputs already set; the
    runtime allocates the outputs, and freeing those of the run before is part of it. Where a call
    is shorter than 25 us a sample is the mean over a batch of calls.

    Args:
        job: `artifact` (folder), `digest`, `runtime` (`package.module:Class`), `cores`,
            `num_threads`, `parity_tolerance`, `footprint`, `protocol`, `started_s` (the parent's
            monotonic clock), `canary_limits` (the slowest readings that are still nothing; None when
            nobody knows).
        seal: gives up rights, see `profilers.seal`.
    """
    protocol = MeasureProtocol(**job["protocol"])
    core = job["cores"][0]
    os.sched_setaffinity(0, job["cores"])
    canaries, meter = Canaries(job["footprint"]), EnergyMeter()  # opened while that may still be allowed
    opened = open_sealed(job, seal)
    session, check = opened.session, opened.check
    gc.disable()
    unsteady = warm_up(session.run, protocol)
    batch = batch_size(session.run)
    limits = None if job["canary_limits"] is None else CanaryReading(**job["canary_limits"])
    looks, readings, blocks, powers_mw = [Surroundings.look(core)], [canaries.read()], list[dict[str, Any]](), []
    began_s = time.monotonic()
    while wants_block(blocks, readings, limits, protocol, time.monotonic() - began_s):
        energy_uj, start = meter.read_uj(), time.perf_counter()
        block, result = time_block(session.run, protocol.block_ms, batch, job["num_threads"])
        powers_mw.append(meter.used_uj(energy_uj, meter.read_uj()) / 1e3 / (time.perf_counter() - start))
        check(result)
        del result
        looks.append(Surroundings.look(core))
        readings.append(canaries.read())
        blocks.append(block)
    found = disturbances(looks) + ([unsteady] if unsteady else [])
    if os.sched_getaffinity(0) != set(job["cores"]):
        found.append(f"the runtime moved itself to cores {sorted(os.sched_getaffinity(0))}")
    return {
        "sandbox": opened.sandbox,
        "started_s": opened.started_s,
        "first_inference_ms": opened.first_inference_ms,
        "peak_memory_bytes": opened.peak_memory_bytes,
        "blocks": blocks,
        "canaries": [asdict(reading) for reading in readings],
        "disturbances": found,
        "parity_max_abs": check.worst,
        "power_mw": median(powers_mw) if meter.can_read else None,
    }


def wants_block(
    blocks: Sequence[Mapping[str, Any]],
    readings: Sequence[CanaryReading],
    limits: CanaryReading | None,
    protocol: MeasureProtocol,
    spent_s: float,
) -> bool:
    """Whether a process should time another block: until as many count as were planned, within reason.

    Args:
        blocks: timed so far.
        readings: before, between and after them.
        limits: the slowest readings that are still nothing; None counts every block.
        protocol: how many are planned, and how many more there may be.
        spent_s: on the blocks so far.
    """
    planned = protocol.blocks_per_process
    if len(blocks) < planned:
        return True
    if limits is None or len(blocks) >= planned * protocol.max_blocks_factor:
        return False
    is_quiet = [reading.is_within(limits) for reading in readings]
    num_counting = sum(
        before and after and block["cpu_over_wall"] >= protocol.min_cpu_over_wall
        for block, before, after in zip(blocks, is_quiet, is_quiet[1:], strict=False)
    )
    if num_counting >= planned or (num_counting == 0 and len(blocks) >= 2 * planned):
        return False
    extra_s = spent_s / len(blocks) * (len(blocks) - planned + 1)
    return extra_s <= _MOST_EXTRA_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An artifact that was verified, loaded in a sealed child, and gave the right answers.

    Attributes:
        session: with its inputs set.
        check: compares a result with the reference.
        sandbox: what the child has given up.
        started_s: from the parent's decision to the end of the imports and the seal.
        first_inference_ms, peak_memory_bytes: see `Measurement`.
    """

    session: Session
    check: Check
    sandbox: str
    started_s: float
    first_inference_ms: float
    peak_memory_bytes: int


def open_sealed(job: Mapping[str, Any], seal: Callable[..., str]) -> Opened:
    """Verifies the job's artifact, gives up rights, loads it and checks its outputs."""
    runtime, artifact, inputs, references = _open(job)
    level = seal(readable=[artifact.path(runtime.file_name)])
    started_s = time.monotonic() - job["started_s"]
    session, first_inference_ms, peak_memory_bytes, result = _load(runtime, artifact, inputs, job["num_threads"])
    check = Check(session, references, job["parity_tolerance"])
    check(result)
    return Opened(
        session=session,
        check=check,
        sandbox=level,
        started_s=started_s,
        first_inference_ms=first_inference_ms,
        peak_memory_bytes=peak_memory_bytes,
    )


def _open(job: Mapping[str, Any]) -> tuple[Runtime, Artifact, list[Array], list[Array]]:
    """The runtime and the artifact, verified before anything of it is loaded."""
    try:
        artifact = Artifact.load(Path(job["artifact"]))
        if artifact.digest != job["digest"]:
            raise ArtifactError(f"artifact {artifact.folder}: its manifest changed since it was opened")
        artifact.verify()
        return make_runtime(job["runtime"]), artifact, *_parity_arrays(artifact)
    except ProfilerError as error:
        raise _failure("bad_artifact", str(error)) from error


def _load(
    runtime: Runtime, artifact: Artifact, inputs: Sequence[Array], num_threads: int
) -> tuple[Session, float, int, object]:
    """The session, the first run in ms, what loading and running added to memory in bytes, and a run's result."""
    resident = _forget_peak()
    try:
        session = runtime.load(artifact, inputs, num_threads)
    except ProfilerError as error:
        raise _failure("bad_artifact", str(error)) from error
    start = time.perf_counter_ns()
    session.run()
    first_ns = time.perf_counter_ns() - start
    result = session.run()
    peak = max(0, status_bytes("VmHWM") - resident)
    return session, first_ns / 1e6, peak, result


class Check:
    """Compares results with the reference and keeps the largest difference."""

    def __init__(self, session: Session, references: Sequence[Array], tolerance: float) -> None:
        self._session, self._references, self._tolerance = session, references, tolerance
        self.worst = 0.0

    def __call__(self, result: object) -> None:
        """Ends the child as `outputs_differ` when the result of a run is wrong."""
        difference = compare_outputs(self._session.outputs(result), self._references, self._tolerance)
        self.worst = max(self.worst, difference)


def compare_outputs(outputs: Sequence[Array], references: Sequence[Array], tolerance: float) -> float:
    """The largest absolute difference; outputs that differ by more end the child as `outputs_differ`.

    `tolerance` is per unit of the reference: an output may differ by `tolerance * max(1, its
    largest absolute reference value)`. NaN where the reference has none differs by infinity.

    >>> compare_outputs([np.array([1.0, 2.5])], [np.array([1.0, 2.0])], tolerance=0.3)
    0.5
    """
    shapes = [(array.shape, str(array.dtype)) for array in outputs]
    wanted = [(array.shape, str(array.dtype)) for array in references]
    if shapes != wanted:
        raise _failure("outputs_differ", f"outputs of shape and type {shapes}, the reference has {wanted}")
    worst = 0.0
    for index, (output, reference) in enumerate(zip(outputs, references, strict=True)):
        a, b = output.astype(np.float64), reference.astype(np.float64)
        with np.errstate(invalid="ignore"):
            # Equal infinities, and NaN on both sides, are no difference.
            gaps = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        gap = float(np.where(np.isnan(gaps), np.inf, gaps).max(initial=0.0))
        allowed = tolerance * max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
        if gap > allowed:
            reason = f"output {index} differs from the reference by {gap:.3g}, allowed {allowed:.3g}; compile it again"
            raise _failure("outputs_differ", reason)
        worst = max(worst, gap)
    return worst


def warm_up(
    run: Callable[[], object], protocol: MeasureProtocol, clock: Callable[[], int] = time.perf_counter_ns
) -> str | None:
    """Runs until three successive blocks agree; says why not when the time is up before they do."""
    start, num_runs, medians = clock(), 0, list[float]()
    while clock() - start < protocol.warmup_max_s * 1e9:
        samples, _, _ = _run_for(run, protocol.block_ms * 1e6, 1, clock)
        num_runs += len(samples)
        medians.append(median(samples))
        recent = medians[-_SUCCESSIVE:]
        agree = len(recent) == _SUCCESSIVE and max(recent) <= (1 + protocol.steady_within) * min(recent)
        if agree and num_runs >= protocol.warmup_min_runs:
            return None
    seen = ", ".join(f"{value / 1e6:.4g}" for value in medians[-_SUCCESSIVE:])
    return f"not steady after {protocol.warmup_max_s:g} s and {num_runs} runs: last block medians {seen} ms"


def batch_size(run: Callable[[], object], clock: Callable[[], int] = time.perf_counter_ns) -> int:
    """How many runs make one sample of at least 25 us, from the quickest of ten."""
    durations = []
    for _ in range(10):
        start = clock()
        run()
        durations.append(clock() - start)
    return max(1, -(-_LEAST_SAMPLE_NS // max(1, min(durations))))


def time_block(
    run: Callable[[], object], block_ms: float, batch: int, num_threads: int
) -> tuple[dict[str, Any], object]:
    """One block as plain JSON, and what its last run returned."""
    _run_for(run, _RECOVERY_NS, 1, time.perf_counter_ns)
    waited = _waited_ns() if num_threads > 1 else {}
    # Of the thread, not of the process: the limit on processor time arms a kernel timer, and while
    # one is armed the process's clock moves in whole ticks (4 ms here, 8% of a block).
    cpu = time.thread_time_ns()
    samples, wall, result = _run_for(run, block_ms * 1e6, batch, time.perf_counter_ns)
    share = (time.thread_time_ns() - cpu) / wall
    if num_threads > 1:
        # Threads other than the main one may rightly sleep in serial parts, so processor time alone
        # cannot tell; the time a thread was ready and had no processor can, where the kernel says.
        delays = [after - waited[thread] for thread, after in _waited_ns().items() if thread in waited]
        share = min(share, 1 - max(delays, default=0) / wall)
    return {"latencies_ms": [round(ns / 1e6, 6) for ns in samples], "cpu_over_wall": round(share, 4)}, result


def _run_for(
    run: Callable[[], object], duration_ns: float, batch: int, clock: Callable[[], int]
) -> tuple[list[float], int, object]:
    """Samples in ns, each the mean of `batch` runs, until the time is over; the wall time; the last result."""
    samples: list[float] = []
    start = end = clock()
    result: object = None
    while end - start < duration_ns or not samples:
        begin = clock()
        for _ in range(batch):
            result = run()
        end = clock()
        samples.append((end - begin) / batch)
    return samples, end - start, result


def _parity_arrays(artifact: Artifact) -> tuple[list[Array], list[Array]]:
    with np.load(artifact.path("parity.npz"), allow_pickle=False) as arrays:
        inputs = [f"input_{i}" for i in range(len(artifact.inputs))]
        outputs = [f"output_{i}" for i in range(len(artifact.outputs))]
        if sorted(arrays.files) != sorted(inputs + outputs):
            raise ArtifactError(
                f"artifact {artifact.folder}: parity.npz holds {sorted(arrays.files)}, needs {inputs + outputs}"
            )
        return [arrays[name] for name in inputs], [arrays[name] for name in outputs]


def _forget_peak() -> int:
    """Resident bytes now; from here on `VmHWM` is the peak since now (proc(5), clear_refs, 5)."""
    gc.collect()
    # A kernel without it leaves the peak of the imports in: an upper bound.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


def _waited_ns() -> dict[str, int]:
    """Nanoseconds each thread has been ready without a processor; empty where the kernel does not say."""
    waited = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError, IndexError):
            waited[task.name] = int((task / "schedstat").read_text().split()[1])
    return waited


def _failure(kind: FailureKind, reason: str) -> ChildFailureError:
    return ChildFailureError(ProfileFailure(kind=kind, reason=reason))
