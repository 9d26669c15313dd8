"""Looks again, up to three times, while a latency and a budget leave it open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from profilers.artifact import Artifact
from profilers.errors import ProfileFailure
from profilers.measurement import FINALIST, SEARCH, BudgetVerdict, Measurement, MeasureProtocol, verdict
from profilers.profiler import Profiler
from profilers.statistics import summarise

LOOKS: tuple[MeasureProtocol, ...] = (
    SEARCH,
    replace(SEARCH, num_processes=4, half_width=FINALIST.half_width),
    replace(FINALIST, num_processes=6),
)
"""At most three (protocol v1): each further look is another chance to be wrong."""


def decide(
    profiler: Profiler, artifact: Artifact, maximum_ms: float, *, looks: Sequence[MeasureProtocol] = LOOKS
) -> tuple[Measurement | ProfileFailure, BudgetVerdict]:
    """Measures until the interval is on one side of the budget, or the looks are used up.

    The looks' blocks are pooled. A failure, or a run that stays rejected, is `undecided`: it says
    nothing about the budget, and what is undecided does not meet it.

    Returns:
        The pooled measurement and its verdict; or the failure of the first look. When a later look
        fails or is rejected, what was known before it stands.
    """
    known: Measurement | None = None
    for protocol in looks:
        seen = profiler.measure(artifact, protocol)
        if isinstance(seen, ProfileFailure) or seen.rejected_because is not None:
            return known or seen, "undecided"
        known = seen if known is None else combine([known, seen])
        answer = verdict(known.lower_ms, known.upper_ms, maximum_ms)
        if answer != "undecided":
            return known, answer
    if known is None:
        raise ValueError("looks is empty; needs at least one protocol")
    return known, "undecided"


def combine(measurements: Sequence[Measurement]) -> Measurement:
    """One measurement of all blocks, their processes numbered on; the last one's protocol.

    Raises:
        ValueError: none given, or of different artifacts or devices, or one was rejected.
    """
    if len({(each.artifact_digest, each.fingerprint) for each in measurements}) != 1:
        raise ValueError("combine: needs measurements, all of the same artifact on the same device")
    rejected = [each.rejected_because for each in measurements if each.rejected_because is not None]
    if rejected:
        raise ValueError(f"combine: one was rejected ({rejected[0]}); leave it out")
    blocks, offset = [], 0
    for each in measurements:
        blocks += [replace(block, process=block.process + offset) for block in each.blocks]
        offset += 1 + max(block.process for block in each.blocks)
    drifts = [each.canary_drift for each in measurements if each.canary_drift is not None]
    return replace(
        measurements[-1],
        blocks=tuple(blocks),
        **asdict(summarise(blocks, noise=measurements[-1].noise)),
        first_inference_ms=sorted(each.first_inference_ms for each in measurements)[len(measurements) // 2],
        peak_memory_bytes=max(each.peak_memory_bytes for each in measurements),
        parity_max_abs=max(each.parity_max_abs for each in measurements),
        canary_drift=max(drifts, default=None),
        duration_s=sum(each.duration_s for each in measurements),
    )
