from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nas.compile.compile_worker import PARITY_NAME, CompileRequest
from nas.compile.onnx import MODEL_NAME, export_onnx
from nas.gates.parity import RELATIVE_TOLERANCE
from tests.nas_tests.compile.candidates import SHALLOW


def test_an_export_is_silent_complete_and_gives_torchs_answers(
    make_request: Callable[..., CompileRequest], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import onnx
    import onnxruntime

    built = export_onnx(make_request(SHALLOW), str(tmp_path))
    assert capfd.readouterr() == ("", ""), "the exporter's chatter would spoil a report"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(built.names), "weights are inside"
    model = onnx.load(tmp_path / MODEL_NAME)
    assert "BatchNormalization" not in {node.op_type for node in model.graph.node}
    assert [spec.name for spec in built.inputs] == [value.name for value in model.graph.input] == ["image"]
    assert [spec.name for spec in built.outputs] == [value.name for value in model.graph.output]

    session = onnxruntime.InferenceSession(str(tmp_path / MODEL_NAME), providers=["CPUExecutionProvider"])
    with np.load(tmp_path / PARITY_NAME) as arrays:
        (output,) = session.run(None, {"image": arrays["input_0"]})
        expected = arrays["output_0"]
    assert np.abs(expected).max() > 0.01
    assert np.abs(output - expected).max() <= RELATIVE_TOLERANCE * max(1.0, float(np.abs(expected).max()))
