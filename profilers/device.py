"""Which device a number belongs to."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from profilers.host import choose_cores, host_facts, processor_of, target_string
from profilers.runtimes.runtime import LIBRARIES, PACKAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One device as it was when something was measured on it.

    Attributes:
        id: name a person chose, `local` for this machine.
        target: the compiler's target string for one core of it.
        cores: numbers of the processors that inference is pinned to.
        num_threads: threads that inference uses.
        runtimes: (name, version) of each runtime library, and (name, hash) of the file that does its
            work, sorted by name: two builds of one version can differ by half.
        facts: (name, value) of what else decides a latency: processor, kernel, governor, memory, ...
    """

    id: str
    target: str
    cores: tuple[int, ...]
    num_threads: int
    runtimes: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]

    @property
    def fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of everything above but the id."""
        content = [self.target, self.cores, self.num_threads, self.runtimes, self.facts]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def local_device(num_threads: int = 1, *, id: str = "local") -> DeviceSpec:
    """This machine, as its kernel describes it, for inference on `num_threads` threads.

    Equal for two calls as long as nothing changed that decides a latency: restarts, load and free
    memory do not count; a kernel, governor or runtime version does.

    Raises:
        ProfilerError: more threads than this process may use cores, or an unknown processor family.
    """
    cores = choose_cores(os.sched_getaffinity(0), num_threads)
    return DeviceSpec(
        id=id,
        target=target_string(processor_of(cores[0]), platform.machine(), num_threads),
        cores=cores,
        num_threads=num_threads,
        runtimes=tuple(
            sorted([*_installed(name for names in PACKAGES.values() for name in names), *_library_hashes()])
        ),
        facts=host_facts(cores[0]),
    )


def differences(ours: DeviceSpec, theirs: DeviceSpec) -> list[str]:
    """What makes two fingerprints differ, a line each; empty when they are equal.

    >>> from dataclasses import replace
    >>> device = DeviceSpec(id="a", target="llvm", cores=(1,), num_threads=1, runtimes=(), facts=(("kernel", "6.1"),))
    >>> differences(device, replace(device, id="b", facts=(("kernel", "6.2"),)))
    ["kernel: '6.1' here, '6.2' there"]
    """
    lines = [
        f"{name}: {getattr(ours, name)!r} here, {getattr(theirs, name)!r} there"
        for name in ("target", "cores", "num_threads")
        if getattr(ours, name) != getattr(theirs, name)
    ]
    for mine, other in ((dict(ours.runtimes), dict(theirs.runtimes)), (dict(ours.facts), dict(theirs.facts))):
        for name in sorted(mine.keys() | other.keys()):
            if mine.get(name) != other.get(name):
                lines.append(f"{name}: {mine.get(name, 'nothing')!r} here, {other.get(name, 'nothing')!r} there")
    return lines


def _installed(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def _library_hashes() -> Iterator[tuple[str, str]]:
    for package, pattern in LIBRARIES.items():
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations if spec else None) or ():
            for path in sorted(Path(folder).glob(pattern)):
                status = path.stat()
                yield f"{package}/{path.name}", _hash_library(path, status.st_mtime_ns, status.st_size)


@lru_cache
def _hash_library(path: Path, mtime_ns: int, size_bytes: int) -> str:
    """Start of a file's SHA-256; the other arguments make a file that was exchanged another one."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:12]
