from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nas.training.data.sources import load_task
from nas.training.task import Task, TaskError, TaskSettings
from search_spaces.candidate import BlockSpec


def _fill(folder: Path, *, num: int = 6, size: tuple[int, int] = (8, 6), mode: str = "RGB", seed: int = 0) -> None:
    """Writes `num` images of (width, height) `size` into folder/{cat,dog}."""
    generator = np.random.default_rng(seed)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(num):
            pixels = generator.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
            Image.fromarray(pixels).convert(mode).save(folder / name / f"{index}.png")


def _load(root: Path, **settings: Any) -> Task:
    return load_task(TaskSettings(name="image-folder", path=str(root), **settings))


def test_folders_are_classes_and_colours_channels(tmp_path: Path) -> None:
    _fill(tmp_path / "colour")
    task = _load(tmp_path / "colour")
    assert task.input == BlockSpec.of("image", channels=3, height=6, width=8)
    assert task.class_names == ("cat", "dog")
    _fill(tmp_path / "grey", mode="L")
    assert _load(tmp_path / "grey").input == BlockSpec.of("image", channels=1, height=6, width=8)


def test_one_coloured_image_makes_all_splits_coloured(tmp_path: Path) -> None:
    _fill(tmp_path / "train", mode="L")
    _fill(tmp_path / "test", mode="RGB", seed=1)
    assert _load(tmp_path).train.inputs.shape[1] == 3


def test_split_folders_are_used_and_a_missing_one_is_drawn(tmp_path: Path) -> None:
    _fill(tmp_path / "train", num=12)
    _fill(tmp_path / "test", num=3, seed=1)
    task = _load(tmp_path)
    assert (len(task.train), len(task.val), len(task.test)) == (18, 6, 6)


def test_pixels_arrive_as_they_were_saved(tmp_path: Path) -> None:
    _fill(tmp_path)
    task = _load(tmp_path)
    stored = {np.asarray(Image.open(path)).transpose(2, 0, 1).tobytes() for path in tmp_path.rglob("*.png")}
    loaded = {image.tobytes() for split in (task.train, task.val, task.test) for image in split.inputs}
    assert loaded == stored


def test_unequal_sizes_name_the_first_offender_or_are_resized(tmp_path: Path) -> None:
    _fill(tmp_path)
    Image.new("RGB", (9, 6)).save(tmp_path / "dog" / "0.png")
    with pytest.raises(TaskError, match=r"dog.0\.png: 6 x 9 pixels.*resize"):
        _load(tmp_path)
    assert _load(tmp_path, resize=(4, 5)).train.inputs.shape[1:] == (3, 4, 5)
    with pytest.raises(TaskError, match="allowed: height and width from 1 to 4096"):
        _load(tmp_path, resize=(0, 5))


@pytest.mark.parametrize("content", [b"", b"not an image", "half"])
def test_a_broken_image_is_refused_by_name(tmp_path: Path, content: bytes | str) -> None:
    _fill(tmp_path, size=(60, 40))
    path = tmp_path / "dog" / "3.png"
    path.write_bytes(path.read_bytes()[:3000] if isinstance(content, str) else content)
    with pytest.raises(TaskError, match=r"dog.3\.png: not a readable") as caught:
        _load(tmp_path)
    assert "\n" not in str(caught.value)


def _png_that_declares(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("side", "message"),
    [(5000, "allowed: 16777216 in all"), (12000, "decompression bomb"), (60000, "decompression bomb")],
)
def test_a_decompression_bomb_is_refused_at_every_size(tmp_path: Path, side: int, message: str) -> None:
    _fill(tmp_path)
    (tmp_path / "cat" / "bomb.png").write_bytes(_png_that_declares(side, side))
    with pytest.raises(TaskError, match=rf"bomb\.png: .*{message}"):
        _load(tmp_path, resize=(4, 4))


def test_links_out_of_the_folder_are_refused_and_links_within_are_fine(tmp_path: Path) -> None:
    root, outside = tmp_path / "data", tmp_path / "outside"
    _fill(root)
    _fill(outside, seed=1)
    (root / "dog" / "inner.png").symlink_to(root / "dog" / "0.png")
    assert len(_load(root).train) > 0
    link = root / "dog" / "outer.png"
    link.symlink_to(outside / "dog" / "0.png")
    with pytest.raises(TaskError, match=r"outer\.png: a link to .*outside"):
        _load(root)
    link.unlink()
    (root / "fox").symlink_to(outside / "dog")
    with pytest.raises(TaskError, match="fox: a link to"):
        _load(root)


def test_empty_missing_and_unknown_classes_are_refused_by_name(tmp_path: Path) -> None:
    _fill(tmp_path / "a" / "train")
    _fill(tmp_path / "a" / "val", num=2, seed=1)
    (tmp_path / "a" / "val" / "fox").mkdir()
    with pytest.raises(TaskError, match=r"class folder\(s\) \['fox'\] that train has not"):
        _load(tmp_path / "a")
    _fill(tmp_path / "b")
    (tmp_path / "b" / "fox").mkdir()
    (tmp_path / "b" / "fox" / "notes.txt").write_text("none")
    with pytest.raises(TaskError, match="no images of class 'fox'"):
        _load(tmp_path / "b")
    (tmp_path / "c" / "only").mkdir(parents=True)
    with pytest.raises(TaskError, match="allowed: at least 2"):
        _load(tmp_path / "c")
    _fill(tmp_path / "d" / "test")
    with pytest.raises(TaskError, match="has test but no train"):
        _load(tmp_path / "d")
    with pytest.raises(TaskError, match="not a folder"):
        _load(tmp_path / "none")


def test_pipes_and_hidden_files_are_left_alone(tmp_path: Path) -> None:
    _fill(tmp_path)
    os.mkfifo(tmp_path / "cat" / "pipe.png")
    (tmp_path / ".thumbnails").mkdir()
    (tmp_path / "cat" / ".hidden.png").write_bytes(b"junk")
    task = _load(tmp_path)
    assert len(task.train) + len(task.val) + len(task.test) == 12
