"""Networks made for measuring the measuring: how long they take is under our control."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from profilers.artifact import Artifact
from profilers.runtimes.runtime import Array

if TYPE_CHECKING:
    import onnx

CHAIN_LAYERS = 33
"""Equal layers in the chain; one more is 3.0% more work."""

WIDE_CHANNELS = 32
_CHANNELS, _SIZE = 16, 44
"""Two maps of 124 KB and all weights: what a core keeps in a private cache of 1 MiB. A chain of 32 channels
did not fit, and varied by 1.8% between processes instead of 0.3%: that is the shared cache, not the timing."""

_STREAM_ROWS = 4096
_STREAM_LAYERS = 2
"""Two square layers of 64 MiB each: twice what any shared cache keeps for one of many users."""


def make_chain(
    folder: Path, num_layers: int = CHAIN_LAYERS, *, channels: int = _CHANNELS, num_threads: int = 1
) -> Artifact:
    """`num_layers` equal 3x3 convolutions for ONNX Runtime: some 2 ms on one core, all in its cache.

    With `WIDE_CHANNELS` it outgrows a private cache of 1 MiB and lives in the shared one.
    """
    from onnx import TensorProto, helper

    shape = [1, channels, _SIZE, _SIZE]
    # Scaled so that values neither grow nor vanish along the chain (He et al. 2015, equation 10).
    weights = np.random.default_rng(1).standard_normal((num_layers, channels, channels, 3, 3))
    weights *= (2 / (channels * 9)) ** 0.5
    nodes, tensors = [], []
    for layer in range(num_layers):
        tensors.append(_constant(f"w{layer}", weights[layer].astype(np.float32)))
        nodes.append(helper.make_node("Conv", [f"x{layer}", f"w{layer}"], [f"a{layer}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"a{layer}"], [f"x{layer + 1}"]))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"x{num_layers}", TensorProto.FLOAT, shape)],
        tensors,
    )
    return _artifact(graph, folder, num_threads)


def make_stream(folder: Path, *, num_threads: int = 1) -> Artifact:
    """Matrix times vector, 128 MiB of weights for ONNX Runtime: it moves memory and does little else."""
    from onnx import TensorProto, helper

    side = _STREAM_ROWS
    random = np.random.default_rng(2)
    nodes, tensors = [], []
    for layer in range(_STREAM_LAYERS):
        weights = (random.random((side, side), dtype=np.float32) - 0.5) / 32
        tensors.append(_constant(f"w{layer}", weights))
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))
    graph = helper.make_graph(
        nodes,
        "stream",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, side])],
        [helper.make_tensor_value_info(f"x{_STREAM_LAYERS}", TensorProto.FLOAT, [1, side])],
        tensors,
    )
    return _artifact(graph, folder, num_threads)


def _constant(name: str, values: Array) -> onnx.TensorProto:
    from onnx import numpy_helper

    return numpy_helper.from_array(values, name)


def _artifact(graph: onnx.GraphProto, folder: Path, num_threads: int) -> Artifact:
    import onnx
    from onnx import helper

    from nas.profile.onnx_file import planned_memory_bytes
    from profilers.runtimes.onnxruntime import make_onnx_artifact

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "source.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    activation_bytes = planned_memory_bytes(model)
    artifact = make_onnx_artifact(path, folder, num_threads=num_threads, activation_bytes=activation_bytes)
    path.unlink()
    return artifact
