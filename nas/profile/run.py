"""Measures targets on runtimes and thread counts, those of one thread count taking turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nas.compile.tvm import CompileLimits
from nas.gates.parity import RELATIVE_TOLERANCE
from nas.profile.artifacts import FLOAT32, ONNXRUNTIME, PHASE, ArtifactMaker, Made, NotMade, OnProgress, phase_of
from nas.profile.onnx_jobs import INT8
from nas.profile.targets import Target
from profilers.device import DeviceSpec, local_device
from profilers.errors import ProfileFailure
from profilers.local import LocalProfiler
from profilers.lock import state_folder
from profilers.measurement import FINALIST, Measurement, MeasureProtocol
from profilers.statistics import Comparison, compare
from profilers.sustained import SustainedLatency

PRECISIONS = (FLOAT32, INT8)

INT8_TOLERANCE = 0.1
"""Difference allowed between int8 and float32 outputs, per unit of the largest output. Eight bits hold
a range in steps of 0.4%; some ten layers in a row lose a few per cent."""

FOREIGN_TOLERANCE = 2e-3
"""The same for models that we did not build: their reference comes from another implementation of
each operator, and weights that were never trained (constants) sum to large values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """How targets are profiled.

    Attributes:
        runtimes, threads, precisions: every combination is measured.
        protocol: how hard to look.
        tuning_trials: schedules tried for each kernel that TVM's database does not know.
        lock_timeout_s: how long to wait for another user of the device.
        sustain_s: seconds of continuous load after each measurement; None for none.
    """

    runtimes: tuple[str, ...] = (ONNXRUNTIME,)
    threads: tuple[int, ...] = (1,)
    precisions: tuple[str, ...] = (FLOAT32,)
    protocol: MeasureProtocol = FINALIST
    tuning_trials: int = 8
    lock_timeout_s: float = 600.0
    sustain_s: float | None = None

    @property
    def combinations(self) -> tuple[tuple[str, str], ...]:
        """(runtime, precision) to measure: int8 is for ONNX Runtime, others sit out where it is there."""
        every = tuple((runtime, precision) for runtime in self.runtimes for precision in self.precisions)
        possible = tuple(pair for pair in every if pair[0] == ONNXRUNTIME or pair[1] == FLOAT32)
        return possible or every


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One target on one runtime: what it was, and what was seen.

    Attributes:
        target: as the user named it.
        phase, runtime, num_threads, precision: what was run.
        device: the device, for this number of threads.
        made: the artifact; why there is none otherwise.
        result: the measurement, or why there is none.
        sustained: under continuous load; None when that was not asked for, or nothing was measured.
    """

    target: str
    runtime: str
    num_threads: int
    precision: str
    device: DeviceSpec
    made: Made | NotMade
    result: Measurement | ProfileFailure
    sustained: SustainedLatency | ProfileFailure | None = None
    phase: str = PHASE

    @property
    def failure(self) -> str | None:
        """Why there is no number that may be used; None when there is one."""
        if isinstance(self.result, ProfileFailure):
            return f"{self.result.kind}: {self.result.reason}"
        reason = self.result.rejected_because
        return None if reason is None else f"rejected: {reason}"

    @property
    def label(self) -> str:
        """Name of this row among others."""
        threads = f"{self.num_threads} thread{'s' if self.num_threads > 1 else ''}"
        phase = "" if self.phase == PHASE else f" {self.phase}"
        return f"{self.target}{phase} on {self.runtime} {self.precision}, {threads}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two profiles that were measured in turn, compared: the first over the second."""

    first: Profile
    second: Profile
    comparison: Comparison
    noise_floor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReport:
    """Everything that one `nas profile` saw."""

    profiles: tuple[Profile, ...]
    pairs: tuple[Pair, ...]


def profile(
    targets: Sequence[Target],
    options: ProfileOptions,
    *,
    on_progress: OnProgress = lambda stage, done, total: None,
    on_wait: Callable[[str], None] | None = None,
) -> ProfileReport:
    """Measures every target on every runtime, precision and thread count.

    Raises:
        NasError, ProfilerError: a target or option that cannot be used; one line.
    """
    profiles: list[Profile] = []
    pairs: list[Pair] = []
    for num_threads in options.threads:
        local_device(num_threads)  # more threads than cores, or none, before anything is compiled
    for num_threads in options.threads:
        with tempfile.TemporaryDirectory(prefix="nas-profile-") as scratch:
            Path(scratch).chmod(0o755)  # the unprivileged user who measures reads it
            group = _profile_together(targets, options, num_threads, Path(scratch), on_progress, on_wait)
        profiles += group
        pairs += _pairs(group)
    return ProfileReport(profiles=tuple(profiles), pairs=tuple(pairs))


