"""How much a device's latencies vary by themselves."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_FLOOR = 0.01
"""Relative gap below which no difference counts on a device that was not enrolled (protocol v1, step
10: the largest floor that an A/A gate lets pass)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What an interval must allow for beyond the spread of its own few blocks. All relative to the latency.

    The defaults were fitted to 390 processes of four models on a shared virtual machine, and cover
    94 to 98% there where Student's t over blocks covered 43 to 69% (`nas bench measurement`).

    Attributes:
        floor: 95th percentile of the gap between two runs of one program; no difference below it
            counts. None until the device was enrolled.
        least_spread: standard deviation between process medians to expect of any program.
        spread_ratio: the same, as a multiple of the standard deviation between blocks of a process.
        degrees: how many processes that expectation weighs as much as.
        drift_ratio: standard deviation between runs minutes apart that more processes do not reduce,
            as a multiple of the standard deviation between blocks of a process. What disturbs
            neighbouring blocks (a shared cache, mostly) also comes and goes over tens of seconds.
    """

    floor: float | None = None
    least_spread: float = 0.0025
    spread_ratio: float = 1.5
    degrees: float = 4.0
    drift_ratio: float = 1.75

    @property
    def floor_or_default(self) -> float:
        """The floor to compare with; a cautious one where none was measured."""
        return UNKNOWN_FLOOR if self.floor is None else self.floor


UNKNOWN_NOISE = Noise()
"""Of a device that was not enrolled."""
