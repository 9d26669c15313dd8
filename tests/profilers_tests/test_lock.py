from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profilers.errors import ProfilerError
from profilers.lock import DeviceBusyError, device_lock, state_folder
from profilers.testing import FakeClock

_HOLD = """
import sys, time
from pathlib import Path
from profilers.lock import device_lock
with device_lock("board", folder=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_waits_and_is_told_who_holds_the_device(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    clock, told = FakeClock(), list[str]()
    with (
        pytest.raises(DeviceBusyError, match=f"'board' is in use by process {holder.pid} .*waited 3 s"),
        device_lock("board", timeout_s=3, folder=tmp_path, on_wait=told.append, clock=clock, sleep=clock.sleep),
    ):
        pytest.fail("two holders")
    assert clock() >= 3
    assert told == [f"waiting for device 'board', in use by process {holder.pid} (-c {tmp_path})"]


def test_a_holder_that_is_killed_leaves_the_device_free(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with device_lock("board", timeout_s=0, folder=tmp_path):
        assert str(os.getpid()) in (tmp_path / "locks/board.lock").read_text()


def test_a_holder_excludes_its_own_process_too_and_frees_the_device_after_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(DeviceBusyError, match=str(os.getpid())),
        device_lock("board", folder=tmp_path),
        device_lock("board", timeout_s=0, folder=tmp_path),
    ):
        pytest.fail("two holders")
    with device_lock("board", timeout_s=0, folder=tmp_path):
        pass


def test_devices_do_not_exclude_each_other(tmp_path: Path) -> None:
    with device_lock("a", folder=tmp_path), device_lock("b", timeout_s=0, folder=tmp_path):
        assert {path.name for path in (tmp_path / "locks").iterdir()} == {"a.lock", "b.lock"}


def test_a_device_id_cannot_name_a_path(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match="allowed are letters"), device_lock("../x", folder=tmp_path):
        pass


def test_the_state_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path))
    assert state_folder() == tmp_path
    monkeypatch.delenv("NAS_CACHE_DIR")
    assert state_folder().name == "nas"
