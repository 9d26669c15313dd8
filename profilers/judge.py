"""Turns what the processes of a measurement said into a measurement, or into the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from profilers.artifact import Artifact
from profilers.canary import CanaryBaseline, CanaryHistory, CanaryReading, drift_cause, worst_drift
from profilers.device import DeviceSpec
from profilers.errors import ProfileFailure
from profilers.measurement import Block, Measurement, MeasureProtocol
from profilers.noise import Noise
from profilers.statistics import (
    Summary,
    drop_disturbed,
    needs_more,
    reject_for_drops,
    reject_for_starvation,
    summarise,
)

BASELINE_CONDITION = "canary_baseline_ms"
"""Name of the condition that says what the canaries took when a measurement was made."""


@dataclass(slots=True, kw_only=True)
class Gathered:
    """What the processes of one artifact have said so far."""

    blocks: list[Block] = field(default_factory=list)
    readings: list[list[CanaryReading]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    failure: ProfileFailure | None = None

    def add(self, answer: dict[str, Any]) -> None:
        """Takes in one process."""
        process = len(self.answers)
        self.answers.append(answer)
        self.readings.append([CanaryReading(**reading) for reading in answer["canaries"]])
        self.blocks += [
            Block(process=process, latencies_ms=tuple(block["latencies_ms"]), cpu_over_wall=block["cpu_over_wall"])
            for block in answer["blocks"]
        ]


def judge(
    gathered: Gathered,
    artifact: Artifact,
    device: DeviceSpec,
    protocol: MeasureProtocol,
    history: CanaryHistory,
    noise: Noise,
    before: Sequence[tuple[str, str]],
    duration_s: float,
    at_s: float,
) -> Measurement | ProfileFailure:
    """Turns what the processes said into a measurement, with the reason when it must not be used.

    `history` learns from the run. `at_s` is the wall clock at its end.
    """
    readings = [reading for of_process in gathered.readings for reading in of_process]
    baseline = history.baseline(readings)
    # Too little processor time first: it says what happened, and slows the canaries as well.
    had_time = drop_disturbed(gathered.blocks, protocol.min_cpu_over_wall)
    blocks = _drop_drifted(gathered, baseline, had_time)
    answers = gathered.answers
    found = [reason for answer in answers for reason in answer["disturbances"]]
    starved = reject_for_starvation(had_time)
    reason = starved or reject_for_drops(blocks) or (found[0] if found else None)
    kept = [around for block, around in zip(blocks, _around(gathered), strict=True) if block.dropped_because is None]
    if reason is None:
        # Only what lies beside blocks that count: the rest is of whoever disturbed, and would widen what is allowed.
        history.count([reading for around in kept for reading in around])
    elif not found and starved is None:
        history.refuse(readings, at_s)  # a canary alone: perhaps that is what the device now is
    summary = _summary(blocks, noise)
    if summary is None:
        return ProfileFailure(kind="rejected", reason=reason or "too few blocks for an interval")
    conditions = [
        *before,
        ("sandbox", answers[0]["sandbox"]),
        ("child_start_s", f"{median(answer['started_s'] for answer in answers):.3f}"),
        (BASELINE_CONDITION, baseline.to_text()),
    ]
    return Measurement(
        artifact_digest=artifact.digest,
        fingerprint=device.fingerprint,
        protocol=protocol,
        blocks=blocks,
        **asdict(summary),
        first_inference_ms=median(answer["first_inference_ms"] for answer in answers),
        peak_memory_bytes=max(answer["peak_memory_bytes"] for answer in answers),
        parity_max_abs=max(answer["parity_max_abs"] for answer in answers),
        canary_drift=max((worst_drift(around, baseline) for around in kept), default=None),
        rejected_because=reason,
        duration_s=duration_s,
        conditions=tuple(conditions),
        energy_mj=_energy_mj(answers, summary.latency_ms),
        noise=noise,
    )


def _energy_mj(answers: Sequence[Mapping[str, Any]], latency_ms: float) -> float | None:
    """Energy of one inference: the package's power while it ran without a pause, for as long as one takes."""
    powers_mw = [answer["power_mw"] for answer in answers if answer["power_mw"] is not None]
    return median(powers_mw) * latency_ms / 1e3 if powers_mw else None


def wants_more(
    gathered: Gathered, protocol: MeasureProtocol, noise: Noise, baseline: CanaryBaseline | None = None
) -> bool:
    """The stop rule: another process while the interval is too wide and the cap is not reached.

    `baseline` is what is known of the canaries before the run.
    """
    if (len(gathered.answers) + 1) * protocol.blocks_per_process > protocol.max_blocks:
        return False
    blocks = drop_disturbed(gathered.blocks, protocol.min_cpu_over_wall)
    starved = reject_for_starvation(blocks)
    if baseline is not None:
        blocks = _drop_drifted(gathered, baseline, blocks)
    if starved is not None or reject_for_drops(blocks) is not None:
        return False  # more of a disturbed run is not worth its time
    return needs_more(blocks, protocol.half_width, noise=noise)


def _summary(blocks: Sequence[Block], noise: Noise) -> Summary | None:
    """The summary of the blocks that count, or of all when too few do: a rejected number, still shown."""
    for chosen in (blocks, [replace(block, dropped_because=None) for block in blocks]):
        if sum(block.dropped_because is None for block in chosen) >= 2:
            return summarise(chosen, noise=noise)
    return None


def _around(gathered: Gathered) -> list[list[CanaryReading]]:
    """For each block the canary readings just before and after it."""
    return [[readings[k], readings[k + 1]] for readings in gathered.readings for k in range(len(readings) - 1)]


def _drop_drifted(gathered: Gathered, baseline: CanaryBaseline, blocks: Sequence[Block]) -> tuple[Block, ...]:
    return tuple(
        replace(block, dropped_because=block.dropped_because or drift_cause(around, baseline))
        for block, around in zip(blocks, _around(gathered), strict=True)
    )
