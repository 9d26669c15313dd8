"""One user of a device at a time: a file lock that names its holder."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from profilers.errors import ProfilerError

_POLL_S = 0.05


class DeviceBusyError(ProfilerError):
    """Another process kept the device for longer than one was ready to wait."""


def state_folder() -> Path:
    """Where locks live: `NAS_CACHE_DIR`, or the user's cache folder of this platform."""
    if folder := os.environ.get("NAS_CACHE_DIR"):
        return Path(folder)
    from platformdirs import user_cache_path

    return user_cache_path("nas")


@contextmanager
def device_lock(
    device_id: str,
    *,
    timeout_s: float = 600.0,
    folder: Path | None = None,
    on_wait: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Holds the device alone; the kernel releases it when the process ends, however it ends.

    Two holders in one process exclude each other as well: it is not reentrant.

    Args:
        device_id: the device's name, `local` for this machine.
        timeout_s: how long to wait for another holder.
        folder: where the lock files are; `state_folder()` when None.
        on_wait: told once, for each holder one waits for, who that is.
        clock, sleep: for tests.

    Raises:
        DeviceBusyError: still held after `timeout_s`; names the holder.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", device_id):
        raise ProfilerError(f"device id {device_id!r}: allowed are letters, digits, '.', '_' and '-'")
    folder = (state_folder() if folder is None else folder) / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{device_id}.lock"
    # Never unlinked: a waiter may hold the old file open and would lock a name nobody else sees.
    with path.open("a+") as stream:
        deadline, told = clock() + timeout_s, ""
        while not _try_lock(stream.fileno()):
            holder = _holder(path)
            if clock() >= deadline:
                raise DeviceBusyError(
                    f"device {device_id!r} is in use by {holder}, waited {timeout_s:g} s; wait for it to end, or end it"
                )
            if on_wait is not None and holder != told:
                on_wait(f"waiting for device {device_id!r}, in use by {holder}")
                told = holder
            sleep(_POLL_S)
        stream.truncate(0)
        stream.write(json.dumps({"pid": os.getpid(), "command": " ".join(sys.argv)[:500]}))
        stream.flush()
        try:
            yield
        finally:
            stream.truncate(0)
            fcntl.flock(stream.fileno(), fcntl.LOCK_UN)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    try:
        data = json.loads(path.read_text())
        return f"process {data['pid']} ({data['command']})"
    except (ValueError, KeyError, TypeError):
        # Between taking the lock and writing the name there is a moment without one.
        return "a process that has not given its name yet"
