"""NumPy archives: `x`/`y`, `images`/`labels`, or JPEG bytes in one blob."""

from __future__ import annotations

import io
import lzma
import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nas.training.data.assemble import MAX_DATA_BYTES, ImageSource, LabelledImages, image_task
from nas.training.data.encoded_images import OpenBytes, decode_images
from nas.training.task import Task, TaskError, TaskSettings, user_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMAGE_KEYS = (("x", "y"), ("images", "labels"))
LAYOUT_HINT = "N x H x W, N x C x H x W or N x H x W x C with 1, 3 or 4 channels"


def load_npz(settings: TaskSettings) -> Task:
    """Reads `path`, and `test_path` if there is one; without it test is split off."""
    if settings.path is None:
        raise TaskError("task 'npz': path is missing; set task.path (--data-path) to a .npz file")
    train_names, train = _labelled(user_path(settings.path), settings)
    test_names, test = _labelled(user_path(settings.test_path), settings) if settings.test_path else (train_names, None)
    if train_names and test_names and train_names != test_names:
        raise TaskError(f"{settings.test_path}: classes {test_names} differ from those of {settings.path}")
    names = train_names or tuple(str(label) for label in range(_num_labels(train)))
    return image_task(settings, ImageSource(class_names=names, train=train, test=test))


_UNREADABLE = (
    OSError, EOFError, ValueError, RuntimeError, NotImplementedError, MemoryError, SyntaxError,
    tokenize.TokenError, lzma.LZMAError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What zipfile, numpy's header parser and the decompressors raise for a file that is damaged."""


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """Reads every array of an npz file without trusting what it declares.

    `numpy.load` allocates whatever shape a header names; here the header is compared with the
    member's size first, and pickled objects are never loaded.

    Raises:
        TaskError: missing, cut short, not an npz file, object arrays, or too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            declared = sum(member.file_size for member in archive.infolist())
            if declared > MAX_DATA_BYTES:
                raise TaskError(f"{path}: unpacks to {declared} bytes; allowed: {MAX_DATA_BYTES}")
            return {
                member.filename.removesuffix(".npy"): _read_member(path, archive, member)
                for member in archive.infolist()
                if member.filename.endswith(".npy")
            }
    except FileNotFoundError as error:
        raise TaskError(f"{path}: no such file; allowed: a .npz file") from error
    except TaskError:
        raise
    except _UNREADABLE as error:
        raise TaskError(f"{path}: not a readable .npz file ({error})") from error


def _read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise TaskError(f"{path}: {member.filename} has format version {version}; allowed: (1, 0) and (2, 0)")
        if dtype.hasobject:
            raise TaskError(f"{path}: {member.filename} holds Python objects; allowed: plain numbers and text")
        num_bytes = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or num_bytes != member.file_size - file.tell():
            raise TaskError(
                f"{path}: {member.filename} declares shape {shape}, {num_bytes} bytes, but holds "
                f"{member.file_size - file.tell()}; the file is damaged"
            )
    with archive.open(member) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        file.read(1)  # reaching the end makes zipfile compare the checksum
    return array


def _labelled(path: Path, settings: TaskSettings) -> tuple[tuple[str, ...], LabelledImages]:
    """Class names (empty when the file has none) and the images of one file."""
    arrays = read_archive(path)
    if "jpeg" in arrays:
        images, labels = _decode_blob(path, arrays, settings), _need(path, arrays, "labels")
    else:
        if settings.resize is not None:
            raise TaskError(f"{path}: task.resize is for encoded images, and this file holds arrays; leave it out")
        keys = next((pair for pair in IMAGE_KEYS if pair[0] in arrays), None)
        if keys is None:
            raise TaskError(
                f"{path}: arrays {sorted(arrays)}; allowed: x and y, images and labels, or jpeg, offsets and labels"
            )
        images = _to_nchw(path, arrays[keys[0]], settings.layout)
        labels = _need(path, arrays, keys[1])
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    classes = arrays.get("classes", np.array([], dtype=str))
    if classes.ndim != 1:
        raise TaskError(f"{path}: classes of shape {classes.shape}; allowed: one name a class")
    return tuple(str(name) for name in classes), LabelledImages(origin=str(path), images=images, labels=labels)


def _need(path: Path, arrays: dict[str, NDArray[Any]], key: str) -> NDArray[Any]:
    if key not in arrays:
        raise TaskError(f"{path}: array {key!r} is missing; it has {sorted(arrays)}")
    return arrays[key]


def _num_labels(part: LabelledImages) -> int:
    """Classes that labels from 0 imply; anything stranger is refused by `image_task`."""
    if part.labels.ndim != 1 or part.labels.size == 0 or part.labels.dtype.kind not in "ui":
        seen = f"labels of type {part.labels.dtype}, shape {part.labels.shape}"
        raise TaskError(f"{part.origin}: {seen}; allowed: whole numbers from 0, one an image")
    return min(int(part.labels.max()) + 1, len(part.labels))


def _to_nchw(path: Path, images: NDArray[Any], layout: Literal["auto", "nchw", "nhwc"]) -> NDArray[Any]:
    if images.ndim == 3:
        return images[:, None]
    if images.ndim != 4:
        raise TaskError(f"{path}: images of shape {images.shape}; allowed: {LAYOUT_HINT}")
    is_first, is_last = images.shape[1] in (1, 3, 4), images.shape[3] in (1, 3, 4)
    if layout == "auto" and is_first == is_last:
        raise TaskError(f"{path}: shape {images.shape} does not tell where the channels are; set task.layout")
    if layout == "nhwc" or (layout == "auto" and is_last):
        return images.transpose(0, 3, 1, 2)
    return images


def _decode_blob(path: Path, arrays: dict[str, NDArray[Any]], settings: TaskSettings) -> NDArray[np.uint8]:
    """JPEG images laid end to end: image i is `jpeg[offsets[i]:offsets[i + 1]]`."""
    blob, offsets = arrays["jpeg"], _need(path, arrays, "offsets")
    is_plain = blob.dtype == np.uint8 and blob.ndim == 1 and offsets.ndim == 1 and offsets.dtype.kind in "ui"
    if not is_plain or len(offsets) < 2:
        raise TaskError(f"{path}: jpeg must be uint8 bytes and offsets whole numbers, one more than the images")
    steps = np.diff(offsets.astype(np.int64))
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(blob) or (steps <= 0).any():
        raise TaskError(f"{path}: offsets must rise from 0 to the {len(blob)} bytes of jpeg")
    content = blob.tobytes()

    def source(index: int) -> tuple[str, OpenBytes]:
        start, end = int(offsets[index]), int(offsets[index + 1])
        return f"{path} image {index}", lambda: io.BytesIO(content[start:end])

    return decode_images([source(index) for index in range(len(offsets) - 1)], resize=settings.resize)
