"""`kill -9` at several points, then the same command: nothing finished is lost, redone or left running."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.conftest import QUICK, TIMEOUT_S, Ran, command

NUM_TRIALS = 2


def arguments(out: Path) -> list[str]:
    what = [*QUICK, "--trials", str(NUM_TRIALS), "--budget", "50ms", "--no-zoo"]
    return ["search", *what, "--out", str(out), "--json"]


def is_compiling(out: Path, cache: Path) -> bool:
    return any((cache / "artifacts").glob(".building-*"))


def is_measuring(out: Path, cache: Path) -> bool:
    lock = cache / "locks" / "local.lock"
    return (out / "study.db").exists() and lock.exists() and b"pid" in lock.read_bytes()


def is_training(out: Path, cache: Path) -> bool:
    return any((out / "weights").glob("trial-*/progress.json"))


def has_a_finished_trial(out: Path, cache: Path) -> bool:
    return len(finished_trials(out)) >= 1


def is_settling_winners(out: Path, cache: Path) -> bool:
    return any(out.glob(".finalists-*"))


POINTS = {
    "compiling": is_compiling,
    "measuring": is_measuring,
    "training": is_training,
    "after a trial": has_a_finished_trial,
    "settling winners": is_settling_winners,
}


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_search_goes_on_from_where_it_was(
    point: str, nas: Callable[..., Ran], environment: dict[str, str], cache: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    running = subprocess.Popen(
        command(*arguments(out)), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: POINTS[point](out, cache), running)
        family = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
        os.kill(running.pid, signal.SIGKILL)
    finally:
        running.kill()
        running.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not [process for process in alive if process.is_running()], "workers outlived the search"
    before = finished_trials(out)

    ran = nas(*arguments(out))

    assert ran.code in (0, 1), ran.stderr
    assert sum(ran.json["outcomes"].values()) == NUM_TRIALS
    after = finished_trials(out)
    assert set(after) == set(range(NUM_TRIALS))
    assert {number: after[number] for number in before} == before
    assert running_trials(out) == 0


def wait_until(condition: Callable[[], bool], running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert running.poll() is None, "the search ended before the point was reached"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def finished_trials(out: Path) -> dict[int, str]:
    return dict(query(out, "SELECT trial, record FROM nas_trials"))


def running_trials(out: Path) -> int:
    count: int = query(out, "SELECT count(*) FROM trials WHERE state = 'RUNNING'")[0][0]
    return count


def query(out: Path, statement: str) -> list[tuple]:
    if not (out / "study.db").exists():
        return []
    connection = sqlite3.connect(f"file:{out / 'study.db'}?mode=ro", uri=True, timeout=30)
    try:
        return connection.execute(statement).fetchall()
    except sqlite3.OperationalError as error:  # killed before the first table
        if "no such table" in str(error):
            return []
        raise
    finally:
        connection.close()
