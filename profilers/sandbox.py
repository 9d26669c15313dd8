"""Runs one function in a child that cannot outlive, outgrow or outstay what it was given."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, get_args

from profilers.errors import FailureKind, ProfileFailure
from profilers.lock import DeviceBusyError, device_lock, state_folder

__all__ = ["DeviceBusyError", "Limits", "device_lock", "run_child", "state_folder", "thread_environment"]

_MAX_ANSWER_BYTES = 256 << 20
_REASON_CHARACTERS = 600
_WATCH_S = 0.25
_MAX_FILES = 10_000
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "LANG", "HOME")
_MEMORY_WORDS = ("bad_alloc", "MemoryError", "Cannot allocate memory", "std::length_error", "out of memory")
_SIGNALS_OF_LIMITS = {
    signal.SIGXCPU: "used more than its {cpu_s:g} s of processor time",
    signal.SIGXFSZ: "wrote a file of more than {file_bytes} bytes",
    signal.SIGSYS: "tried to start another process",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one child may use.

    Attributes:
        wall_s: seconds until it is killed.
        cpu_s: processor seconds beyond what its imports took.
        memory_bytes: address space beyond what its libraries map.
        file_bytes: size of any file it writes.
        disk_bytes: size of all files in its scratch folder together.
    """

    wall_s: float = 60.0
    cpu_s: float = 60.0
    memory_bytes: int = 4 << 30
    file_bytes: int = 16 << 20
    disk_bytes: int = 64 << 20


def thread_environment(num_threads: int) -> dict[str, str]:
    """Environment variables that make the runtimes use `num_threads` threads.

    TVM would set the affinity of its threads itself, over the cores that we chose (its worker 0
    even frees the main thread again), hence `TVM_BIND_THREADS=0`. OpenBLAS runs only the compute
    canary, always on one thread.

    >>> thread_environment(2)["TVM_NUM_THREADS"]
    '2'
    """
    count = str(num_threads)
    return {
        "TVM_NUM_THREADS": count,
        "TVM_BIND_THREADS": "0",
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def run_child(
    entry: str,
    job: Mapping[str, Any],
    *,
    limits: Limits,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any] | ProfileFailure:
    """Runs `entry(job, seal)` in a fresh Python without torch and returns its answer.

    The child has its own session, a scratch folder as its working folder, and dies with the thread
    that called this. Nothing of it is left when this returns. What it prints goes to a file, its
    answer through a pipe of its own.

    Args:
        entry: `package.module:function`. It calls `seal(readable=[...])` (`profilers.seal.Seal`)
            once its imports are done and before it loads what it was given, and returns plain
            JSON. It raises `ChildFailureError` for failures that have a name.
        job: plain JSON.
        limits: what it may use.
        environment: variables besides a small fixed set, for instance `thread_environment(1)`.

    Returns:
        The answer, or what went wrong.
    """
    message = {"paths": _import_paths(), "entry": entry, "job": dict(job), "limits": asdict(limits)}
    with tempfile.TemporaryDirectory(prefix="nas-child-") as scratch, tempfile.TemporaryFile() as printed:
        # The child may have become `nobody` by the time it needs a place to write.
        Path(scratch).chmod(0o1777)
        child, pipe = _start(scratch, printed, environment or {})
        lingers = False
        try:
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError), child.stdin:
                child.stdin.write(json.dumps(message).encode())
            content = _read_all(pipe, time.monotonic() + limits.wall_s, lambda: _overflow(Path(scratch), limits))
            if isinstance(content, bytes):
                lingers = not _ends_within(child, 1.0)
        finally:
            os.close(pipe)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if isinstance(content, ProfileFailure):
            return content
        if content is None:
            return ProfileFailure(kind="timeout", reason=f"no answer within {limits.wall_s:g} s; killed")
        return _judge(content, None if lingers else child.returncode, _tail(printed), limits)


