"""What is known about a device from earlier runs: how fast its canaries are, and how noisy it is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from profilers.canary import CanaryHistory, CanaryLevel, SlowSpell
from profilers.device import DeviceSpec, differences
from profilers.errors import ProfilerError
from profilers.json_file import write_json
from profilers.lock import state_folder
from profilers.measurement import Measurement
from profilers.noise import UNKNOWN_NOISE, Noise

FOLDER_NAME = "devices"
_FORMAT = 1


class ForeignMeasurementError(ProfilerError):
    """A measurement of another device was offered as evidence for this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AaResult:
    """What an A/A gate saw: the same program compared with itself.

    Attributes:
        num_pairs: comparisons that were not rejected.
        num_rejected: pairs that were, for a disturbance.
        num_false_alarms: comparisons whose interval excluded 1, before any floor.
        gap95: 95th percentile of the relative gap between the two.
        at: ISO 8601, UTC.
    """

    num_pairs: int
    num_rejected: int
    num_false_alarms: int
    gap95: float
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """One device, by fingerprint.

    Attributes:
        device: as it was when it was first measured on.
        canaries: for each footprint in bytes the levels of the last runs that counted, the oldest first.
        spells: for each footprint the runs since then that a canary refused, where there were any.
        noise: how much latencies vary here; the default until an A/A gate was run.
        aa: the last A/A gate; None until there was one.
    """

    device: DeviceSpec
    canaries: Mapping[int, tuple[CanaryLevel, ...]] = field(default_factory=dict)
    spells: Mapping[int, SlowSpell] = field(default_factory=dict)
    noise: Noise = UNKNOWN_NOISE
    aa: AaResult | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` reads back."""
        return {
            "format": _FORMAT,
            "fingerprint": self.device.fingerprint,
            "device": asdict(self.device),
            "canaries": {str(size): [asdict(level) for level in levels] for size, levels in self.canaries.items()},
            "spells": {str(size): asdict(spell) for size, spell in self.spells.items()},
            "noise": asdict(self.noise),
            "aa": None if self.aa is None else asdict(self.aa),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Enrolment:
        """Reads `to_json`'s form; anything else is a `ProfilerError`."""
        try:
            if data["format"] != _FORMAT:
                raise ProfilerError(f"enrolment of format {data['format']!r}; this version reads {_FORMAT}")
            device = dict(data["device"])
            for name in ("runtimes", "facts"):
                device[name] = tuple((key, value) for key, value in device[name])
            device["cores"] = tuple(device["cores"])
            canaries = {
                int(size): tuple(CanaryLevel(**level) for level in levels) for size, levels in data["canaries"].items()
            }
            spells = {int(size): _spell(spell) for size, spell in data.get("spells", {}).items()}  # not in early files
            aa = None if data["aa"] is None else AaResult(**data["aa"])
            noise = Noise(**data["noise"])
            known = cls(device=DeviceSpec(**device), canaries=canaries, spells=spells, noise=noise, aa=aa)
            _check(known)
            return known
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProfilerError(f"enrolment of an unknown form ({error!r}); delete it and enrol again") from error


def _spell(data: Mapping[str, Any]) -> SlowSpell:
    return SlowSpell(**{**data, "levels": tuple(CanaryLevel(**level) for level in data["levels"])})


def _check(known: Enrolment) -> None:
    """Every number is one that a run could have left.

    Raises:
        ValueError: one is not, by name.
    """
    numbers: list[tuple[str, object, float]] = []
    runs = [*known.canaries.items(), *((size, spell.levels) for size, spell in known.spells.items())]
    for size, levels in runs:
        if size < 0 or not levels:
            raise ValueError(f"canary of {size} bytes with {len(levels)} levels")
        for level in levels:
            numbers += [("compute_ms", level.compute_ms, 1e5), ("bandwidth_ms", level.bandwidth_ms, 1e5)]
            numbers += [
                ("compute_spread", level.compute_spread, 1.0),
                ("bandwidth_spread", level.bandwidth_spread, 1.0),
            ]
    for spell in known.spells.values():
        numbers += [("since_s", spell.since_s, 1e11), ("last_s", spell.last_s, 1e11)]
    noise = known.noise
    numbers += [] if noise.floor is None else [("floor", noise.floor, 1.0)]
    numbers += [("least_spread", noise.least_spread, 1.0), ("spread_ratio", noise.spread_ratio, 100.0)]
    numbers += [("degrees", noise.degrees, 1e4), ("drift_ratio", noise.drift_ratio, 100.0)]
    if known.aa is not None:
        numbers += [("gap95", known.aa.gap95, math.inf), ("num_pairs", known.aa.num_pairs, 1e9)]
        numbers += [("num_rejected", known.aa.num_rejected, 1e9), ("num_false_alarms", known.aa.num_false_alarms, 1e9)]
    for name, value, largest in numbers:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
            raise ValueError(f"{name} is {value!r}; allowed: 0 to {largest:g}")


class EnrolmentStore:
    """One small file a device in a folder; a reader never sees half of one.

    Writers hold the device's lock: `LocalProfiler` does.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, fingerprint: str) -> Path:
        """Where a device's file is, or would be."""
        return self._folder / f"{fingerprint}.json"

    def load(self, device: DeviceSpec) -> Enrolment:
        """What is known about a device; nothing, where its file is absent or damaged."""
        known = _read(self.path(device.fingerprint))
        if known is None or known.device.fingerprint != device.fingerprint:
            return Enrolment(device=device)
        return known

    def save(self, enrolment: Enrolment) -> None:
        """Replaces the device's file."""
        write_json(self.path(enrolment.device.fingerprint), enrolment.to_json(), indent=1)

    def all(self) -> list[Enrolment]:
        """Every device that can be read, the latest file first."""
        paths = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        return [known for path in paths if (known := _read(path)) is not None]

    def refuse_foreign(self, measurement: Measurement, device: DeviceSpec) -> None:
        """Lets a measurement of this device pass.

        Raises:
            ForeignMeasurementError: it is of another one; says what differs where that one is known.
        """
        if measurement.fingerprint == device.fingerprint:
            return
        known = _read(self.path(measurement.fingerprint))
        what = "an unknown device" if known is None else "; ".join(differences(device, known.device))
        raise ForeignMeasurementError(
            f"measurement of device {measurement.fingerprint}, this is {device.fingerprint}: {what}."
            " A latency holds for the device it was measured on; measure again here"
        )


def default_store() -> EnrolmentStore:
    """The store in the user's cache."""
    return EnrolmentStore(state_folder() / FOLDER_NAME)


def now() -> str:
    """The time for `AaResult.at`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def canary_history(enrolment: Enrolment, footprint: int) -> CanaryHistory:
    """What is known about the canaries of one footprint."""
    return CanaryHistory(enrolment.canaries.get(footprint, ()), enrolment.spells.get(footprint))


def with_canaries(enrolment: Enrolment, footprint: int, history: CanaryHistory) -> Enrolment:
    """The same with what is known about the canaries of one footprint replaced."""
    canaries, spells = dict(enrolment.canaries), dict(enrolment.spells)
    canaries.pop(footprint, None)
    spells.pop(footprint, None)
    if history.levels:
        canaries[footprint] = history.levels
    if history.spell is not None:
        spells[footprint] = history.spell
    return replace(enrolment, canaries=canaries, spells=spells)


def _read(path: Path) -> Enrolment | None:
    try:
        return Enrolment.from_json(json.loads(path.read_text()))
    except (OSError, ValueError, RecursionError, ProfilerError):  # absent, torn by a crash, another version
        return None
