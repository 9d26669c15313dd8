"""Worker processes with time limits that kill, that never outlive the search."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailure:
    """A job that gave no result.

    Attributes:
        kind: it ran out of time, its process died, or it raised.
        reason: one line for people.
        traceback: of the exception, empty otherwise.
    """

    kind: Literal["timeout", "died", "raised"]
    reason: str
    traceback: str = ""


class WorkerPool(Generic[T]):
    """A few long-lived processes that run one kind of job.

    A process that exceeds the time limit is killed and replaced; one that dies fails its job
    only. Processes are spawned, not forked: torch and TVM hold threads that do not survive a fork.
    """

    def __init__(self, num_workers: int, *, initializer: Callable[[], None], max_jobs_per_worker: int = 0) -> None:
        """Processes start with the first job.

        Args:
            num_workers: processes.
            initializer: run once in each, before anything else is imported.
            max_jobs_per_worker: replace a process after so many jobs, 0 for never.
        """
        from pebble import ProcessPool

        self._pool = ProcessPool(
            max_workers=num_workers,
            max_tasks=max_jobs_per_worker,
            initializer=initializer,
            context=multiprocessing.get_context("spawn"),
        )

    def run(self, function: Callable[..., T], *arguments: Any, timeout_s: float) -> T | WorkerFailure:
        """Runs one job and waits for it."""
        return self.submit(function, *arguments, timeout_s=timeout_s).result()

    def submit(self, function: Callable[..., T], *arguments: Any, timeout_s: float) -> PendingJob[T]:
        """Starts one job; `result()` of what comes back waits for it."""
        return PendingJob(self._pool.schedule(function, args=arguments, timeout=timeout_s), timeout_s)

    def close(self) -> None:
        """Ends the processes, running jobs included."""
        self._pool.stop()
        self._pool.join()

    def __enter__(self) -> WorkerPool[T]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class PendingJob(Generic[T]):
    """A job that was handed to a worker."""

    def __init__(self, future: Any, timeout_s: float) -> None:
        self._future = future
        self._timeout_s = timeout_s

    def is_done(self) -> bool:
        """Whether `result()` would return at once."""
        done: bool = self._future.done()
        return done

    def result(self) -> T | WorkerFailure:
        """The job's value, or why there is none."""
        from pebble import ProcessExpired

        try:
            value: T = self._future.result()
        except TimeoutError as error:
            if hasattr(error, "traceback"):  # the job's own, not pebble's
                return _raised(error)
            return WorkerFailure(
                kind="timeout", reason=f"no result within {self._timeout_s:g} s; the process was killed"
            )
        except ProcessExpired as error:
            code = error.exitcode
            cause = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            return WorkerFailure(kind="died", reason=f"the worker process died ({cause})")
        except SystemExit as error:
            if not hasattr(error, "traceback"):  # this process is asked to end
                raise
            return WorkerFailure(kind="died", reason=f"the job ended itself (exit code {error.code})")
        except Exception as error:  # the boundary to another process: whatever it raised becomes a value
            return _raised(error)
        return value


def _raised(error: Exception) -> WorkerFailure:
    text = str(error).strip() or type(error).__name__
    return WorkerFailure(
        kind="raised",
        reason=f"{type(error).__name__}: {text.splitlines()[0]}",
        traceback=str(getattr(error, "traceback", "")),
    )


def prepare_worker() -> None:
    """Initializer for workers that may import torch: quiet, and gone when the parent is."""
    from profilers.child import die_with_parent

    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
    # A spawned process registers the semaphores that libraries make (tqdm does) with a tracker,
    # which complains on the user's terminal when the process is killed; a forking one does not.
    multiprocessing.set_start_method("fork", force=True)
    warnings.simplefilter("ignore")
    with contextlib.suppress(ValueError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
