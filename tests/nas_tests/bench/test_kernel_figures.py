from __future__ import annotations

from typing import Any

import pytest

from nas.bench import kernel_costs
from nas.bench.contenders import Timed
from nas.bench.kernel_costs import KernelCost, reuse, shares
from nas.bench.kernel_figures import ORT, START, TVM, NetworkResult, figures, rows
from nas.bench.kernels import candidates
from nas.bench.kernels_plot import costliest, draw_kernels, over_onnxruntime
from nas.bench.torch_timing import COMPILED, EAGER, TorchTimes, missing_compiler
from nas.compile.database import KernelRecord
from profilers.roofline import DevicePeaks

PEAKS = DevicePeaks(flops_per_s=1e9, bandwidths=((1000, 1e9), (1_000_000, 1e8)))


def make_cost(key: str, **changes: Any) -> KernelCost:
    values: dict[str, Any] = {
        "name": f"kernel_{key}", "num_uses": 1, "num_operations": 1000.0, "is_heavy": True, "num_bytes": 100,
    }  # fmt: skip
    return KernelCost(key=key, **{**values, **changes})


def make_record(key: str, latency_s: float) -> KernelRecord:
    return KernelRecord(key=key, name="n", trace_json="[]", latency_s=latency_s, num_trials=1, num_failed=0)


def timed(latency_ms: float, rejected_because: str | None = None) -> Timed:
    return Timed(latency_ms=latency_ms, lower_ms=latency_ms, upper_ms=latency_ms, rejected_because=rejected_because)


def make_result(name: str, tvm_ms: float, ort_ms: float, **changes: Any) -> NetworkResult:
    costs = [make_cost("a", num_uses=2), make_cost("b", num_operations=10.0, num_bytes=2000)]
    values: dict[str, Any] = {
        "timed": {TVM: timed(tvm_ms), ORT: timed(ort_ms), START: timed(2 * tvm_ms)},
        "torch": TorchTimes(latency_ms={EAGER: 4 * tvm_ms}, missing_because={COMPILED: "no compiler"}),
        "compile_known_s": 1.0,
        "tuned_coverage": 1.0,
        "bandwidth_share": None,
        "kernels": shares(costs, {"a": make_record("a", 2e-6), "b": make_record("b", 40e-6)}, PEAKS),
    }
    return NetworkResult(name=name, **{**values, **changes})


def test_figures_are_geometric_means_and_the_worst_candidate() -> None:
    found = figures([make_result("x", 2.0, 1.0), make_result("y", 1.0, 2.0)], num_trials=30, tuning_s=10.0, reuse=0.9)
    assert found["tvm_over_ort_geomean"] == pytest.approx(1.0)
    assert found["tvm_over_ort_max"] == 2.0
    assert found["tvm_over_torch_geomean"] == pytest.approx(0.25)
    assert found["tvm_over_torch_compile_geomean"] is None
    assert found["tuning_trials_per_s"] == 3.0
    assert found["share_of_tuned_from_start"] == 0.5
    assert found["num_disturbed"] == 0


def test_nothing_measured_is_none_and_never_a_number() -> None:
    found = figures([], num_trials=0, tuning_s=0.0, reuse=None)
    assert {name for name, value in found.items() if value is not None} == {"tuning_s", "num_disturbed"}


def test_a_disturbed_measurement_is_counted_and_keeps_its_reason() -> None:
    result = make_result("x", 1.0, 1.0, timed={TVM: timed(1.0), ORT: timed(1.0, "a hog")})
    assert figures([result], num_trials=1, tuning_s=1.0, reuse=None)["num_disturbed"] == 1
    assert rows([result])[0]["disturbed_because"] == "a hog"


def test_shares_add_up_and_each_kernel_has_its_bound() -> None:
    first, second = make_result("x", 1.0, 1.0).kernels
    assert (first.cost.key, first.bound, second.cost.key, second.bound) == ("b", "bytes", "a", "operations")
    assert first.share + second.share == pytest.approx(1.0)
    assert first.share == pytest.approx(40 / 44)
    assert first.roofline_share == pytest.approx(2000 / 1e8 / 40e-6)
    assert second.roofline_share == pytest.approx(1000 / 1e9 / 2e-6)


def test_a_kernel_without_a_time_has_no_share() -> None:
    assert [each.cost.key for each in shares([make_cost("a"), make_cost("b")], {"b": make_record("b", 1e-6)}, PEAKS)] \
        == ["b"]  # fmt: skip


def test_every_row_has_the_same_columns_and_a_missing_baseline_says_why() -> None:
    found = rows([make_result("x", 2.0, 1.0)])
    assert [row["row"] for row in found] == ["network", "kernel", "kernel"]
    assert len({tuple(row) for row in found}) == 1
    assert found[0]["torch_missing_because"] == "no compiler"
    assert (found[0]["tvm_over_onnxruntime"], found[0]["torch_compile_ms"]) == (2.0, None)


def test_reuse_counts_heavy_kernels_after_the_first_networks_only() -> None:
    network = [make_cost("a"), make_cost("b"), make_cost("light", is_heavy=False)]
    assert reuse([network, network], num_first=1) == 1.0
    assert reuse([network, [make_cost("c"), make_cost("d")]], num_first=1) == 0.0
    assert reuse([network], num_first=1) is None


def test_costs_survive_their_file_and_another_file_is_refused() -> None:
    costs = (make_cost("a"), make_cost("b"))
    assert kernel_costs.from_json(kernel_costs.to_json(costs)) == costs
    for text in ("{", "[[1, 2]]", "7"):
        with pytest.raises((ValueError, TypeError)):
            kernel_costs.from_json(text)


def test_the_candidates_are_the_same_in_every_run() -> None:
    first = [each.candidate_id for each in candidates((1, 8, 8), 8)]
    assert first == [each.candidate_id for each in candidates((1, 8, 8), 40)][:8]
    assert len(set(first)) == 8
    assert first[0] == "da0fcb42d60e"
    assert {each.input for each in candidates((3, 32, 32), 2)} != {each.input for each in candidates((1, 8, 8), 2)}


def test_the_picture_shows_ratios_and_the_costliest_kernels() -> None:
    found = rows([make_result("x", 2.0, 1.0), make_result("y", 1.0, 2.0)])
    networks = [row for row in found if row["row"] == "network"]
    assert over_onnxruntime(networks, "tvm_ms") == [2.0, 0.5]
    assert over_onnxruntime(networks, "torch_compile_ms") == [0.0, 0.0]
    (name, share, roofline, bound), _ = costliest(found)
    assert (name, bound) == ("kernel_b", "bytes")
    assert share == pytest.approx(40 / 44)
    assert roofline == pytest.approx(0.5)
    assert draw_kernels(found).startswith(b"\x89PNG")


def test_a_missing_cpp_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert missing_compiler() == (
        "torch.compile needs a C++ compiler: none of g++, clang++ is on the PATH; install g++"
    )
    monkeypatch.setenv("CXX", "/bin/sh")
    assert missing_compiler() is None
