from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from nas.training.data import npz
from nas.training.data.sources import load_task
from nas.training.task import Task, TaskError, TaskSettings
from search_spaces.candidate import BlockSpec
from tests.nas_tests.training.small_tasks import bright_half_images

IMAGES, LABELS = bright_half_images(80)


def _load(path: Path, **settings: Any) -> Task:
    return load_task(TaskSettings(name="npz", path=str(path), **settings))


def _save(path: Path, **arrays: NDArray[Any]) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def _jpegs(sizes: list[tuple[int, int]]) -> dict[str, NDArray[Any]]:
    generator, parts = np.random.default_rng(0), []
    for size in sizes:
        buffer = io.BytesIO()
        Image.fromarray(generator.integers(0, 255, (*size, 3), dtype=np.uint8)).save(buffer, "JPEG")
        parts.append(buffer.getvalue())
    return {
        "jpeg": np.frombuffer(b"".join(parts), dtype=np.uint8),
        "offsets": np.cumsum([0, *map(len, parts)]),
        "labels": np.arange(len(sizes)) % 2,
        "classes": np.array(["cat", "dog"]),
    }


@pytest.mark.parametrize("keys", [("x", "y"), ("images", "labels")])
def test_images_and_labels_are_read_under_both_names(tmp_path: Path, keys: tuple[str, str]) -> None:
    task = _load(_save(tmp_path / "a.npz", **{keys[0]: IMAGES, keys[1]: LABELS[:, None]}))
    assert task.input == BlockSpec.of("image", channels=1, height=6, width=6)
    assert task.class_names == ("0", "1", "2", "3")
    assert task.train.inputs.dtype == np.uint8


def test_the_layout_is_told_by_the_channels_or_by_the_setting(tmp_path: Path) -> None:
    last = _save(tmp_path / "last.npz", x=np.repeat(IMAGES.transpose(0, 2, 3, 1), 3, axis=3), y=LABELS)
    assert _load(last).input == BlockSpec.of("image", channels=3, height=6, width=6)
    flat = _save(tmp_path / "flat.npz", x=IMAGES[:, 0], y=LABELS)
    assert _load(flat).train.inputs.shape[1:] == (1, 6, 6)
    both = _save(tmp_path / "both.npz", x=IMAGES[:, :, :4, :3], y=LABELS)
    with pytest.raises(TaskError, match=r"set task\.layout"):
        _load(both)
    assert _load(both, layout="nchw").train.inputs.shape[1:] == (1, 4, 3)
    assert _load(both, layout="nhwc").train.inputs.shape[1:] == (3, 1, 4)


def test_a_second_file_is_the_test_split(tmp_path: Path) -> None:
    images, labels = bright_half_images(12, seed=3)
    test = _save(tmp_path / "test.npz", x=images, y=labels)
    task = _load(_save(tmp_path / "train.npz", x=IMAGES, y=LABELS), test_path=str(test))
    assert (task.test.inputs == images).all()


def test_jpeg_bytes_in_one_blob_are_decoded(tmp_path: Path) -> None:
    arrays = _jpegs([(8, 10)] * 12)
    task = _load(_save(tmp_path / "a.npz", **arrays))
    assert task.input == BlockSpec.of("image", channels=3, height=8, width=10)
    assert task.class_names == ("cat", "dog")
    small = _load(tmp_path / "a.npz", resize=(4, 5))
    assert small.train.inputs.shape[1:] == (3, 4, 5)


