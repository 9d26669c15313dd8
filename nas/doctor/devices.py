"""What is stored about devices, for people and for machines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from profilers.canary import LASTING_S
from profilers.device import DeviceSpec, differences
from profilers.enrolment import Enrolment, EnrolmentStore

_SHOWN_FACTS = ("processor", "kernel", "hypervisor", "governor", "power_source", "memory_gib")


def devices_json(here: DeviceSpec, store: EnrolmentStore) -> dict[str, Any]:
    """This device, and the stored ones with their differences from it."""
    others = [each for each in store.all() if each.device.fingerprint != here.fingerprint]
    return {
        "device": _device_json(store.load(here)),
        "others": [{**_device_json(each), "differences": differences(here, each.device)} for each in others],
    }


def _device_json(known: Enrolment) -> dict[str, Any]:
    device = known.device
    return {
        "id": device.id,
        "fingerprint": device.fingerprint,
        "target": device.target,
        "cores": list(device.cores),
        "threads": device.num_threads,
        "runtimes": dict(device.runtimes),
        "facts": dict(device.facts),
        "noise_floor": known.noise.floor,
        "aa": None if known.aa is None else {"pairs": known.aa.num_pairs, "false_alarms": known.aa.num_false_alarms,
                                             "gap95": known.aa.gap95, "at": known.aa.at},
        "canary_runs": {str(size): len(levels) for size, levels in known.canaries.items()},
    }  # fmt: skip


def device_lines(here: DeviceSpec, store: EnrolmentStore) -> list[str]:
    """A few lines on this device, and one on each other."""
    known = store.load(here)
    facts = dict(here.facts)
    threads = f"{here.num_threads} thread{'s' if here.num_threads > 1 else ''} on cores {list(here.cores)}"
    lines = [
        f"this machine: {here.id}, fingerprint {here.fingerprint}, {threads}",
        f"  target    {here.target}",
        *(f"  {name:<9} {facts[name]}" for name in _SHOWN_FACTS if name in facts),
        f"  runtimes  {', '.join(f'{name} {version}' for name, version in here.runtimes)}",
        f"  noise     {noise_text(known)}",
        f"  canaries  {canaries_text(known)}",
    ]
    for other in store.all():
        if other.device.fingerprint != here.fingerprint:
            what = "; ".join(differences(here, other.device))
            lines.append(f"also known: {other.device.fingerprint}, {noise_text(other)}; differs in {what}")
    return lines


def noise_text(known: Enrolment) -> str:
    """What is known about a device's noise."""
    if known.aa is None:
        floor = known.noise.floor_or_default
        return f"not enrolled, gaps up to {floor:.1%} are taken for noise; run nas doctor --aa 40"
    aa = known.aa
    return (
        f"floor {known.noise.floor_or_default:.2%} (A/A of {aa.num_pairs} pairs, {aa.num_false_alarms} false alarms,"
        f" 95th percentile gap {aa.gap95:.2%}, {aa.at})"
    )


def canaries_text(known: Enrolment) -> str:
    """The canaries' levels after the last run of each footprint that counted, and the slow spell where there is one."""
    levels_text = "; ".join(
        f"{size >> 20} MiB: compute {levels[-1].compute_ms:.3f} ms, bandwidth {levels[-1].bandwidth_ms:.3f} ms,"
        f" {len(levels)} run{'s' if len(levels) > 1 else ''}"
        for size, levels in sorted(known.canaries.items())
    )
    return (levels_text or "no baseline yet; the first measurement makes one") + "".join(
        f"; {size >> 20} MiB slow since {datetime.fromtimestamp(spell.since_s, UTC):%Y-%m-%d %H:%M} UTC (compute"
        f" {spell.levels[-1].compute_ms:.3f} ms, bandwidth {spell.levels[-1].bandwidth_ms:.3f} ms): its runs are"
        f" refused; free the machine, or measure on: after {LASTING_S / 60:.0f} minutes it is taken for the device"
        for size, spell in sorted(known.spells.items())
    )
