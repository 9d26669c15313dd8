"""Which device a number belongs to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One device as it was when something was measured on it.

    Attributes:
        id: name a person chose, `local` for this machine.
        target: the compiler's target string for one core of it.
        cores: numbers of the processors that inference is pinned to.
        num_threads: threads that inference uses.
        runtimes: (name, version) of each runtime library, sorted by name.
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
