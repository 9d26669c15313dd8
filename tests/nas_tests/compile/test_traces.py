from __future__ import annotations

import pytest

from nas.compile.kernels import KernelTask
from tests.nas_tests.compile import jobs
from tests.nas_tests.compile.conftest import InWorker


@pytest.mark.parametrize("kernel", ["fused_conv2d2_add_add21", "softmax1"])
def test_a_trace_makes_the_same_kernel_in_another_process(
    in_tuning_worker: InWorker,
    in_compile_worker: InWorker,
    shallow_kernels: dict[str, KernelTask],
    target: str,
    kernel: str,
) -> None:
    workload = shallow_kernels[kernel].workload_json
    drawn = in_tuning_worker(jobs.draw_schedules, workload, target, 16)[-3:]
    assert len(drawn) == 3
    modules = [module for _, module, _ in drawn]
    for trace, module, steps in drawn:
        assert ("TransformLayout" in steps) == (kernel == "fused_conv2d2_add_add21"), (
            "weights are prepacked by an index map"
        )
        assert in_compile_worker(jobs.replay_makes, workload, trace, module)
    assert not in_compile_worker(jobs.replay_makes, workload, drawn[0][0], workload), "a trace changes its kernel"
    assert len(set(modules)) > 1


def test_the_same_schedules_are_drawn_in_every_process(
    in_tuning_worker: InWorker, in_compile_worker: InWorker, shallow_kernels: dict[str, KernelTask], target: str
) -> None:
    workload = shallow_kernels["softmax1"].workload_json
    one, other = (worker(jobs.draw_schedules, workload, target, 2) for worker in (in_tuning_worker, in_compile_worker))
    for (trace, module, _), (_, other_module, _) in zip(one, other, strict=True):
        assert in_compile_worker(jobs.replay_makes, workload, trace, other_module)
        assert in_compile_worker(jobs.replay_makes, workload, trace, module)
