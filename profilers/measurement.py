"""What a latency is: protocol, raw blocks, interval and the verdict against a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from profilers.errors import ProfileFailure, ProfilerError
from profilers.noise import UNKNOWN_NOISE, Noise

_FORMAT = 1

PROTOCOL_VERSION = "v2"
"""v2: a process goes on timing while a canary is slow, and only blocks between two quiet readings count. v1 dropped a
block when the canary was slow on both sides, and rejected the run when a fifth of its blocks were dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureProtocol:
    """How hard to look. Defaults are a first look in a search; see `FINALIST`.

    Attributes:
        num_processes: fresh processes.
        blocks_per_process: blocks timed in each.
        max_blocks_per_process: the stop rule adds fresh processes while the interval is wider than
            `half_width`, up to `num_processes * max_blocks_per_process` blocks in all. Fresh
            processes rather than longer ones: most of the variance is between processes.
        max_blocks_factor: a process times up to so many times `blocks_per_process` while canaries are slow, until
            `blocks_per_process` blocks count.
        block_ms: least duration of one block.
        half_width: relative half-width of the 95% interval at which to stop.
        warmup_min_runs, warmup_max_s, steady_within: warm-up ends after that many runs, once three
            successive block medians agree within `steady_within`, or at the time cap.
        min_cpu_over_wall: a block with a lower share of processor time was disturbed.
        timeout_s: wall clock for one child.
        memory_bytes: address space one child may use beyond what its libraries map.
    """

    num_processes: int = 2
    blocks_per_process: int = 6
    max_blocks_per_process: int = 16
    max_blocks_factor: int = 4
    block_ms: float = 50.0
    half_width: float = 0.02
    warmup_min_runs: int = 10
    warmup_max_s: float = 10.0
    steady_within: float = 0.02
    min_cpu_over_wall: float = 0.97
    timeout_s: float = 60.0
    memory_bytes: int = 4 << 30
    version: str = PROTOCOL_VERSION

    def __post_init__(self) -> None:
        if self.num_processes < 1 or not 1 <= self.blocks_per_process <= self.max_blocks_per_process:
            raise ValueError(
                f"protocol: {self.num_processes} processes of {self.blocks_per_process} to"
                f" {self.max_blocks_per_process} blocks; needs at least one process and 1 <= blocks <= cap"
            )
        if self.max_blocks_factor < 1:
            raise ValueError(f"protocol: max_blocks_factor is {self.max_blocks_factor}; allowed: at least 1")
        if min(self.block_ms, self.half_width, self.steady_within, self.warmup_max_s, self.timeout_s) <= 0:
            raise ValueError("protocol: block_ms, half_width, steady_within, warmup_max_s and timeout_s must exceed 0")

    @property
    def max_blocks(self) -> int:
        """Blocks over all processes at which the stop rule gives up."""
        return self.num_processes * self.max_blocks_per_process


SEARCH = MeasureProtocol()
FINALIST = MeasureProtocol(num_processes=3, blocks_per_process=8, max_blocks_per_process=24, half_width=0.01)


