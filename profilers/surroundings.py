"""What a machine was doing while it was measured, as far as Linux lets one read it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_FREQUENCY_CHANGE = 0.05
"""Relative change of a core's clock within a run that counts as moved."""

MAX_CLOCK_GAP_S = 0.5
"""Disagreement of clocks over one child that means one of them jumped."""


_QUIET_WINDOW_S = 0.2
_QUIET_SHARE = 0.1
"""Busy share of a core below which a run may start; 0.2 s is 20 ticks, and the kernel needs one or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """One look at the machine; None where it does not say.

    Attributes:
        frequency_mhz: clock of the first core in use.
        throttle_count: times that core was slowed for its temperature, since boot.
        swapped_bytes: of this process.
        monotonic_s, boot_s, wall_s: three clocks that run alike unless the machine slept or the
            time was set.
    """

    frequency_mhz: float | None
    throttle_count: int | None
    swapped_bytes: int
    monotonic_s: float
    boot_s: float
    wall_s: float

    @classmethod
    def look(cls, core: int) -> Surroundings:
        """As they are now."""
        cpu = Path(f"/sys/devices/system/cpu/cpu{core}")
        frequency = read_text(cpu / "cpufreq/scaling_cur_freq")
        throttled = read_text(cpu / "thermal_throttle/core_throttle_count")
        return cls(
            frequency_mhz=int(frequency) / 1000 if frequency else None,
            throttle_count=int(throttled) if throttled else None,
            swapped_bytes=status_bytes("VmSwap"),
            monotonic_s=time.monotonic(),
            boot_s=time.clock_gettime(time.CLOCK_BOOTTIME),
            wall_s=time.time(),
        )


def disturbances(looks: Sequence[Surroundings]) -> list[str]:
    """Why what was timed between the first and the last look must not be used."""
    first, last, found = looks[0], looks[-1], []
    frequencies = [look.frequency_mhz for look in looks if look.frequency_mhz]
    if frequencies and max(frequencies) > (1 + MAX_FREQUENCY_CHANGE) * min(frequencies):
        found.append(f"frequency moved between {min(frequencies):.0f} and {max(frequencies):.0f} MHz; fix the governor")
    if first.throttle_count is not None and last.throttle_count is not None:
        times = last.throttle_count - first.throttle_count
        if times:
            found.append(f"core throttled {times} times for its temperature; cool it")
    if last.swapped_bytes > first.swapped_bytes:
        found.append(f"{last.swapped_bytes - first.swapped_bytes} bytes of the child were swapped out; free memory")
    duration = last.monotonic_s - first.monotonic_s
    if abs(last.boot_s - first.boot_s - duration) > MAX_CLOCK_GAP_S:
        found.append("the machine slept while it was measured")
    if abs(last.wall_s - first.wall_s - duration) > MAX_CLOCK_GAP_S:
        found.append("the clock was set while it was measured")
    return found


def conditions_before(core: int) -> tuple[tuple[str, str], ...]:
    """(name, value) of what is worth recording before a run: load, governor, frequency, temperature."""
    cpu = Path(f"/sys/devices/system/cpu/cpu{core}/cpufreq")
    temperatures = [read_text(zone) for zone in sorted(Path("/sys/class/thermal").glob("thermal_zone*/temp"))]
    found = {
        "load_1min": f"{os.getloadavg()[0]:.2f}",
        "governor": read_text(cpu / "scaling_governor"),
        "frequency_khz": read_text(cpu / "scaling_cur_freq"),
        "temperatures_millicelsius": ",".join(text for text in temperatures if text) or None,
    }
    return tuple((name, value) for name, value in found.items() if value is not None)


def wait_until_quiet(
    cores: Sequence[int],
    *,
    timeout_s: float,
    busy: Callable[[], Mapping[int, tuple[int, int]]] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Waits until the busiest of `cores` is idle, or the time is up; returns its last busy share."""
    look = busy or busy_ticks
    deadline, before = clock() + timeout_s, look()
    while True:
        sleep(_QUIET_WINDOW_S)
        after = look()
        share = max(_share(before.get(core, (0, 0)), after.get(core, (0, 0))) for core in cores)
        if share <= _QUIET_SHARE or clock() >= deadline:
            return share
        before = after


def busy_ticks() -> dict[int, tuple[int, int]]:
    """For each core its busy and its total clock ticks since boot, of this machine and its host (proc(5), stat)."""
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name[3:].isdigit():
            values = [int(tick) for tick in ticks[:8]]  # the rest, guests, is counted in the first already
            found[int(name[3:])] = (sum(values) - values[3] - values[4], sum(values))
    return found


def _share(before: tuple[int, int], after: tuple[int, int]) -> float:
    return (after[0] - before[0]) / max(1, after[1] - before[1])


def read_text(path: Path) -> str | None:
    """The stripped content of a small file of the kernel's; None where it is not there or not for us."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def status_bytes(field: str) -> int:
    """A size of this process from `/proc/self/status`, for instance `VmHWM`; 0 where it has none."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0
