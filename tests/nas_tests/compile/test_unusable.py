from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nas.compile import compile_worker
from nas.compile.compile_worker import CompileRequest
from nas.compile.database import KernelRecord
from nas.compile.kernels import KernelTask
from nas.compile.tvm import Compiled, CompileLimits, TvmCompiler
from nas.compile.workers import WorkerPool
from profilers.device import local_device
from tests.nas_tests.compile import jobs
from tests.nas_tests.compile.candidates import SHALLOW
from tests.nas_tests.compile.conftest import InWorker


@pytest.fixture
def compiler(tmp_path: Path, compile_pool: WorkerPool[Any]) -> Iterator[TvmCompiler]:
    """Shares the worker of the other tests, which takes seconds to import torch and TVM."""
    compiler = TvmCompiler(local_device(1), CompileLimits(tuning_trials=0), tmp_path / "cache")
    compiler._pool.close()
    compiler._pool = compile_pool
    yield compiler
    compiler._tuner.close()
    compiler.database.close()


def test_a_schedule_of_another_kernel_is_left_out_and_its_record_removed(
    compiler: TvmCompiler, shallow_kernels: dict[str, KernelTask], target: str, in_tuning_worker: InWorker
) -> None:
    mean, conv = shallow_kernels["mean1"], shallow_kernels["fused_conv2d1_add11"]
    ((trace, _, _),) = in_tuning_worker(jobs.draw_schedules, mean.workload_json, target, 1)
    for task in (mean, conv):
        compiler.database.put(record(task.key, trace))
    compiled = compiler.compile(SHALLOW, "infer")
    assert isinstance(compiled, Compiled), compiled
    assert [each.key for each in compiler.database.records()] == [mean.key]
    assert compiled.artifact.tuned_coverage is not None and compiled.artifact.tuned_coverage < 0.05
    assert isinstance(compiler.compile(SHALLOW, "infer"), Compiled)


@pytest.mark.parametrize("trace", ["{}", '{"root_index": 0, "nodes": [{"type": "s_tir.Trace"}]}', '"text"'])
def test_a_schedule_that_tvm_cannot_read_is_left_out(
    in_compile_worker: InWorker, make_request: Callable[..., CompileRequest], shallow_kernels: dict[str, KernelTask],
    tmp_path: Path, trace: str,
) -> None:  # fmt: skip
    key = shallow_kernels["mean1"].key
    folder = tmp_path / "built"
    folder.mkdir()
    built = in_compile_worker(compile_worker.build, make_request(SHALLOW), {key: trace}, str(folder), str(tmp_path))
    assert built.unusable == (key,)
    assert sorted(built.names) == sorted(path.name for path in folder.iterdir())


def record(key: str, trace: str) -> KernelRecord:
    return KernelRecord(key=key, name="n", trace_json=trace, latency_s=1.0, num_trials=1, num_failed=0)


def test_a_kernel_without_a_record_gets_the_most_promising_schedule(
    in_compile_worker: InWorker, make_request: Callable[..., CompileRequest]
) -> None:
    assert in_compile_worker(jobs.kernels_without_a_schedule, make_request(SHALLOW)) == []


def test_a_schedule_that_can_be_made_and_not_compiled_does_not_stop_the_network(
    in_compile_worker: InWorker, target: str, tmp_path: Path
) -> None:
    built = in_compile_worker(jobs.build_with_a_schedule_that_does_not_lower, target, str(tmp_path))
    assert "model.so" in built["names"]
    assert (tmp_path / "model.so").is_file()
    assert built["unusable"] == ()  # no record was to blame