def _start(scratch: str, printed: IO[bytes], environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    script = importlib.util.find_spec("profilers.child")
    assert script is not None and script.origin is not None
    reading, writing = os.pipe()
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(os.close, reading)
        try:
            # -I -S: no user site, no PYTHON* variables, no .pth files; they cost time and run code.
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", script.origin, str(os.getpid()), str(writing)],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=printed,
                cwd=scratch,
                env={**kept, "TMPDIR": scratch, **environment},
                pass_fds=(writing,),
                start_new_session=True,
            )
        finally:
            os.close(writing)
        on_failure.pop_all()
    return child, reading


def _import_paths() -> list[str]:
    """Where this process finds modules; `profilers` first, also when it was found in another way."""
    package = importlib.util.find_spec("profilers")
    assert package is not None and package.submodule_search_locations is not None
    own = str(Path(next(iter(package.submodule_search_locations))).resolve().parent)
    return [own, *(str(Path(path or ".").resolve()) for path in sys.path)]


def _read_all(
    pipe: int, deadline: float, overflow: Callable[[], ProfileFailure | None]
) -> bytes | ProfileFailure | None:
    """Everything until the writer closes; None at the deadline; what `overflow` said when it said something."""
    chunks, size = [], 0
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while size <= _MAX_ANSWER_BYTES:
            left_s = deadline - time.monotonic()
            if not selector.select(timeout=min(_WATCH_S, max(0.0, left_s))):
                if (failure := overflow()) is not None:
                    return failure
                if left_s <= 0:
                    return None
                continue
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
    return b"".join(chunks)


def _overflow(scratch: Path, limits: Limits) -> ProfileFailure | None:
    """Whether the child's folder holds more than it may: the kernel limits single files only."""
    size, num_files = 0, 0
    for folder, _, names in os.walk(scratch):
        for name in names:
            num_files += 1
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118  a string is quicker
        if size > limits.disk_bytes or num_files > _MAX_FILES:
            reason = f"wrote more than {limits.disk_bytes} bytes or {_MAX_FILES} files into its folder"
            return ProfileFailure(kind="limits", reason=reason)
    return None


def _ends_within(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _tail(printed: IO[bytes]) -> str:
    size = printed.seek(0, os.SEEK_END)
    printed.seek(max(0, size - 4096))
    return printed.read().decode(errors="replace").strip()


def _judge(content: bytes, exit_code: int | None, printed: str, limits: Limits) -> dict[str, Any] | ProfileFailure:
    """The answer in `content`, or what the way the child ended says (None: it had to be killed)."""
    try:
        data = json.loads(content)
        if isinstance(data.get("answer"), dict):
            return dict(data["answer"])
        if data.get("kind") in get_args(FailureKind) and isinstance(data.get("reason"), str):
            return _named(data["kind"], data["reason"])
    except (ValueError, AttributeError):
        pass  # fall through: how it ended says more than what it wrote
    said = f": {_short(printed)}" if printed else ""
    if exit_code is None:
        return _named("crashed", f"closed its answer without giving one and went on{said}")
    if exit_code >= 0:
        return _named("crashed", f"ended with code {exit_code} and no answer{said}")
    number = -exit_code
    if number in _SIGNALS_OF_LIMITS:
        what = _SIGNALS_OF_LIMITS[signal.Signals(number)].format(**asdict(limits))
        return ProfileFailure(kind="limits", reason=what)
    if number == signal.SIGKILL:
        # Not by us: we kill only after a deadline or a complete answer.
        return ProfileFailure(kind="out_of_memory", reason="killed by the system, most likely for memory")
    return _named("crashed", f"ended by {signal.Signals(number).name}{said}")


def _named(kind: FailureKind, reason: str) -> ProfileFailure:
    """A failure; a crash whose text speaks of memory is named for that."""
    if kind == "crashed" and any(word in reason for word in _MEMORY_WORDS):
        kind = "out_of_memory"
    return ProfileFailure(kind=kind, reason=_short(reason))


def _short(text: str) -> str:
    """The end of a text, where a traceback has its point."""
    return text if len(text) <= _REASON_CHARACTERS else "... " + text[-_REASON_CHARACTERS:]
