"""Fashion-MNIST (Xiao, Rasul and Vollgraf 2017) from the files of Debian's package."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nas.training.data.assemble import MAX_DATA_BYTES, ImageSource, LabelledImages, image_task
from nas.training.task import Task, TaskError, TaskSettings, user_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package `dataset-fashion-mnist` puts the four files."""

CLASS_NAMES = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


def load_fashion_mnist(settings: TaskSettings) -> Task:
    """60 000 images for train and val, the data's own 10 000 for test; 28 x 28, one channel."""
    folder = user_path(settings.path) if settings.path else DEBIAN_FOLDER
    train, test = (_labelled(folder, prefix) for prefix in ("train", "t10k"))
    return image_task(settings, ImageSource(class_names=CLASS_NAMES, train=train, test=test))


def _labelled(folder: Path, prefix: str) -> LabelledImages:
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", num_axes=3)
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", num_axes=1)
    return LabelledImages(origin=str(folder / f"{prefix}-images-idx3-ubyte.gz"), images=images[:, None], labels=labels)


def read_idx(path: Path, *, num_axes: int) -> NDArray[np.uint8]:
    """Reads a gzipped IDX file of bytes (format: LeCun, Cortes and Burges, the MNIST database page).

    Raises:
        TaskError: missing, cut short, not gzip, not IDX, or larger than its header says.
    """
    try:
        with gzip.open(path, "rb") as file:
            header = file.read(4 + 4 * num_axes)
            if len(header) != 4 + 4 * num_axes or header[:4] != bytes([0, 0, 8, num_axes]):
                raise TaskError(f"{path}: not an IDX file of bytes with {num_axes} axes; it starts with {header[:4]!r}")
            shape = tuple(int(size) for size in np.frombuffer(header, dtype=">u4", offset=4))
            num_bytes = math.prod(shape)
            if num_bytes > MAX_DATA_BYTES:
                raise TaskError(f"{path}: declares shape {shape}; allowed: at most {MAX_DATA_BYTES} bytes")
            content = file.read(num_bytes)
            if len(content) != num_bytes or file.read(1):
                raise TaskError(f"{path}: its content does not fill shape {shape} exactly; install it again")
    except FileNotFoundError as error:
        hint = "run `apt-get install dataset-fashion-mnist`" if path.parent == DEBIAN_FOLDER else "check the path"
        raise TaskError(f"{path}: no such file; {hint}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise TaskError(f"{path}: cannot be read ({error}); install it again") from error
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
