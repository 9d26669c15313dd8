"""What a latency is: protocol, raw blocks, interval and the verdict against a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PROTOCOL_VERSION = "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureProtocol:
    """How hard to look. Defaults are a first look in a search; see `FINALIST`.

    Attributes:
        num_processes: fresh processes.
        blocks_per_process: blocks timed in each, before the stop rule may ask for more.
        max_blocks_per_process: the cap of the stop rule.
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
    block_ms: float = 50.0
    half_width: float = 0.02
    warmup_min_runs: int = 10
    warmup_max_s: float = 10.0
    steady_within: float = 0.02
    min_cpu_over_wall: float = 0.97
    timeout_s: float = 60.0
    memory_bytes: int = 4 << 30
    version: str = PROTOCOL_VERSION


SEARCH = MeasureProtocol()
FINALIST = MeasureProtocol(num_processes=3, blocks_per_process=8, max_blocks_per_process=24, half_width=0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One timed block, raw.

    Attributes:
        process: which fresh process, from 0.
        latencies_ms: duration of each run of the block.
        cpu_over_wall: processor time over wall time while the block ran, per thread in use.
        dropped_because: why the block does not count; None when it does.
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
        peak_memory_bytes: largest resident size of the measuring child.
        parity_max_abs: largest absolute difference to the reference seen in the child.
        canary_drift: relative change of the worst canary while measuring; None when none ran.
        rejected_because: why this number must not be used; None when it may.
        duration_s: wall clock spent.
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
