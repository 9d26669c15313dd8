from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from nas.profile.onnx_file import ModelFileError, fix_shapes, fold, planned_memory_bytes, read_model
from tests.nas_tests.profile.models import save_model, save_with_external_data


def complaint(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        read_model(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    assert "give the path of an .onnx model" in complaint(path)
    for content, words in (
        (b"", "empty"),
        (b"hello, world " * 10, "not an ONNX model"),
        (bytes(99), "not an ONNX model"),
    ):
        path.write_bytes(content)
        assert words in complaint(path)
    assert "give the path" in complaint(tmp_path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_model_is_refused_as_that(tmp_path: Path, share: float) -> None:
    content = save_model(tmp_path / "model.onnx").read_bytes()
    (tmp_path / "model.onnx").write_bytes(content[: int(share * len(content))])
    assert "damaged or truncated" in complaint(tmp_path / "model.onnx")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", ""])
def test_weights_outside_the_models_folder_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(4 * 3 * 3 * 3 * 4))
    (tmp_path / "inner").mkdir()
    assert "outside the model's folder" in complaint(save_with_external_data(tmp_path / "inner/model.onnx", location))


def test_a_link_does_not_lead_weights_outside_either(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(4 * 3 * 3 * 3 * 4))
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/w.bin").symlink_to(tmp_path / "secret.bin")
    assert "outside the model's folder" in complaint(save_with_external_data(tmp_path / "inner/model.onnx", "w.bin"))


def test_weights_beside_the_model_are_read_into_it(tmp_path: Path) -> None:
    values = np.arange(4 * 3 * 3 * 3, dtype=np.float32)
    path = save_with_external_data(tmp_path / "model.onnx", "w.bin")
    assert "which is missing" in complaint(path)
    (tmp_path / "w.bin").write_bytes(values.tobytes())
    (tensor,) = read_model(path).graph.initializer
    assert tensor.data_location == tensor.DEFAULT
    assert np.array_equal(onnx.numpy_helper.to_array(tensor).ravel(), values)


def sizes(model: onnx.ModelProto) -> list[int]:
    return [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim]


def test_an_open_batch_is_one_and_other_open_sizes_must_be_given(tmp_path: Path) -> None:
    path = save_model(tmp_path / "model.onnx")
    model = read_model(path)
    fix_shapes(model, {}, path)
    assert sizes(model) == [1, 3, 8, 8]
    path = save_model(tmp_path / "open.onnx", shape=("batch", 3, "height", "width"))
    with pytest.raises(ModelFileError, match=r"shape \?x3x\?x\?; give its sizes, for instance --input x:1x3x224x224"):
        fix_shapes(read_model(path), {}, path)
    model = read_model(path)
    fix_shapes(model, {"x": (2, 3, 16, 32)}, path)
    assert sizes(model) == [2, 3, 16, 32]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [({"z": (1,)}, "no input 'z'; its inputs: x"), ({"x": (1, 4, 8, 8)}, "does not fit"), ({"x": (3, 8, 8)}, "fit")],
)
def test_sizes_that_contradict_the_model_are_refused(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], words: str
) -> None:
    path = save_model(tmp_path / "model.onnx")
    with pytest.raises(ModelFileError, match=words):
        fix_shapes(read_model(path), shapes, path)


def test_planned_memory_is_what_lives_at_once(tmp_path: Path) -> None:
    path = save_model(tmp_path / "model.onnx")
    model = read_model(path)
    fix_shapes(model, {}, path)
    onnx.save(model, path)
    # Conv and Relu are fused by no basic optimisation: two maps of 4 x 8 x 8 floats live at once.
    assert planned_memory_bytes(fold(path, tmp_path / "folded.onnx")) == 2 * 4 * 8 * 8 * 4
