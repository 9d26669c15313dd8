"""Energy by the processor's own meter (RAPL), where it may be read: the whole package's, idle part included."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Domain:
    descriptor: int
    range_uj: int


class EnergyMeter:
    """Counters of every processor package, opened while that is allowed; reading goes on after the seal.

    Linux lets root only read them since 5.10 (CVE-2020-8694: they leak what others compute).
    """

    def __init__(self, folder: Path = _POWERCAP) -> None:
        """`folder`: where the kernel shows its power-capping zones (Documentation/power/powercap)."""
        self._domains: list[_Domain] = []
        # intel-rapl:0 is a package, intel-rapl:0:0 a part of it that would be counted twice.
        for zone in sorted(folder.glob("intel-rapl:*")):
            if zone.name.count(":") == 1:
                with suppress(OSError, ValueError):
                    range_uj = int((zone / "max_energy_range_uj").read_text())
                    descriptor = os.open(zone / "energy_uj", os.O_RDONLY)
                    self._domains.append(_Domain(descriptor=descriptor, range_uj=range_uj))

    @property
    def can_read(self) -> bool:
        """Whether there is any counter."""
        return bool(self._domains)

    def read_uj(self) -> list[int]:
        """Each counter in microjoules; empty where there is none."""
        return [int(os.pread(domain.descriptor, 32, 0)) for domain in self._domains]

    def used_uj(self, before: Sequence[int], after: Sequence[int]) -> int:
        """Microjoules between two readings, a counter that started over in between included."""
        ranges = [domain.range_uj for domain in self._domains]
        return sum((b - a) % (r + 1) for a, b, r in zip(before, after, ranges, strict=True))