def test_bad_blobs_are_refused_by_name(tmp_path: Path) -> None:
    good = _jpegs([(8, 8)] * 12)
    torn = good["jpeg"].copy()
    torn[int(good["offsets"][3]) : int(good["offsets"][4])] = 0
    shuffled = good["offsets"].copy()
    shuffled[2] = shuffled[1]
    beyond = good["offsets"].copy()
    beyond[-1] += 5
    cases = [
        ({**good, "jpeg": torn}, "image 3: not a readable PNG or JPEG"),
        ({**good, "offsets": shuffled}, "offsets must rise"),
        ({**good, "offsets": beyond}, "offsets must rise"),
        ({**good, "offsets": good["offsets"][:-1]}, "offsets must rise"),
        ({**good, "labels": good["labels"][:-1]}, "12 images but 11 labels"),
        ({**good, "offsets": good["offsets"].astype(float)}, "offsets whole numbers"),
        (_jpegs([(8, 8)] * 11 + [(8, 9)]), "image 11: 8 x 9 pixels"),
        ({"jpeg": good["jpeg"], "labels": good["labels"]}, "'offsets' is missing"),
    ]
    for arrays, message in cases:
        with pytest.raises(TaskError, match=rf"bad\.npz.*{message}"):
            _load(_save(tmp_path / "bad.npz", **arrays))


def test_missing_torn_and_foreign_files_are_one_clear_line(tmp_path: Path) -> None:
    good = _save(tmp_path / "good.npz", x=IMAGES, y=LABELS).read_bytes()
    flipped = bytearray(good)
    flipped[good.find(b"x.npy") + 400] ^= 0xFF
    text, torn, bad = tmp_path / "text.npz", tmp_path / "torn.npz", tmp_path / "flipped.npz"
    text.write_text("hello")
    torn.write_bytes(good[: len(good) // 2])
    bad.write_bytes(flipped)
    for path in (tmp_path / "none.npz", text, torn, bad, tmp_path):
        with pytest.raises(TaskError) as caught:
            _load(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(TaskError, match=r"set task\.path"):
        load_task(TaskSettings(name="npz"))


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "objects.npz"
    np.savez(path, x=np.array([{"a": 1}] * 80, dtype=object), y=LABELS)
    with pytest.raises(TaskError, match="holds Python objects"):
        _load(path)


def _npz_with_header(path: Path, shape: tuple[int, ...], content: bytes) -> Path:
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content)
    return path


@pytest.mark.parametrize("shape", [(10**6, 1, 1000, 1000), (-1, 1, 6, 6), (81, 1, 6, 6), (10**30,)])
def test_a_header_that_declares_more_than_the_file_holds_is_refused_before_memory_is_taken(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    with pytest.raises(TaskError, match="the file is damaged"):
        _load(_npz_with_header(tmp_path / "huge.npz", shape, IMAGES.tobytes()))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _save(tmp_path / "bomb.npz", x=np.zeros((1000, 1, 100, 100), dtype=np.uint8), y=LABELS)
    monkeypatch.setattr(npz, "MAX_DATA_BYTES", 10**6)
    with pytest.raises(TaskError, match="unpacks to 10"):
        _load(path)


def test_arrays_under_other_names_and_resize_without_encoded_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"arrays \['a', 'b'\]; allowed: x and y"):
        _load(_save(tmp_path / "names.npz", a=IMAGES, b=LABELS))
    with pytest.raises(TaskError, match="array 'y' is missing"):
        _load(_save(tmp_path / "half.npz", x=IMAGES))
    with pytest.raises(TaskError, match="resize is for encoded images"):
        _load(_save(tmp_path / "arrays.npz", x=IMAGES, y=LABELS), resize=(4, 4))


@pytest.mark.parametrize(
    "labels", [LABELS.astype(float), LABELS - 3, LABELS * 10**12, LABELS[:0], np.array(["a"] * 80)]
)
def test_labels_that_are_not_classes_are_refused(tmp_path: Path, labels: NDArray[Any]) -> None:
    with pytest.raises(TaskError, match=r"a\.npz"):
        _load(_save(tmp_path / "a.npz", x=IMAGES, y=labels))


def test_a_label_without_an_axis_is_refused(tmp_path: Path) -> None:
    path = _save(tmp_path / "data.npz", x=np.zeros((4, 8, 8), dtype=np.uint8), y=np.int64(1))
    with pytest.raises(TaskError, match="one an image"):
        _load(path)
