"""Tunes one kernel inside a worker process: tries schedules, builds them, times them.

The worker has TVM and no torch. A schedule that crashes or hangs takes the worker down; what was
tried before stands in the job's journal, and the next attempt leaves out the schedule that
killed the last one. Building and timing happen in the same process, so no library is linked,
written or loaded: 5 to 10 times cheaper a trial than the stock builder.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import tvm

BLOCKS = 5
"""Timed blocks of a schedule; their median is its time."""
BLOCK_MS = 2
"""About how long a block lasts: a thousand calls of a 2 microsecond kernel."""
FIRST_CALLS = 3
"""Calls that tell how many make a block; they also warm up the caches."""
LOCK_POLL_S = 0.002
"""Schedules are timed for some 20 ms, so waiting workers ask often."""
LOCK_TIMEOUT_S = 600.0
"""How long one trial waits for the device: longer than a look at a front's finalists."""
MIN_TRIALS_FOR_DRAWS = 16
"""With fewer, a kernel that has hand-written schedules gets no random ones: MetaSchedule takes seconds to import."""
SCHEDULE_SEED = 20_260_101


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningJob:
    """What a worker needs to tune one kernel.

    Attributes:
        key, name, workload_json: of the `KernelTask`.
        target: the target string.
        num_trials: schedules to try.
        trial_timeout_s: wall clock for building one schedule, and again for timing it; waiting for
            the device does not count.
        device_id: whose lock is held while a schedule is timed.
        journal: a file that only this job writes.
    """

    key: str
    name: str
    workload_json: str
    target: str
    num_trials: int
    trial_timeout_s: float
    device_id: str
    journal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """The best schedule that one job found; `trace_json` is None when every trial failed."""

    key: str
    name: str
    trace_json: str | None
    latency_s: float | None
    num_trials: int
    num_failed: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One line of a journal: a trial that began (`latency_s` is None) or that ended well."""

    trial: int
    latency_s: float | None
    trace_json: str | None


def prepare_worker() -> None:
    """Run once when a worker starts: no torch (`tvm_ffi` imports it: 3 s, 385 MB), no orphans."""
    from profilers.child import die_with_parent

    sys.modules["torch"] = None  # type: ignore[assignment]
    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
    multiprocessing.set_start_method("fork", force=True)  # see nas.compile.workers.prepare_worker


def tune_kernel(job: TuningJob) -> TuningResult:
    """Tries the job's schedules in turn, those of the journal excepted."""
    import tvm

    from nas.compile.traces import trace_to_text

    journal = Path(job.journal)
    done = {entry.trial: entry for entry in read_journal(journal)}
    workload = tvm.ir.load_json(job.workload_json)
    target = tvm.target.Target(json.loads(job.target))
    with journal.open("a") as log:
        for trial, schedule in _schedules(workload, target, job.num_trials):
            if trial in done:
                continue
            _write(log, JournalEntry(trial, None, None))
            latency_s = _build_and_time(schedule, target, job)
            if latency_s is not None:
                _write(log, JournalEntry(trial, latency_s, trace_to_text(schedule.trace)))
    return summarise(job, read_journal(journal))


def summarise(job: TuningJob, entries: tuple[JournalEntry, ...]) -> TuningResult:
    """The fastest entry of a journal; a trial that began and never ended has failed."""
    tried = {entry.trial for entry in entries}
    timed = [entry for entry in entries if entry.latency_s is not None]
    best = min(timed, key=lambda entry: (entry.latency_s, entry.trial), default=None)
    return TuningResult(
        key=job.key,
        name=job.name,
        trace_json=None if best is None else best.trace_json,
        latency_s=None if best is None else best.latency_s,
        num_trials=len(tried),
        num_failed=len(tried - {entry.trial for entry in timed}),
    )


def read_journal(path: Path) -> tuple[JournalEntry, ...]:
    """The whole lines of a journal; a line cut short by a kill is left out."""
    if not path.is_file():
        return ()
    entries = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError, TypeError):
            entries.append(JournalEntry(*json.loads(line)))
    return tuple(entries)


def _write(log: TextIO, entry: JournalEntry) -> None:
    # A new line first: if the last writer was killed in mid-line, only that line is lost.
    log.write("\n" + json.dumps([entry.trial, entry.latency_s, entry.trace_json]) + "\n")
    log.flush()


