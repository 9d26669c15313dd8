"""Tunes the kernels a network needs and the database lacks, in killable workers."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nas.compile import kernel_tuner
from nas.compile.database import KernelRecord, TuningDatabase
from nas.compile.kernel_tuner import TuningJob, TuningResult
from nas.compile.kernels import KernelTask
from nas.compile.workers import PendingJob, WorkerFailure, WorkerPool

LIGHT_TRIALS = 4
"""Trials for a kernel without real work. Untuned it is a scalar loop, and the 22 light kernels of
a network took 38% of its time; a few draws suffice to vectorise it."""
MAX_CRASHES = 3
"""Workers one kernel may take down before its remaining schedules are given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningReport:
    """What tuning a network's kernels came to.

    Attributes:
        num_kernels: distinct kernels the network needs.
        num_known: of these, how many the database had.
        num_trials, num_failed: schedules tried now, and those that gave no time.
        failed_kernels: names of kernels that still have no record, those that failed earlier included.
        duration_s: wall clock.
    """

    num_kernels: int
    num_known: int
    num_trials: int
    num_failed: int
    failed_kernels: tuple[str, ...]
    duration_s: float


def _prepare(num_threads: int) -> None:
    """A worker's first act: TVM's runtime reads the variable when its thread pool starts.

    In the worker, not in the process that starts it: that one may have tuners for several numbers of threads.
    """
    os.environ["TVM_NUM_THREADS"] = str(num_threads)
    kernel_tuner.prepare_worker()


class KernelTuner:
    """Long-lived tuning workers for one target."""

    def __init__(
        self,
        *,
        target: str,
        device_id: str,
        num_trials: int,
        num_threads: int,
        num_workers: int,
        trial_timeout_s: float,
    ) -> None:
        self._target = target
        self._device_id = device_id
        self._num_trials = num_trials
        self._trial_timeout_s = trial_timeout_s
        self._pool: WorkerPool[TuningResult] = WorkerPool(num_workers, initializer=partial(_prepare, num_threads))

    def tune(
        self,
        tasks: Sequence[KernelTask],
        database: TuningDatabase,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        *,
        refines: bool = False,
    ) -> TuningReport:
        """Gives a record to each kernel that has none.

        A kernel whose schedules all failed is not tried again before more of them are asked for: otherwise
        every candidate that has it would pay for them.

        Args:
            tasks: the kernels of a network.
            database: read first, written after each kernel, so that a kill loses one kernel.
            on_progress: called with kernels done and to do.
            refines: also tune kernels that were tuned with fewer trials than this tuner gives them.
        """
        started = time.monotonic()
        known = database.get(task.key for task in tasks)
        missing = self.missing(tasks, database, refines=refines)
        results: list[TuningResult] = []
        if missing and self._num_trials > 0:
            with tempfile.TemporaryDirectory(prefix="nas-tuning-") as folder:
                jobs = [self._job(task, Path(folder) / task.key) for task in missing]
                pending = [(job, self._submit(job)) for job in jobs]
                for number, (job, first) in enumerate(pending):
                    on_progress(number, len(pending))
                    result = self._finish(job, first)
                    results.append(result)
                    self._store(database, result, job.num_trials)
                on_progress(len(pending), len(pending))
        found = {result.key for result in results if result.trace_json is not None} | set(known)
        return TuningReport(
            num_kernels=len(tasks),
            num_known=len(known),
            num_trials=sum(result.num_trials for result in results),
            num_failed=sum(result.num_failed for result in results),
            failed_kernels=tuple(task.name for task in tasks if task.key not in found),
            duration_s=time.monotonic() - started,
        )

    def missing(
        self, tasks: Sequence[KernelTask], database: TuningDatabase, *, refines: bool = False
    ) -> list[KernelTask]:
        """Those kernels that `tune` would tune, in the same order."""
        known, failed = database.get(task.key for task in tasks), database.failures(task.key for task in tasks)

        def is_missing(task: KernelTask) -> bool:
            if task.key in known:
                return refines and known[task.key].num_trials < self._trials_of(task)
            return failed.get(task.key, 0) < self._trials_of(task)

        return [task for task in tasks if is_missing(task)]

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()

    def _trials_of(self, task: KernelTask) -> int:
        return self._num_trials if task.is_heavy else min(LIGHT_TRIALS, self._num_trials)

    def _job(self, task: KernelTask, journal: Path) -> TuningJob:
        return TuningJob(
            key=task.key,
            name=task.name,
            workload_json=task.workload_json,
            target=self._target,
            num_trials=self._trials_of(task),
            trial_timeout_s=self._trial_timeout_s,
            device_id=self._device_id,
            journal=str(journal),
        )

    def _submit(self, job: TuningJob) -> PendingJob[TuningResult]:
        # The worker ends itself when one trial takes too long; this limit is for a worker that cannot.
        limit_s = 30.0 + kernel_tuner.LOCK_TIMEOUT_S + job.num_trials * 2 * self._trial_timeout_s
        return self._pool.submit(kernel_tuner.tune_kernel, job, timeout_s=limit_s)

    def _finish(self, job: TuningJob, pending: PendingJob[TuningResult]) -> TuningResult:
        for _ in range(MAX_CRASHES):
            result = pending.result()
            if not isinstance(result, WorkerFailure):
                return result
            if result.kind == "raised":
                raise RuntimeError(f"tuning {job.name}: {result.reason}\n{result.traceback}")
            pending = self._submit(job)
        return kernel_tuner.summarise(job, kernel_tuner.read_journal(Path(job.journal)))

    @staticmethod
    def _store(database: TuningDatabase, result: TuningResult, num_wanted: int) -> None:
        if result.trace_json is None or result.latency_s is None:
            # As many as were wanted, also where the kernel was given up before: that is final as well.
            database.put_failure(result.key, result.name, num_wanted)
            return
        database.put(
            KernelRecord(
                key=result.key,
                name=result.name,
                trace_json=result.trace_json,
                latency_s=result.latency_s,
                # A kernel with fewer schedules than were wanted has no more to try.
                num_trials=max(result.num_trials, num_wanted),
                num_failed=result.num_failed,
            )
        )
