"""What a child gives up before it loads foreign code: resources, rights, new processes, network."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from profilers.child import die_with_parent

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_NOBODY = 65534
_CLONE_THREAD = 0x10000

# seccomp(2), <linux/seccomp.h>, <linux/audit.h>, <asm/unistd.h>; struct seccomp_data has the system
# call's number at offset 0, the architecture at 4 and the low half of the first argument at 16.
_SET_MODE_FILTER = 1
_FLAG_TSYNC = 1
# Without it, Linux before 5.16 turns the speculative store bypass off for the process, and code
# that is slower than where it will be deployed is what gets measured.
_FLAG_SPEC_ALLOW = 4
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06

_CALLS: dict[str, dict[str, int | tuple[int, ...]]] = {
    "x86_64": {
        "arch": 0xC000003E, "seccomp": 317, "clone": 56, "clone3": 435, "fatal": (57, 58, 59, 322),
        "refused": (41, 101, 425),
    },
    "aarch64": {
        "arch": 0xC00000B7, "seccomp": 277, "clone": 220, "clone3": 435, "fatal": (221, 281),
        "refused": (198, 117, 425),
    },
}  # fmt: skip
"""fatal: fork, vfork, execve, execveat. refused with EPERM: socket, ptrace, io_uring_setup."""


class Seal:
    """Calling it applies the limits; the entry point does so after its imports, before `dlopen`."""

    def __init__(self, limits: Mapping[str, float], parent: int) -> None:
        self._limits = limits
        self._parent = parent

    def __call__(self, readable: Sequence[Path] = ()) -> str:
        """Gives everything up that Linux lets us, and says what that was.

        Args:
            readable: files the child has to read afterwards; root becomes `nobody` only when
                `nobody` may read them.

        Returns:
            One line for the record, for instance `limits, no new privileges, no processes, no
            network, user nobody`.
        """
        self._limit_resources()
        libc = ctypes.CDLL(None, use_errno=True)
        level = ["limits"]
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
            level.append("no new privileges")
        level.append(self._become_nobody(libc, readable))
        level.append(self._filter_calls(libc))
        return ", ".join(level)

    def _limit_resources(self) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        # Libraries and arenas that are mapped already are no fault of the candidate.
        memory = pages * resource.getpagesize() + int(self._limits["memory_bytes"])
        cpu = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = int(cpu.ru_utime + cpu.ru_stime + self._limits["cpu_s"]) + 1
        _lower(resource.RLIMIT_AS, memory)
        # Room between soft and hard: the soft one sends SIGXCPU, which says what happened.
        _lower(resource.RLIMIT_CPU, cpu_s, room=5)
        _lower(resource.RLIMIT_FSIZE, int(self._limits["file_bytes"]))
        _lower(resource.RLIMIT_CORE, 0)

    def _become_nobody(self, libc: ctypes.CDLL, readable: Sequence[Path]) -> str:
        if os.geteuid() != 0:
            return "the user's own account"
        hidden = [path for path in readable if not _others_may_read(path)]
        if hidden:
            return f"ROOT (nobody cannot read {hidden[0]})"
        try:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        except OSError as error:
            return f"ROOT ({error.strerror})"
        # The change of user hides /proc/self from us and cancels the parent's death signal.
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        die_with_parent(self._parent)
        return "user nobody"

    def _filter_calls(self, libc: ctypes.CDLL) -> str:
        calls = _CALLS.get(platform.machine())
        if calls is not None and sys.byteorder == "little" and _install(libc, calls):
            return "no processes, no network"
        # Counts all processes of the user, so it can only stop an avalanche; root is exempt from it.
        limit = sum(folder.name.isdigit() for folder in Path("/proc").iterdir()) + 64
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        return "NO SYSTEM CALL FILTER"


def _lower(kind: int, limit: int, *, room: int = 0) -> None:
    """Sets a soft limit and, `room` above it, the hard one; never above the hard one in force."""
    hard = resource.getrlimit(kind)[1]
    if hard == resource.RLIM_INFINITY:
        hard = limit + room
    hard = min(hard, limit + room)
    resource.setrlimit(kind, (min(limit, hard), hard))


def _others_may_read(path: Path) -> bool:
    path = path.resolve()
    return bool(path.stat().st_mode & 0o004) and all(parent.stat().st_mode & 0o001 for parent in path.parents)


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def _install(libc: ctypes.CDLL, calls: Mapping[str, int | tuple[int, ...]]) -> bool:
    """Installs the filter for every thread; False where the kernel has none."""
    code = _program(calls)
    instructions = (_Instruction * len(code))(*(_Instruction(*line) for line in code))
    program = _Program(len(code), instructions)
    number = calls["seccomp"]
    flags = _FLAG_TSYNC | _FLAG_SPEC_ALLOW
    return bool(libc.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(program)) == 0)


def _program(calls: Mapping[str, int | tuple[int, ...]]) -> list[tuple[int, int, int, int]]:
    """BPF lines (code, lines to skip if true, if false, value) for `calls`."""
    fatal, refused = calls["fatal"], calls["refused"]
    assert isinstance(fatal, tuple) and isinstance(refused, tuple)
    assert isinstance(calls["arch"], int) and isinstance(calls["clone"], int) and isinstance(calls["clone3"], int)
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, calls["arch"]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    for number in fatal:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _KILL)]
    for number in refused:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    # clone3 hides its flags behind a pointer: say it does not exist, and libc falls back to clone,
    # whose flags tell a thread, which is allowed, from a process.
    lines += [(_EQUAL, 0, 1, calls["clone3"]), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    lines += [(_EQUAL, 0, 3, calls["clone"]), (_LOAD, 0, 0, 16)]
    lines += [(_ANY_BIT, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, _KILL), (_RETURN, 0, 0, _ALLOW)]
    return lines
