"""Tunes the kernels of a whole space, those that carry most work first; stops and goes on at any kernel."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nas.compile.database import KernelRecord
from nas.compile.kernels import KernelTask
from nas.compile.space_kernels import SpaceKernel, space_kernels, survey
from nas.compile.tvm import CompileFailure, TvmCompiler
from nas.errors import NasError
from nas.phases import phase_names
from search_spaces.space import SearchSpace

KERNELS_AT_ONCE = 4
"""Kernels handed to the workers together: the clock is looked at, and all is kept, after each such batch."""


class TuneSpaceError(NasError):
    """A space that cannot be tuned: says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedKernel:
    """What tuning one kernel brought.

    Attributes:
        kernel: the kernel and its share of the space's work.
        before_s, after_s: seconds of one call; None without a usable schedule.
    """

    kernel: SpaceKernel
    before_s: float | None
    after_s: float | None


@dataclass(slots=True, kw_only=True)
class SpaceTuning:
    """How far a space is tuned.

    Attributes:
        kernels: all of the space, the largest share of its work first.
        num_skipped: kernels that had as many trials as were asked for, or failed them.
        tuned: what was tuned now.
        num_trials, num_failed: schedules tried now, and those without a time.
        work_before, work_after: share of the space's work in kernels with a record.
        duration_s: wall clock, lowering included.
        stopped_because: why kernels were left; None when none were.
    """

    kernels: tuple[SpaceKernel, ...]
    num_skipped: int
    work_before: float
    work_after: float
    tuned: list[TunedKernel] = field(default_factory=list)
    num_trials: int = 0
    num_failed: int = 0
    duration_s: float = 0.0
    stopped_because: str | None = None

    @property
    def num_left(self) -> int:
        """Kernels that the same command would still tune."""
        return len(self.kernels) - self.num_skipped - len(self.tuned)

    @property
    def speedup(self) -> float | None:
        """Time before over time after of the kernels that had a record, weighted by how often they run."""
        return speedup(self.tuned)


def speedup(tuned: Sequence[TunedKernel]) -> float | None:
    """See `SpaceTuning.speedup`; None when no kernel had a record that counts."""
    before_s = after_s = 0.0
    for each in tuned:
        if each.before_s is not None and each.after_s is not None:
            weight = each.kernel.work_share / max(1.0, each.kernel.task.num_operations)
            before_s += weight * each.before_s
            after_s += weight * each.after_s
    return before_s / after_s if after_s else None


class Watch:
    """Told how a space's tuning goes; does nothing itself."""

    def lowered(self, done: int, total: int) -> None:
        """So many of the covering candidates are lowered."""

    def tuned(self, kernel: TunedKernel, done: int, total: int) -> None:
        """A kernel is done."""


def tune_space(
    space: SearchSpace,
    compiler: TvmCompiler,
    *,
    phases: Sequence[str] | None = None,
    minutes: float | None = None,
    watch: Watch | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SpaceTuning:
    """Gives every kernel of the space as many trials as the compiler's limits say; skips those that had them.

    Args:
        space: whose kernels.
        compiler: of the device; its database is read and written.
        phases: whose kernels; None means all phases of the space.
        minutes: hand out no more kernels after this long, lowering included.
        watch: told what goes on.
        clock: seconds, for tests.

    Raises:
        TuneSpaceError: a candidate of the space does not lower.
    """
    watch = watch or Watch()
    started = clock()
    deadline = math.inf if minutes is None else started + 60 * minutes
    kernels = list_kernels(space, compiler, watch, phases)
    wanted = {task.key for task in compiler.missing([each.task for each in kernels])}
    todo = [each for each in kernels if each.task.key in wanted]
    known = compiler.database.get(each.task.key for each in kernels)
    result = SpaceTuning(
        kernels=kernels,
        num_skipped=len(kernels) - len(todo),
        work_before=work_covered(kernels, known),
        work_after=0.0,
    )
    try:
        for start in range(0, len(todo), KERNELS_AT_ONCE):
            if clock() >= deadline:
                result.stopped_because = "the time is up"
                break
            _tune_some(todo[start : start + KERNELS_AT_ONCE], compiler, known, result, watch, len(todo))
    except KeyboardInterrupt:
        result.stopped_because = "interrupted"
    result.work_after = work_covered(kernels, compiler.database.get(each.task.key for each in kernels))
    result.duration_s = clock() - started
    return result


def list_kernels(
    space: SearchSpace, compiler: TvmCompiler, watch: Watch, phases: Sequence[str] | None = None
) -> tuple[SpaceKernel, ...]:
    """All kernels of a space in some of its phases, from few candidates that hold them all, each lowered once.

    Raises:
        TuneSpaceError: one does not lower.
    """
    names = tuple(phases or phase_names(space))
    work = survey(space, names)
    networks: list[tuple[KernelTask, ...]] = []
    for number, candidate in enumerate(work.cover):
        watch.lowered(number, len(work.cover))
        for phase in names:
            planned = compiler.plan(candidate, phase)
            if isinstance(planned, CompileFailure):
                raise TuneSpaceError(f"candidate {candidate.candidate_id}, {phase}: {planned.reason}")
            networks.append(planned)
    watch.lowered(len(work.cover), len(work.cover))
    return space_kernels(networks, work.share_by_macs)


def _tune_some(
    kernels: Sequence[SpaceKernel],
    compiler: TvmCompiler,
    known: Mapping[str, KernelRecord],
    result: SpaceTuning,
    watch: Watch,
    total: int,
) -> None:
    report = compiler.tune([each.task for each in kernels])
    result.num_trials += report.num_trials
    result.num_failed += report.num_failed
    now = compiler.database.get(each.task.key for each in kernels)
    for each in kernels:
        key = each.task.key
        tuned = TunedKernel(
            kernel=each,
            before_s=known[key].latency_s if key in known else None,
            after_s=now[key].latency_s if key in now else None,
        )
        result.tuned.append(tuned)
        watch.tuned(tuned, len(result.tuned), total)


def work_covered(kernels: Sequence[SpaceKernel], known: Mapping[str, KernelRecord]) -> float:
    """Share of the kernels' work that is in kernels with a record; 1 when there is no work at all."""
    total = sum(each.work_share for each in kernels)
    return sum(each.work_share for each in kernels if each.task.key in known) / total if total else 1.0
