from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profilers.artifact import Artifact
from profilers.errors import ProfilerError
from profilers.runtimes.onnxruntime import OnnxRuntime, make_onnx_artifact


def test_a_model_file_becomes_an_artifact_that_can_be_read_back(onnx_model: Path, tmp_path: Path) -> None:
    made = make_onnx_artifact(onnx_model, tmp_path / "a")
    assert Artifact.load(tmp_path / "a") == made
    made.verify()
    assert [spec.shape for spec in (*made.inputs, *made.outputs)] == [(1, 64), (1, 32)]
    assert (made.target, made.tuned_coverage) == ("any", None)
    again = make_onnx_artifact(onnx_model, tmp_path / "b")
    assert again.digest == made.digest


def test_given_inputs_and_reference_are_what_is_stored(onnx_model: Path, tmp_path: Path) -> None:
    x, y = np.ones((3, 64), np.float32), np.zeros((3, 32), np.float32)
    made = make_onnx_artifact(onnx_model, tmp_path / "a", inputs=[x], outputs=[y], candidate_id="c")
    assert (made.candidate_id, made.inputs[0].shape) == ("c", (3, 64))
    with np.load(made.path("parity.npz")) as arrays:
        assert np.array_equal(arrays["input_0"], x) and np.array_equal(arrays["output_0"], y)


def test_a_session_gives_the_outputs_of_its_inputs(onnx_model: Path, tmp_path: Path) -> None:
    made = make_onnx_artifact(onnx_model, tmp_path / "a")
    with np.load(made.path("parity.npz")) as arrays:
        session = OnnxRuntime().load(made, [arrays["input_0"]], 1)
        [output] = session.outputs(session.run())
        assert output == pytest.approx(arrays["output_0"], abs=1e-4)


def test_a_missing_file_and_a_file_that_is_no_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match="no such file"):
        make_onnx_artifact(tmp_path / "none.onnx", tmp_path / "a")
    (tmp_path / "bad.onnx").write_bytes(b"bad")
    with pytest.raises(ProfilerError, match="cannot load it"):
        make_onnx_artifact(tmp_path / "bad.onnx", tmp_path / "a")


def test_how_large_its_values_are_is_part_of_an_artifact_where_it_is_known(onnx_model: Path, tmp_path: Path) -> None:
    unknown = make_onnx_artifact(onnx_model, tmp_path / "a")
    known = make_onnx_artifact(onnx_model, tmp_path / "b", activation_bytes=4096)
    assert Artifact.load(unknown.folder).activation_bytes is None and "activation_bytes" not in unknown.to_json()
    assert Artifact.load(known.folder) == known and known.activation_bytes == 4096
    assert known.digest != unknown.digest
