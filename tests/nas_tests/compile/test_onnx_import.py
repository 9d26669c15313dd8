from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nas.compile import compile_worker
from nas.compile.compile_worker import CompilePlan
from nas.compile.onnx_import import OnnxRequest
from nas.compile.workers import WorkerFailure, WorkerPool
from nas.profile.onnx_jobs import PreparedModel, prepare_model
from tests.nas_tests.profile.models import save_model


def request_of(folder: Path, target: str) -> OnnxRequest:
    prepared = prepare_model(str(save_model(folder / "m.onnx")), {}, str(folder), 1)
    assert isinstance(prepared, PreparedModel)
    return OnnxRequest(model=prepared.folded, arrays=str(Path(prepared.artifact_folder) / "parity.npz"), target=target)


def test_a_model_becomes_kernels_and_a_library(compile_pool: WorkerPool[object], target: str, tmp_path: Path) -> None:
    request = request_of(tmp_path, target)
    plan = compile_pool.run(compile_worker.plan, request, timeout_s=120)
    assert isinstance(plan, CompilePlan)
    assert any("conv2d" in task.name for task in plan.tasks)
    (tmp_path / "built").mkdir()
    built = compile_pool.run(
        compile_worker.build, request, {}, str(tmp_path / "built"), str(tmp_path / "objects"), timeout_s=120
    )
    assert isinstance(built, compile_worker.BuiltFiles), built
    assert [spec.shape for spec in built.inputs] == [(1, 3, 8, 8)]
    assert (tmp_path / "built/model.so").is_file()


def test_an_operator_that_cannot_be_imported_is_named(
    compile_pool: WorkerPool[object], target: str, tmp_path: Path
) -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in ("x", "y")]
    graph = helper.make_graph([node], "odd", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "arrays.npz", input_0=np.zeros((1, 3), np.float32), output_0=np.zeros((1, 3), np.float32))
    request = OnnxRequest(model=str(tmp_path / "m.onnx"), arrays=str(tmp_path / "arrays.npz"), target=target)
    failure = compile_pool.run(compile_worker.plan, request, timeout_s=120)
    assert isinstance(failure, WorkerFailure)
    assert "cannot import the operators Frobnicate" in failure.reason


def test_another_file_of_the_same_name_is_another_model(
    compile_pool: WorkerPool[object], target: str, tmp_path: Path
) -> None:
    request = request_of(tmp_path, target)
    first = compile_pool.run(compile_worker.plan, request, timeout_s=120)
    prepare_model(str(save_model(tmp_path / "m.onnx", operator="Sigmoid")), {}, str(tmp_path), 1)
    second = compile_pool.run(compile_worker.plan, request, timeout_s=120)
    assert isinstance(first, CompilePlan) and isinstance(second, CompilePlan)
    assert {task.key for task in first.tasks} != {task.key for task in second.tasks}


@pytest.mark.slow
def test_quantised_models_are_compared_with_float32(tmp_path: Path) -> None:
    from nas.profile.onnx_jobs import quantise
    from profilers.artifact import Artifact

    prepared = prepare_model(str(save_model(tmp_path / "m.onnx")), {}, str(tmp_path), 1)
    assert isinstance(prepared, PreparedModel)
    made = quantise(prepared.artifact_folder, prepared.folded, str(tmp_path / "int8"))
    assert isinstance(made, str)
    int8, float32 = Artifact.load(Path(made)), Artifact.load(Path(prepared.artifact_folder))
    assert int8.precision == "int8"
    assert dict(int8.files)["model.onnx"] != dict(float32.files)["model.onnx"]