CAUSE_SEPARATOR = " and "


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One timed block, raw.

    Attributes:
        process: which fresh process, from 0.
        latencies_ms: duration of each run of the block.
        cpu_over_wall: share of the block's wall time in which no thread waited for a processor: with
            one thread, processor time over wall time; with several, see `profilers.timing`.
        dropped_because: why the block does not count, several causes joined by `CAUSE_SEPARATOR`; None when it does.
    """

    process: int
    latencies_ms: tuple[float, ...]
    cpu_over_wall: float
    dropped_because: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One artifact's latency on one device, with everything needed to judge it.

    Attributes:
        artifact_digest, fingerprint, protocol: what was measured, where, how.
        blocks: raw, dropped ones included.
        latency_ms: median of block medians.
        lower_ms, upper_ms: 95% interval of that median.
        p90_ms, best_ms: 90th percentile of single runs; the minimum, which is a best case.
        first_inference_ms: the first run in a fresh process, cold.
        peak_memory_bytes: what the artifact adds to a process that has its runtime loaded: largest
            resident size while it was loaded and run twice, less the resident size just before.
        parity_max_abs: largest absolute difference to the reference seen in the child.
        canary_drift: relative slowdown of the worst canary beside the blocks that count; None when
            none ran.
        rejected_because: why this number must not be used; None when it may.
        duration_s: wall clock spent.
        conditions: (name, value) of the surroundings: load, frequency, sandbox, canary baseline, ...
        noise: what the interval allowed for.
        energy_mj: energy of one inference, the whole processor package's; None where it cannot be read.
    """

    artifact_digest: str
    fingerprint: str
    protocol: MeasureProtocol
    blocks: tuple[Block, ...]
    latency_ms: float
    lower_ms: float
    upper_ms: float
    p90_ms: float
    best_ms: float
    first_inference_ms: float
    peak_memory_bytes: int
    parity_max_abs: float
    canary_drift: float | None
    rejected_because: str | None
    duration_s: float
    conditions: tuple[tuple[str, str], ...] = ()
    energy_mj: float | None = None
    noise: Noise = UNKNOWN_NOISE

    @property
    def half_width(self) -> float:
        """Half of the interval's width over the latency: what the stop rule compares."""
        return (self.upper_ms - self.lower_ms) / (2 * self.latency_ms)

    def estimate(self) -> LatencyEstimate | ProfileFailure:
        """The latency to decide on, or a failure of kind `rejected` when it must not be used."""
        if self.rejected_because is not None:
            return ProfileFailure(kind="rejected", reason=self.rejected_because)
        return LatencyEstimate(
            latency_ms=self.latency_ms, lower_ms=self.lower_ms, upper_ms=self.upper_ms, source="measured"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` reads back, raw samples included."""
        return {"format": _FORMAT, **asdict(self), "conditions": dict(self.conditions)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Reads `to_json`'s form; anything else is a `ProfilerError` that says to measure again."""
        try:
            if data["format"] != _FORMAT:
                raise ProfilerError(f"measurement of format {data['format']!r}; this version reads {_FORMAT}")
            # Measurements of studies that began before these were kept lack them.
            values = {name: data[name] for name in _MEASUREMENT_FIELDS if name in data or name not in _LATE_FIELDS}
            unknown = sorted(set(data) - set(values) - {"format"})
            if unknown:
                raise ProfilerError(f"measurement: unknown keys {unknown}; allowed: {sorted(values)}")
            values["protocol"] = MeasureProtocol(**data["protocol"])
            values["blocks"] = tuple(
                Block(**{**block, "latencies_ms": tuple(block["latencies_ms"])}) for block in data["blocks"]
            )
            values["conditions"] = tuple(data["conditions"].items())
            values["noise"] = Noise(**data.get("noise", {}))
            return cls(**values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProfilerError(f"measurement of an unknown form ({error!r}); delete it and measure again") from error


_LATE_FIELDS = ("energy_mj", "noise")
_MEASUREMENT_FIELDS = tuple(field.name for field in fields(Measurement))


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyEstimate:
    """A latency and how it is known; measured and predicted never share a column.

    >>> LatencyEstimate(latency_ms=2.0, lower_ms=1.9, upper_ms=2.1, source="measured").source
    'measured'
    """

    latency_ms: float
    lower_ms: float
    upper_ms: float
    source: Literal["measured", "predicted"]

    def __post_init__(self) -> None:
        if not 0 < self.lower_ms <= self.latency_ms <= self.upper_ms < float("inf"):
            raise ValueError(
                f"latency {self.latency_ms} ms with interval [{self.lower_ms}, {self.upper_ms}]:"
                " needs 0 < lower <= latency <= upper, finite"
            )


BudgetVerdict = Literal["meets", "misses", "undecided"]


def verdict(lower: float, upper: float, maximum: float) -> BudgetVerdict:
    """Whether an interval is within a budget: in doubt it is `undecided`, never `meets`.

    >>> verdict(1.0, 1.2, 1.5), verdict(1.6, 1.8, 1.5), verdict(1.4, 1.6, 1.5)
    ('meets', 'misses', 'undecided')
    """
    if upper <= maximum:
        return "meets"
    return "misses" if lower > maximum else "undecided"
