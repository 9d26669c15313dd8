"""From what was measured to the figures and rows of `nas bench kernels`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nas.bench.contenders import Timed
from nas.bench.kernel_costs import KernelShare
from nas.bench.result import Cell
from nas.bench.torch_timing import COMPILED, EAGER, TorchTimes

TVM, START, ORT = "tvm", "tvm_start", "onnxruntime"
"""Contenders: tuned TVM, TVM with the first schedule tried for each kernel, ONNX Runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkResult:
    """One candidate's figures.

    Attributes:
        name: the network's.
        timed: latency by contender.
        torch: the baselines; None when left out.
        compile_known_s: export to library with every kernel in the database.
        tuned_coverage: share of its operations in kernels with a record.
        bandwidth_share: of a decode step: bytes of its weights over its latency over the memory's measured
            bandwidth; None for others.
        kernels: each kernel's share and distance to the roofline.
    """

    name: str
    timed: Mapping[str, Timed]
    torch: TorchTimes | None
    compile_known_s: float
    tuned_coverage: float
    bandwidth_share: float | None
    kernels: tuple[KernelShare, ...]

    def ratio(self, other: str) -> float | None:
        """TVM's latency over another contender's; None where one is missing."""
        theirs = self.timed[other].latency_ms if other in self.timed else None
        if self.torch is not None and theirs is None:
            theirs = self.torch.latency_ms.get(other)
        return None if theirs is None else self.timed[TVM].latency_ms / theirs

    @property
    def disturbed_because(self) -> str | None:
        """Why a latency should not be trusted; None when all may."""
        return next((each.rejected_because for each in self.timed.values() if each.rejected_because), None)


def figures(
    results: Sequence[NetworkResult], *, num_trials: int, tuning_s: float, reuse: float | None
) -> dict[str, float | None]:
    """The numbers the bench exists for.

    Args:
        results: one for each network.
        num_trials, tuning_s: schedules tried for them and the seconds that took, all in, over all runs.
        reuse: see `kernel_costs.reuse`.
    """
    over_ort = _ratios(results, ORT)
    start = _ratios(results, START)
    return {
        "tvm_over_ort_geomean": geometric_mean(over_ort),
        "tvm_over_ort_max": max(over_ort, default=None),
        "tvm_over_torch_geomean": geometric_mean(_ratios(results, EAGER)),
        "tvm_over_torch_compile_geomean": geometric_mean(_ratios(results, COMPILED)),
        "tuning_trials_per_s": num_trials / tuning_s if tuning_s else None,
        "tuning_s": tuning_s,
        "kernel_reuse": reuse,
        "compile_known_s": _median([result.compile_known_s for result in results]),
        "share_of_tuned_from_start": _median(start),
        "roofline_share": _median([roofline_share(result.kernels) for result in results if result.kernels]),
        "bandwidth_share": _median([share for result in results if (share := result.bandwidth_share) is not None]),
        "num_disturbed": float(sum(result.disturbed_because is not None for result in results)),
    }


def rows(results: Sequence[NetworkResult]) -> list[dict[str, Cell]]:
    """One row for each network, then one for each kernel of each; cells that do not apply are None."""
    found = [_network_row(result) for result in results]
    found += [_kernel_row(result, share) for result in results for share in result.kernels]
    columns = list(dict.fromkeys(column for row in found for column in row))
    return [{column: row.get(column) for column in columns} for row in found]


def _network_row(result: NetworkResult) -> dict[str, Cell]:
    row: dict[str, Cell] = {"row": "network", "network": result.name}
    for name, timed in result.timed.items():
        row |= {f"{name}_ms": timed.latency_ms, f"{name}_lower_ms": timed.lower_ms, f"{name}_upper_ms": timed.upper_ms}
    for name in (EAGER, COMPILED):
        row[f"{_column(name)}_ms"] = None if result.torch is None else result.torch.latency_ms.get(name)
    for name in (ORT, EAGER, COMPILED, START):
        row[f"tvm_over_{_column(name)}"] = result.ratio(name)
    return row | {
        "compile_known_s": result.compile_known_s,
        "tuned_coverage": result.tuned_coverage,
        "roofline_share": roofline_share(result.kernels) if result.kernels else None,
        "bandwidth_share": result.bandwidth_share,
        "disturbed_because": result.disturbed_because,
        "torch_missing_because": None if result.torch is None else "; ".join(result.torch.missing_because.values()),
    }


def _kernel_row(result: NetworkResult, share: KernelShare) -> dict[str, Cell]:
    return {
        "row": "kernel",
        "network": result.name,
        "kernel": share.cost.name,
        "key": share.cost.key,
        "num_uses": share.cost.num_uses,
        "num_operations": share.cost.num_operations,
        "num_bytes": share.cost.num_bytes,
        "latency_us": share.latency_us,
        "share": share.share,
        "bound": share.bound,
        "roofline_share": share.roofline_share,
    }


def roofline_share(kernels: Sequence[KernelShare]) -> float:
    """The least possible time of all kernels over the time they take."""
    return sum(each.share * each.roofline_share for each in kernels)


def geometric_mean(values: Sequence[float]) -> float | None:
    """None of nothing.

    >>> geometric_mean([1.0, 4.0]), geometric_mean([])
    (2.0, None)
    """
    return statistics.geometric_mean(values) if values else None


def _ratios(results: Sequence[NetworkResult], other: str) -> list[float]:
    return [ratio for ratio in (result.ratio(other) for result in results) if ratio is not None]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _column(name: str) -> str:
    return name.replace(".", "_")
