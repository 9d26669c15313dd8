"""Profiles for people and for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from nas.profile.artifacts import Made
from nas.profile.run import Pair, Profile, ProfileReport
from profilers.errors import ProfileFailure
from profilers.measurement import Measurement
from profilers.sustained import SustainedLatency


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
        "latency_ms": None if seen is None or seen.rejected_because is not None else _latency_json(seen),
        # Apart, so that nobody who reads `latency_ms` ships it.
        "rejected_latency_ms": None if seen is None or seen.rejected_because is None else _latency_json(seen),
        "first_inference_ms": None if seen is None else seen.first_inference_ms,
        "parity_max_abs": None if seen is None else seen.parity_max_abs,
        "tuned_coverage": None if made is None else made.artifact.tuned_coverage,
        "canary_drift": None if seen is None else seen.canary_drift,
        "rejected_because": None if seen is None else seen.rejected_because,
        "peak_memory_bytes": None if seen is None else seen.peak_memory_bytes,
        "planned_memory_bytes": None if made is None else made.planned_memory_bytes,
        "model_bytes": None if made is None else made.artifact.model_bytes,
        "energy_mj": None if seen is None else seen.energy_mj,
        "sustained": _sustained_json(profile.sustained),
        "failure": profile.failure,
    }


def _sustained_json(seen: SustainedLatency | ProfileFailure | None) -> dict[str, Any] | None:
    if seen is None:
        return None
    if isinstance(seen, ProfileFailure):
        return {"failure": f"{seen.kind}: {seen.reason}"}
    return {
        "duration_s": seen.duration_s,
        "drift": seen.drift,
        "worst_p95_ms": seen.worst_p95_ms,
        "disturbed_share": seen.disturbed_share,
        "disturbances": list(seen.disturbances),
        "windows": [asdict(window) for window in seen.windows],
    }


def _sustained_lines(seen: SustainedLatency | ProfileFailure | None) -> list[str]:
    if seen is None:
        return []
    if isinstance(seen, ProfileFailure):
        return [f"sustained not measured, {seen.kind}: {seen.reason}"]
    first, last = seen.windows[0], seen.windows[-1]
    lines = [
        f"sustained {seen.duration_s:.0f} s of continuous load: median {first.median_ms:.4g} ms in the first second,"
        f" {last.median_ms:.4g} in the last (drift {seen.drift:+.1%}); worst p95 {seen.worst_p95_ms:.4g} ms",
        f"          p95 over time, ms: {', '.join(f'{value:.4g}' for value in seen.p95_over_time_ms(10))}",
    ]
    if seen.disturbed_share > 0:
        lines.append(f"          DISTURBED: something else had the core in {seen.disturbed_share:.0%} of the time")
    return lines + [f"          DISTURBED: {each}" for each in seen.disturbances]


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


def report_lines(report: ProfileReport) -> list[str]:
    """Three lines a profile, and one a comparison."""
    lines = []
    for each in report.profiles:
        lines += [each.label, *(f"  {line}" for line in _profile_lines(each))]
    return lines + [pair_line(pair) for pair in report.pairs]


def _profile_lines(profile: Profile) -> list[str]:
    failure = [] if profile.failure is None else [f"NOT USABLE, {profile.failure}"]
    if not isinstance(profile.result, Measurement) or not isinstance(profile.made, Made):
        return failure
    seen, artifact = profile.result, profile.made.artifact
    processes = len({block.process for block in seen.blocks})
    planned = profile.made.planned_memory_bytes
    memory = f"memory   peak {seen.peak_memory_bytes / 1e6:.1f} MB"
    if planned is not None:
        memory += f", of which intermediate values by plan {planned / 1e6:.2f} MB"
    checked = f"outputs  differ from the reference by at most {seen.parity_max_abs:.2g}"
    if artifact.tuned_coverage is not None:
        checked += f"; {artifact.tuned_coverage:.0%} of the operations in tuned kernels"
    energy = [] if seen.energy_mj is None else [f"energy   {seen.energy_mj:.3g} mJ an inference, the whole package's"]
    name = "latency " if profile.failure is None else "rejected"
    return [
        *failure,
        f"{name} {seen.latency_ms:.4g} ms, 95% {seen.lower_ms:.4g} to {seen.upper_ms:.4g}"
        f" ({len(seen.blocks)} blocks in {processes} processes)",
        f"         p90 {seen.p90_ms:.4g} ms, best case {seen.best_ms:.4g} ms, first run"
        f" {seen.first_inference_ms:.4g} ms",
        f"{memory}; model {artifact.model_bytes / 1e6:.2f} MB",
        checked,
        *energy,
        *_sustained_lines(profile.sustained),
    ]


def pair_line(pair: Pair) -> str:
    """A comparison in one line."""
    seen = pair.comparison
    numbers = f"{seen.ratio:.3f} of its latency ({seen.lower:.3f} to {seen.upper:.3f})"
    if seen.verdict == "tied":
        floor = f"gaps up to {pair.noise_floor:.1%} do not count on this device"
        return f"{pair.first.label} is tied with {pair.second.label}: {numbers}; {floor}"
    return f"{pair.first.label} is {seen.verdict} than {pair.second.label}: {numbers}"
