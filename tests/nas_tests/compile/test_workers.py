from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nas.compile.workers import WorkerFailure, WorkerPool, prepare_worker
from tests.nas_tests.compile import jobs

LONG_S = 60.0

_PARENT = """
import sys
from nas.compile.workers import WorkerPool, prepare_worker
from tests.nas_tests.compile import jobs

if __name__ == "__main__":
    with WorkerPool(1, initializer=prepare_worker) as pool:
        pool.run(jobs.write_pid_and_sleep, sys.argv[1], timeout_s=600)
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool[Any]]:
    """No job here imports TVM, so that a replaced worker is cheap."""
    with WorkerPool[Any](1, initializer=prepare_worker) as pool:
        yield pool


def test_a_job_gives_its_value(pool: WorkerPool[Any]) -> None:
    assert pool.run(jobs.double, 21, timeout_s=LONG_S) == 42


def test_a_worker_is_kept_for_the_next_job(pool: WorkerPool[Any]) -> None:
    first = pool.run(jobs.process_id, timeout_s=LONG_S)
    assert first != os.getpid()
    assert pool.run(jobs.process_id, timeout_s=LONG_S) == first


def test_a_worker_is_replaced_after_its_number_of_jobs() -> None:
    with WorkerPool[int](1, initializer=prepare_worker, max_jobs_per_worker=1) as pool:
        assert len({pool.run(jobs.process_id, timeout_s=LONG_S) for _ in range(2)}) == 2


def test_a_job_out_of_time_is_killed_and_the_pool_goes_on(pool: WorkerPool[Any]) -> None:
    worker = pool.run(jobs.process_id, timeout_s=LONG_S)
    failure = pool.run(jobs.sleep, 600.0, timeout_s=0.2)
    assert failure == WorkerFailure(kind="timeout", reason="no result within 0.2 s; the process was killed")
    assert_gone(worker)
    assert pool.run(jobs.double, 1, timeout_s=LONG_S) == 2


@pytest.mark.parametrize(
    ("function", "arguments", "seen"),
    [(jobs.leave, (3,), "exit code 3"), (jobs.segfault, (), "signal 11"), (jobs.leave_politely, (3,), "exit code 3")],
)
def test_a_job_that_ends_its_process_fails_alone(
    pool: WorkerPool[Any], function: Any, arguments: tuple[int, ...], seen: str
) -> None:
    failure = pool.run(function, *arguments, timeout_s=LONG_S)
    assert isinstance(failure, WorkerFailure)
    assert failure.kind == "died"
    assert seen in failure.reason
    assert pool.run(jobs.double, 1, timeout_s=LONG_S) == 2


def test_a_job_that_raises_hands_over_one_line_and_its_traceback(pool: WorkerPool[Any]) -> None:
    failure = pool.run(jobs.raise_value_error, "the first line\nthe second", timeout_s=LONG_S)
    assert isinstance(failure, WorkerFailure)
    assert (failure.kind, failure.reason) == ("raised", "ValueError: the first line")
    assert "in raise_value_error" in failure.traceback


def test_an_error_without_a_text_is_named_by_its_kind(pool: WorkerPool[Any]) -> None:
    failure = pool.run(jobs.raise_value_error, "", timeout_s=LONG_S)
    assert isinstance(failure, WorkerFailure)
    assert failure.reason == "ValueError: ValueError"


def test_a_timeout_inside_a_job_is_not_taken_for_the_pools(pool: WorkerPool[Any]) -> None:
    worker = pool.run(jobs.process_id, timeout_s=LONG_S)
    failure = pool.run(jobs.raise_timeout_error, timeout_s=LONG_S)
    assert isinstance(failure, WorkerFailure)
    assert (failure.kind, failure.reason) == ("raised", "TimeoutError: of the job itself")
    assert pool.run(jobs.process_id, timeout_s=LONG_S) == worker


def test_a_pending_job_says_when_it_is_done(pool: WorkerPool[Any], tmp_path: Path) -> None:
    slow = pool.submit(jobs.sleep, 0.5, timeout_s=LONG_S)
    queued = pool.submit(jobs.double, 4, timeout_s=LONG_S)
    assert not queued.is_done()
    assert (slow.result(), queued.result()) == (None, 8)
    assert queued.is_done()


def test_closing_ends_running_jobs(tmp_path: Path) -> None:
    pool = WorkerPool[Any](1, initializer=prepare_worker)
    pool.submit(jobs.write_pid_and_sleep, str(tmp_path / "pid"), timeout_s=LONG_S)
    worker = wait_for_pid(tmp_path / "pid")
    pool.close()
    assert_gone(worker)


def test_workers_die_with_a_parent_that_is_killed(tmp_path: Path, child_environment: dict[str, str]) -> None:
    parent, worker = start_parent(tmp_path, child_environment)
    parent.kill()
    assert parent.wait(timeout=30) == -signal.SIGKILL
    assert_gone(worker)


def test_ctrl_c_ends_parent_and_workers(tmp_path: Path, child_environment: dict[str, str]) -> None:
    parent, worker = start_parent(tmp_path, child_environment)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does it: to the whole group
    assert parent.wait(timeout=30) != 0
    assert_gone(worker)
    # The worker left the interrupt to its parent, and did not print a traceback of its own.
    assert (tmp_path / "stderr").read_text().count("Traceback") == 1


def start_parent(folder: Path, environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """A process group of a parent and the worker of its pool, busy; the worker's process id."""
    (folder / "parent.py").write_text(_PARENT)  # a file: spawned workers import it as their main module
    with (folder / "stderr").open("wb") as stderr:
        parent = subprocess.Popen(
            [sys.executable, "parent.py", "pid"],
            cwd=folder, env=environment, stderr=stderr, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    return parent, wait_for_pid(folder / "pid")


def wait_for_pid(path: Path) -> int:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, "the worker never began its job"
        time.sleep(0.02)
    return int(path.read_text())


def assert_gone(pid: object) -> None:
    assert isinstance(pid, int)
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        deadline = time.monotonic() + 20
        while process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                process.kill()  # a failed test leaves no orphan behind either
                pytest.fail(f"process {pid} was still there after 20 s")
            time.sleep(0.02)
