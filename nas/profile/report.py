"""Profiles for people and for machines."""

from __future__ import annotations

from typing import Any

from nas.profile.artifacts import Made
from nas.profile.run import Pair, Profile, ProfileReport
from profilers.measurement import Measurement


def to_json(report: ProfileReport) -> dict[str, Any]:
    """One object: the profile itself when there is one, else `profiles` and `comparisons`."""
    rows = [profile_json(each) for each in report.profiles]
    if len(rows) == 1:
        return rows[0]
    return {"profiles": rows, "comparisons": [pair_json(pair) for pair in report.pairs]}


def profile_json(profile: Profile) -> dict[str, Any]:
    """The keys of `nas profile --json`; what was not measured is null."""
    seen = profile.result if isinstance(profile.result, Measurement) else None
    made = profile.made if isinstance(profile.made, Made) else None
    return {
        "target": profile.target,
        "phase": profile.phase,
        "runtime": profile.runtime,
        "precision": profile.precision,
        "threads": profile.num_threads,
        "device": {"id": profile.device.id, "fingerprint": profile.device.fingerprint},
        "latency_ms": None if seen is None else _latency_json(seen),
        "first_inference_ms": None if seen is None else seen.first_inference_ms,
        "parity_max_abs": None if seen is None else seen.parity_max_abs,
        "tuned_coverage": None if made is None else made.artifact.tuned_coverage,
        "canary_drift": None if seen is None else seen.canary_drift,
        "rejected_because": None if seen is None else seen.rejected_because,
        "peak_memory_bytes": None if seen is None else seen.peak_memory_bytes,
        "planned_memory_bytes": None if made is None else made.planned_memory_bytes,
        "model_bytes": None if made is None else made.artifact.model_bytes,
        "energy_mj": None if seen is None else seen.energy_mj,
        "failure": profile.failure,
    }


def _latency_json(seen: Measurement) -> dict[str, Any]:
    return {
        "value": seen.latency_ms,
        "lower": seen.lower_ms,
        "upper": seen.upper_ms,
        "p90": seen.p90_ms,
        "best": seen.best_ms,
        "blocks": len(seen.blocks),
        "processes": len({block.process for block in seen.blocks}),
    }


def pair_json(pair: Pair) -> dict[str, Any]:
    """A comparison: `ratio` is the first latency over the second."""
    return {
        "first": pair.first.label,
        "second": pair.second.label,
        "ratio": pair.comparison.ratio,
        "lower": pair.comparison.lower,
        "upper": pair.comparison.upper,
        "noise_floor": pair.noise_floor,
        "verdict": pair.comparison.verdict,
    }


def print_report(report: ProfileReport) -> None:
    """A table and a line for each comparison, on stdout."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("target", "runtime", "thr.", "latency, ms", "p90", "first", "peak MB", "model MB"):
        is_text = column in ("target", "runtime")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=column != "target", overflow="fold")
    for each in report.profiles:
        table.add_row(*map(escape, _cells(each)))
    console.print(table)
    for each in report.profiles:
        if each.failure is not None:
            console.print(f"[red]{escape(each.label)}: {escape(each.failure)}[/]", highlight=False, soft_wrap=True)
    for pair in report.pairs:
        console.print(escape(pair_line(pair)), highlight=False, soft_wrap=True)


def _cells(profile: Profile) -> list[str]:
    runtime = profile.runtime if profile.precision == "float32" else f"{profile.runtime} {profile.precision}"
    start = [profile.target, runtime, str(profile.num_threads)]
    if not isinstance(profile.result, Measurement) or not isinstance(profile.made, Made):
        return [*start, "none", "", "", "", ""]
    seen = profile.result
    mark = "" if seen.rejected_because is None else " !"
    return [
        *start,
        f"{seen.latency_ms:.4g} ±{100 * seen.half_width:.2g}%{mark}",
        f"{seen.p90_ms:.4g}",
        f"{seen.first_inference_ms:.4g}",
        f"{seen.peak_memory_bytes / 1e6:.1f}",
        f"{profile.made.artifact.model_bytes / 1e6:.2f}",
    ]


def pair_line(pair: Pair) -> str:
    """A comparison in one line."""
    seen = pair.comparison
    amount = f"{seen.ratio:.3f} times ({seen.lower:.3f} to {seen.upper:.3f})"
    verdict = {
        "faster": f"{pair.first.label} is faster",
        "slower": f"{pair.first.label} is slower",
        "tied": f"{pair.first.label} is tied",
    }[seen.verdict]
    floor = f"; gaps up to {pair.noise_floor:.1%} do not count on this device"
    return (
        f"{verdict} with {pair.second.label}: {amount} its latency" + floor
        if seen.verdict == "tied"
        else (f"{verdict} than {pair.second.label}: {amount} its latency")
    )
