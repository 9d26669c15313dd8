"""The lock file of a study: which process has it, and on which host.

The kernel's lock keeps the processes of one host apart. Over a network file system it may not be seen on another
host, and there SQLite's own locks are no better: so the file also says where its holder runs, and what another host
left in it is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nas.errors import NasError

LOCK_NAME = ".lock"

_HOLDER = re.compile(
    r"process (?P<process>\d{1,10})"
    r"(?: on host (?P<name>\S{1,255}), machine (?P<machine>\S{1,64}), boot (?P<boot>\S{1,64}))?"
)
_UNKNOWN = "unknown"


class StudyError(NasError):
    """A results folder that cannot be used for this study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine that a process runs on.

    Attributes:
        name: of the network; a container has its own.
        machine: hash of the machine's id; None where it has none.
        boot: the kernel's id of this boot, which containers of one machine share; None where there is none.
    """

    name: str
    machine: str | None
    boot: str | None

    @classmethod
    def this(cls) -> Self:
        """The one this process runs on."""
        machine = _first_line(Path("/etc/machine-id"))
        return cls(
            name=re.sub(r"\s", "-", platform.node()) or _UNKNOWN,
            # Hashed: machine-id(5) asks not to show the id itself.
            machine=None if machine is None else hashlib.sha256(f"nas:{machine}".encode()).hexdigest()[:16],
            boot=_first_line(Path("/proc/sys/kernel/random/boot_id")),
        )

    def is_same(self, other: Host) -> bool:
        """Whether the kernel's locks of one hold for the other, or did before the machine was started anew.

        >>> board = Host(name="board", machine="a1", boot="b1")
        >>> [board.is_same(Host(name="board", machine=machine, boot="b2")) for machine in ("a1", "a2")]
        [True, False]
        """
        if self.boot is not None and self.boot == other.boot:
            return True
        if self.machine is None or other.machine is None:
            return self.name == other.name
        return self.machine == other.machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has a lock, or had it when it was killed.

    Attributes:
        process: its number.
        host: where it runs; None in a file from before that was written down.
    """

    process: int
    host: Host | None

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The holder that a lock file names; None when it names nobody."""
        found = _HOLDER.fullmatch(text.strip())
        if found is None:
            return None
        host = None
        if found["name"] is not None:
            machine, boot = (None if found[part] == _UNKNOWN else found[part] for part in ("machine", "boot"))
            host = Host(name=found["name"], machine=machine, boot=boot)
        return cls(process=int(found["process"]), host=host)

    def __str__(self) -> str:
        place = ""
        if self.host is not None:
            place = (
                f" on host {self.host.name}, machine {self.host.machine or _UNKNOWN}, boot {self.host.boot or _UNKNOWN}"
            )
        return f"process {self.process}{place}"


@contextlib.contextmanager
def locked(path: Path, what: str, host: Host | None = None) -> Iterator[None]:
    """Holds a lock file, which names this process as long.

    Args:
        path: the file; made where it is missing, emptied at the end.
        what: is locked, for people.
        host: where this process runs; None finds out.

    Raises:
        StudyError: another process has it, here or on another host, or was killed there while it had it.
    """
    here = host or Host.this()
    try:
        # A link could lead to any file, which the holder's name would overwrite.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise StudyError(f"{path}: cannot be opened as a plain file ({error.strerror}); remove it") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StudyError(f"{path}: is not a plain file; remove it")
    with os.fdopen(descriptor, "r+", errors="replace") as stream:
        is_free = True
        try:
            fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_free = False
        holder = Holder.read(stream.read(1000))
        if holder is not None and holder.host is not None and not here.is_same(holder.host):
            raise StudyError(
                f"{what}: in use by process {holder.process} on host {holder.host.name} (this is {here.name}), or left"
                " by it when it was killed; SQLite and a results folder serve the processes of one host, several"
                f" hosts need --storage postgresql://USER@HOST/DATABASE and an --out each; if it is gone, remove {path}"
            )
        if not is_free:
            name = "another process" if holder is None else f"process {holder.process}"
            raise StudyError(f"{what}: in use by {name}; wait for it, or choose another with --out")
        stream.seek(0)
        stream.truncate()
        stream.write(str(Holder(process=os.getpid(), host=here)))
        stream.flush()
        try:
            yield
        finally:
            stream.truncate(0)


def _first_line(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        words = path.read_text().split()
        return words[0] if words else None
    return None