def _profile_together(
    targets: Sequence[Target],
    options: ProfileOptions,
    num_threads: int,
    scratch: Path,
    on_progress: OnProgress,
    on_wait: Callable[[str], None] | None,
) -> list[Profile]:
    device = local_device(num_threads)
    limits = CompileLimits(tuning_trials=options.tuning_trials)
    maker = ArtifactMaker(device, limits, state_folder(), scratch, on_progress)
    try:
        wanted = [
            (target, runtime, precision, maker.make(target, runtime, precision))
            for target in targets
            for runtime in options.runtimes
            for precision in options.precisions
            if (runtime, precision) in options.combinations
        ]
    finally:
        maker.close()
    profiler = LocalProfiler(num_threads=num_threads, lock_timeout_s=options.lock_timeout_s, on_wait=on_wait)
    results = dict(_measure([made for *_, made in wanted], options, profiler, on_progress))
    return [
        Profile(
            target=target.name,
            runtime=runtime,
            num_threads=num_threads,
            precision=precision,
            device=device,
            made=made,
            result=results[place],
            sustained=_sustain(made, results[place], options, profiler, on_progress),
            phase=phase_of(target),
        )
        for place, (target, runtime, precision, made) in enumerate(wanted)
    ]


def _measure(
    made: Sequence[Made | NotMade],
    options: ProfileOptions,
    profiler: LocalProfiler,
    on_progress: OnProgress,
) -> list[tuple[int, Measurement | ProfileFailure]]:
    """(place, result) of each; artifacts of one tolerance are measured in turn."""
    results: list[tuple[int, Measurement | ProfileFailure]] = [
        (place, ProfileFailure(kind="bad_artifact", reason=each.reason))
        for place, each in enumerate(made)
        if isinstance(each, NotMade)
    ]
    ready = [(place, each) for place, each in enumerate(made) if isinstance(each, Made)]
    if ready:
        on_progress("measure", 0, 1)
        seen = profiler.measure_interleaved(
            [each.artifact for _, each in ready],
            options.protocol,
            parity_tolerances=[parity_tolerance(each) for _, each in ready],
        )
        results += [(place, explain(made, result)) for (place, made), result in zip(ready, seen, strict=True)]
    return results


def _sustain(
    made: Made | NotMade,
    result: Measurement | ProfileFailure,
    options: ProfileOptions,
    profiler: LocalProfiler,
    on_progress: OnProgress,
) -> SustainedLatency | ProfileFailure | None:
    if options.sustain_s is None or isinstance(made, NotMade) or isinstance(result, ProfileFailure):
        return None
    on_progress(f"continuous load for {options.sustain_s:g} s", 0, 1)
    tolerance = parity_tolerance(made)
    return profiler.sustain(made.artifact, options.sustain_s, options.protocol, parity_tolerance=tolerance)


def explain(made: Made, result: Measurement | ProfileFailure) -> Measurement | ProfileFailure:
    """The result; where int8 changed the outputs too much, with advice that fits."""
    if not isinstance(result, ProfileFailure) or result.kind != "outputs_differ" or made.artifact.precision != INT8:
        return result
    seen = result.reason.partition(";")[0]
    return ProfileFailure(
        kind="outputs_differ",
        reason=f"int8 changes this model too much: {seen}; use float32, or quantise it with calibration data",
    )


def parity_tolerance(made: Made) -> float:
    """Difference allowed between the outputs of an artifact and its reference, per unit."""
    if made.artifact.precision != FLOAT32:
        return INT8_TOLERANCE
    return FOREIGN_TOLERANCE if made.is_foreign else RELATIVE_TOLERANCE


def _pairs(group: Sequence[Profile]) -> list[Pair]:
    """The first usable profile of a group against each other one."""
    usable = [each for each in group if each.failure is None]
    found = []
    for other in usable[1:]:
        first, second = usable[0].result, other.result
        assert isinstance(first, Measurement) and isinstance(second, Measurement)
        comparison = compare(first.blocks, second.blocks, noise=first.noise)
        floor = first.noise.floor_or_default
        found.append(Pair(first=usable[0], second=other, comparison=comparison, noise_floor=floor))
    return found
