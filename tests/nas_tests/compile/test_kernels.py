from __future__ import annotations

from collections.abc import Callable

import pytest

from nas.compile import compile_worker
from nas.compile.compile_worker import CompileRequest
from nas.compile.kernels import HEAVY_SHARE, KernelTask, tuned_coverage
from tests.nas_tests.compile import jobs
from tests.nas_tests.compile.candidates import RESIDUAL, SHALLOW, make_candidate
from tests.nas_tests.compile.conftest import InWorker


def test_operations_are_those_of_the_convolution_and_its_epilogue(shallow_kernels: dict[str, KernelTask]) -> None:
    # 1x1 from 32 to 96 channels over 8x8 pixels, two operations a multiply-accumulate, and the bias.
    assert shallow_kernels["fused_conv2d1_add11"].num_operations == 2 * 32 * 96 * 64 + 96 * 64


def test_the_kernels_with_most_work_come_first_and_hold_nearly_all_of_it(
    shallow_kernels: dict[str, KernelTask],
) -> None:
    work = [task.num_operations * task.num_uses for task in shallow_kernels.values()]
    assert work == sorted(work, reverse=True)
    heavy = {name for name, task in shallow_kernels.items() if task.is_heavy}
    assert heavy > {"fused_conv2d1_add11", "fused_conv2d_add_relu1", "fused_conv2d2_add_add21", "softmax1"}
    assert "transpose1" not in heavy
    assert all((task.num_operations >= HEAVY_SHARE * sum(work)) == task.is_heavy for task in shallow_kernels.values())
    assert (
        tuned_coverage(tuple(shallow_kernels.values()), frozenset(shallow_kernels[name].key for name in heavy)) > 0.98
    )


def test_a_kernel_that_recurs_is_one_task_with_its_number_of_uses(
    in_compile_worker: InWorker, make_request: Callable[..., CompileRequest]
) -> None:
    once = in_compile_worker(compile_worker.plan, make_request(make_candidate(RESIDUAL))).tasks
    twice = in_compile_worker(compile_worker.plan, make_request(make_candidate(RESIDUAL, RESIDUAL))).tasks
    uses = {task.key: task.num_uses for task in once}
    assert {task.key: task.num_uses - uses[task.key] for task in twice if task.num_uses != uses[task.key]} == {
        task.key: 1 for task in twice if task.num_uses == 2
    }
    assert len(twice) == len(once)
    assert sum(task.num_uses == 2 for task in twice) == 3, "expand, depthwise, project"


def test_weights_do_not_decide_a_key(
    in_compile_worker: InWorker,
    make_request: Callable[..., CompileRequest],
    shallow_kernels: dict[str, KernelTask],
) -> None:
    other = in_compile_worker(compile_worker.plan, make_request(SHALLOW, seed=1)).tasks
    assert {task.key for task in other} == {task.key for task in shallow_kernels.values()}


def test_a_key_is_the_same_in_another_process(
    in_tuning_worker: InWorker, shallow_kernels: dict[str, KernelTask]
) -> None:
    for task in shallow_kernels.values():
        assert in_tuning_worker(jobs.key_of, task.workload_json) == task.key


def test_kernels_of_one_network_have_different_keys(shallow_kernels: dict[str, KernelTask]) -> None:
    assert len({task.key for task in shallow_kernels.values()}) == len(shallow_kernels) == 15


@pytest.mark.parametrize(("known", "expected"), [((), 0.0), (("a",), 0.6), (("a", "b"), 1.0), (("unknown",), 0.0)])
def test_coverage_is_the_share_of_operations_not_of_kernels(known: tuple[str, ...], expected: float) -> None:
    def task(key: str, uses: int, operations: float) -> KernelTask:
        return KernelTask(
            key=key, name=key, num_uses=uses, num_operations=operations, is_heavy=True, workload_json=""
        )  # fmt: skip

    assert tuned_coverage((task("a", 2, 3.0), task("b", 1, 4.0), task("c", 9, 0.0)), frozenset(known)) == expected


def test_a_network_without_operations_counts_as_covered() -> None:
    assert tuned_coverage((), frozenset()) == 1.0


def test_importing_the_intrinsics_leaves_pythons_inspect_alone(in_tuning_worker: InWorker) -> None:
    assert in_tuning_worker(jobs.intrinsics_state) == (True, True)