def _schedules(
    workload: tvm.IRModule, target: tvm.target.Target, num_trials: int
) -> Iterator[tuple[int, tvm.s_tir.Schedule]]:
    """Schedules written for such kernels, best guess first; then random draws. The same in every process."""
    from nas.compile.schedules.proposals import proposals, scheduled

    proposed = proposals(workload, target)
    num_made = 0
    for trial, proposal in enumerate(proposed):
        schedule = scheduled(workload, proposal) if num_made < num_trials else None
        if schedule is not None:  # one that does not fit the kernel is no trial
            num_made += 1
            yield trial, schedule
    num_draws = num_trials - num_made
    if num_draws > 0 and (num_made == 0 or num_trials >= MIN_TRIALS_FOR_DRAWS):
        for draw, schedule in enumerate(_random_draws(workload, target, num_draws)):
            yield len(proposed) + draw, schedule


def _random_draws(workload: tvm.IRModule, target: tvm.target.Target, num_draws: int) -> Iterator[tvm.s_tir.Schedule]:
    """Random draws from MetaSchedule's design space of the kernel; none where its own rules do not get along with it.

    (It moves a product into its epilogue although a second producer of the epilogue cannot follow, and raises.)
    """
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.schedule import ScheduleError

    from nas.compile.tvm_import import import_intrinsics

    import_intrinsics()
    context = meta_schedule.TuneContext(
        mod=workload,
        target=target,
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        task_name="kernel",
        rand_state=SCHEDULE_SEED,
        num_threads=1,
    ).clone()
    try:
        design_spaces = context.generate_design_space()
    except ScheduleError:
        return
    strategy = context.search_strategy
    strategy.pre_tuning(
        max_trials=num_draws,
        num_trials_per_iter=num_draws,
        design_spaces=design_spaces,
        database=meta_schedule.database.MemoryDatabase(),
        cost_model=meta_schedule.cost_model.RandomModel(),
    )
    for candidate in strategy.generate_measure_candidates() or []:
        yield candidate.sch
    strategy.post_tuning()


def _build_and_time(schedule: tvm.s_tir.Schedule, target: tvm.target.Target, job: TuningJob) -> float | None:
    """Median seconds of one call, or None where the schedule does not build or run."""
    import numpy as np
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from profilers.lock import device_lock

    generator = np.random.default_rng(SCHEDULE_SEED)
    try:
        with _time_limit(job.trial_timeout_s):
            module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
            library = tvm.tirx.build(module, target=target)
            library["main"]  # generates the machine code, half of the work, before the device is taken
            arguments = ArgInfo.from_prim_func(module["main"])
            # Numbers near 1 keep denormals away, which run tens of times slower than others.
            tensors = [
                tvm.runtime.tensor(
                    generator.uniform(0.5, 1.5, [int(size) for size in info.shape]).astype(str(info.dtype))
                )
                for info in arguments
            ]
        # The limit starts anew behind the lock: who measures networks holds it for minutes.
        with (
            device_lock(job.device_id, timeout_s=LOCK_TIMEOUT_S, sleep=lambda seconds: time.sleep(LOCK_POLL_S)),
            _time_limit(job.trial_timeout_s),
        ):
            return _time(library, tensors)
    except (RuntimeError, ValueError):  # `tvm.error.InternalError` and `ScheduleError` are RuntimeErrors
        return None


def _time(library: Any, tensors: list[Any]) -> float:
    """Median seconds of one call.

    The number of calls in a block comes from a first, short block: TVM's own search for it
    (`min_repeat_ms`) took five times longer than the blocks.
    """
    import tvm

    first = library.time_evaluator("main", tvm.cpu(0), number=FIRST_CALLS, repeat=1)(*tensors).results[0]
    number = max(1, round(BLOCK_MS * 1e-3 / max(first, 1e-9)))
    timer = library.time_evaluator("main", tvm.cpu(0), number=number, repeat=BLOCKS)
    return float(statistics.median(timer(*tensors).results))


@contextlib.contextmanager
def _time_limit(timeout_s: float) -> Iterator[None]:
    """Ends the process when native code does not come back: only a thread of C can."""
    with Path(os.devnull).open("w") as sink:
        faulthandler.dump_traceback_later(timeout_s, exit=True, file=sink)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


Job = Callable[[TuningJob], TuningResult]
