"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save_model(path: Path, *, shape: Sequence[int | str] = ("batch", 3, 8, 8), operator: str = "Relu") -> Path:
    """A convolution, an operator and a mean, with weights inside."""
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node(operator, ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def save_with_external_data(path: Path, location: str) -> Path:
    """The same model, its weights in the file `location`, which is only named and not written."""
    model = onnx.load(save_model(path))
    (tensor,) = model.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path.write_bytes(model.SerializeToString())
    return path
