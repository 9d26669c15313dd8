from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from profilers.artifact import Artifact, hash_file
from profilers.device import local_device
from profilers.local import LocalProfiler
from profilers.measurement import MeasureProtocol
from profilers.runtimes.onnxruntime import make_onnx_artifact
from search_spaces.candidate import TensorSpec

QUICK = MeasureProtocol(
    num_processes=1, blocks_per_process=2, max_blocks_per_process=2, block_ms=2.0, warmup_max_s=0.3, timeout_s=60.0
)
"""Too short to be worth anything, which is all the same to what these tests look at."""

_BUILD_TVM = """
import sys
import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((8, 64), "float32"), w: R.Tensor((64, 32), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z

weights = np.load(sys.argv[1])
module = relax.transform.BindParams("main", {"w": weights})(Module)
tvm.compile(module, target=tvm.target.Target(sys.argv[2])).export_library(sys.argv[3])
"""


@pytest.fixture
def quick() -> MeasureProtocol:
    return QUICK


@pytest.fixture
def make_profiler(tmp_path: Path) -> Callable[..., LocalProfiler]:
    def make(**options: object) -> LocalProfiler:
        return LocalProfiler(folder=tmp_path / "state", quiet_timeout_s=0.0, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def onnx_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """relu(x @ w) with an open batch size."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 32])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("onnx") / "tiny.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def onnx_artifact(onnx_model: Path, tmp_path: Path) -> Artifact:
    return make_onnx_artifact(onnx_model, tmp_path / "onnx_artifact")


@pytest.fixture(scope="session")
def tvm_artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The same network, compiled in a process of its own: `import tvm` is not for this one."""
    folder = tmp_path_factory.mktemp("tvm_artifact")
    random = np.random.default_rng(0)
    weights = random.standard_normal((64, 32)).astype(np.float32)
    x = random.standard_normal((8, 64)).astype(np.float32)
    np.save(folder / "w.npy", weights)
    # From a file: TVMScript reads its functions' source.
    (folder / "build.py").write_text(_BUILD_TVM)
    target = local_device(1).target
    command = [sys.executable, "build.py", "w.npy", target, "model.so"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    np.savez(folder / "parity.npz", input_0=x, output_0=np.maximum(x @ weights, 0))
    artifact = Artifact(
        folder=folder,
        candidate_id="0123456789ab",
        phase="infer",
        runtime="tvm",
        target=target,
        precision="float32",
        num_threads=1,
        inputs=(TensorSpec(name="x", shape=(8, 64)),),
        outputs=(TensorSpec(name="z", shape=(8, 32)),),
        files=tuple((name, hash_file(folder / name)) for name in ("model.so", "parity.npz")),
        tuned_coverage=0.0,
        model_bytes=(folder / "model.so").stat().st_size,
    )
    artifact.save()
    return artifact
