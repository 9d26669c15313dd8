"""Decodes PNG and JPEG images from strangers, within limits."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from nas.training.data.assemble import MAX_DATA_BYTES
from nas.training.task import TaskError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

MAX_PIXELS = 2**24
"""Largest image that is decoded: 4096 x 4096, far above what an edge classifier is fed."""

FORMATS = ("PNG", "JPEG")
GREY_MODES = ("1", "L")
KNOWN_MODES = (*GREY_MODES, "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")

OpenBytes = Callable[[], "IO[bytes] | Path"]
"""Gives a fresh file object, or a path, each time it is called."""


def decode_images(
    sources: Sequence[tuple[str, OpenBytes]], *, resize: tuple[int, int] | None, num_channels: int | None = None
) -> NDArray[np.uint8]:
    """Decodes every image to the same size and number of channels.

    Args:
        sources: (name for messages, how to open) of each image.
        resize: height and width to bring every image to; None demands equal sizes.
        num_channels: 1 or 3; None means 1 when every image is grey, else 3.

    Returns:
        uint8, NCHW.

    Raises:
        TaskError: the first image that cannot be decoded, is too large, or differs in size.
    """
    if resize is not None and not all(1 <= size <= 4096 for size in resize):
        raise TaskError(f"task: resize is {resize}; allowed: height and width from 1 to 4096 pixels")
    headers = [_header(name, source) for name, source in sources]
    first_name, first_size = sources[0][0], headers[0][0]
    if resize is None:
        for (name, _), (size, _) in zip(sources, headers, strict=True):
            if size != first_size:
                raise TaskError(
                    f"{name}: {size[1]} x {size[0]} pixels, but {first_name} has {first_size[1]} x {first_size[0]}; "
                    "allowed: one size, or set task.resize = [height, width]"
                )
    height, width = resize if resize is not None else (first_size[1], first_size[0])
    channels = num_channels or channels_of(mode for _, mode in headers)
    if len(sources) * channels * height * width > MAX_DATA_BYTES:
        raise TaskError(
            f"{first_name}: {len(sources)} images of {height} x {width} need more than {MAX_DATA_BYTES} bytes; "
            "use fewer, or a smaller task.resize"
        )
    images = np.empty((len(sources), channels, height, width), dtype=np.uint8)
    for index, (name, source) in enumerate(sources):
        with _opened(name, source) as image:
            image = image.convert("L" if channels == 1 else "RGB")
            if image.size != (width, height):
                from PIL.Image import Resampling

                image = image.resize((width, height), Resampling.BILINEAR)
            pixels = np.asarray(image)
        images[index] = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
    return images


def modes_of(sources: Sequence[tuple[str, OpenBytes]]) -> list[str]:
    """Pillow's mode of each image, read from its header alone."""
    return [_header(name, source)[1] for name, source in sources]


def channels_of(modes: Iterator[str] | Sequence[str]) -> int:
    """1 when every mode is grey, else 3.

    >>> channels_of(["L", "1"]), channels_of(["L", "RGB"])
    (1, 3)
    """
    return 1 if all(mode in GREY_MODES for mode in modes) else 3


def _header(name: str, source: OpenBytes) -> tuple[tuple[int, int], str]:
    with _opened(name, source) as image:
        return image.size, image.mode


@contextmanager
def _opened(name: str, source: OpenBytes) -> Iterator[Image]:
    """An image of an allowed format, mode and size; every failure of the decoder is a TaskError."""
    from PIL import Image as pillow

    try:
        with warnings.catch_warnings():
            # Pillow only warns up to twice its limit; our own limit below is lower, so this is the belt.
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(source(), formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise TaskError(f"{name}: {image.width} x {image.height} pixels; allowed: {MAX_PIXELS} in all")
                if image.mode not in KNOWN_MODES:
                    raise TaskError(f"{name}: pixel mode {image.mode}; allowed: {', '.join(KNOWN_MODES)}")
                yield image
    except TaskError:
        raise
    except (
        OSError,
        ValueError,
        SyntaxError,  # Pillow's word for a broken PNG chunk
        EOFError,
        struct.error,
        zlib.error,
        pillow.DecompressionBombError,
        pillow.DecompressionBombWarning,
    ) as error:
        raise TaskError(f"{name}: not a readable PNG or JPEG image ({error})") from error
