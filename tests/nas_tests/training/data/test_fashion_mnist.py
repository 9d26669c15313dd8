from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from nas.training.data import fashion_mnist
from nas.training.data.fashion_mnist import DEBIAN_FOLDER, read_idx
from nas.training.data.sources import load_task
from nas.training.task import TaskError, TaskSettings
from search_spaces.candidate import BlockSpec


def _idx(shape: tuple[int, ...], content: bytes, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + content


def _write(folder: Path, prefix: str, num: int) -> None:
    generator = np.random.default_rng(num)
    images = generator.integers(0, 255, (num, 28, 28), dtype=np.uint8)
    labels = (np.arange(num) % 10).astype(np.uint8)
    (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(_idx(images.shape, images.tobytes())))
    (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(_idx(labels.shape, labels.tobytes())))


def test_train_is_split_and_the_own_test_is_kept(tmp_path: Path) -> None:
    _write(tmp_path, "train", 120)
    _write(tmp_path, "t10k", 20)
    task = load_task(TaskSettings(name="fashion-mnist", path=str(tmp_path)))
    assert (len(task.train), len(task.val), len(task.test)) == (90, 30, 20)
    assert task.input == BlockSpec.of("image", channels=1, height=28, width=28)
    assert task.class_names[9] == "ankle boot"


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path)
    with pytest.raises(TaskError, match="apt-get install dataset-fashion-mnist") as caught:
        load_task(TaskSettings(name="fashion-mnist"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"plain",
        gzip.compress(b"\0\0"),
        gzip.compress(_idx((3, 2, 2), bytes(11))),
        gzip.compress(_idx((3, 2, 2), bytes(13))),
        gzip.compress(_idx((3, 2, 2), bytes(12)))[:-9],
        gzip.compress(_idx((3, 2, 2), bytes(12), kind=13)),
        gzip.compress(_idx((3, 2), bytes(6))),
        gzip.compress(_idx((2**32 - 1, 2**32 - 1, 2**32 - 1), bytes(12))),
    ],
)
def test_torn_and_foreign_files_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(TaskError, match=r"images\.gz: "):
        read_idx(path, num_axes=3)


@pytest.mark.skipif(not DEBIAN_FOLDER.is_dir(), reason="Debian package dataset-fashion-mnist is not installed")
def test_the_debian_package_loads() -> None:
    task = load_task(TaskSettings(name="fashion-mnist", max_train_examples=1000))
    assert (len(task.train), len(task.val), len(task.test)) == (1000, 15000, 10000)
