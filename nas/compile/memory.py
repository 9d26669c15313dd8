"""Whether a network's weights fit: into this machine's memory while it is exported, and into one file."""

from __future__ import annotations

from nas.errors import NasError
from search_spaces.candidate import Candidate
from search_spaces.layer import BYTES_PER_ELEMENT
from search_spaces.layers import num_params

ONE_PIECE_BYTES = (2 << 30) - (16 << 20)
"""Weights that an ONNX file can hold inside: protobuf messages end at 2 GiB (protobuf.dev, "Proto Limits"); the rest
is for the graph."""

BASE_BYTES = 1 << 30
"""Of a process with torch and its exporter, and of what a small network needs."""

TVM_COPIES = 5.0
ONE_PIECE_COPIES = 4.0
SPLIT_COPIES = 1.5
"""Times that the weights are in memory at the worst moment: while TVM lowers and builds, and while an ONNX file is
written with its weights inside and beside it. docs/scale.md has the measurements."""


class ModelTooLargeError(NasError):
    """A network that does not fit into memory, or into the kind of file that was asked for."""


def weights_bytes(candidate: Candidate) -> int:
    """Bytes of all parameters in float32."""
    return BYTES_PER_ELEMENT * num_params(candidate)


def require_memory(candidate: Candidate, copies: float, available_bytes: int | None = None) -> None:
    """Refuses a network that would run this machine out of memory, before anything is built.

    A process that runs out is killed without a word, and Linux may choose another process for that.

    Args:
        candidate: the network.
        copies: how many times its weights are in memory at the worst moment of what is to be done with it.
        available_bytes: of memory; None asks the machine.

    Raises:
        ModelTooLargeError: too little memory; says how much is needed.
    """
    import psutil

    available = psutil.virtual_memory().available if available_bytes is None else available_bytes
    weights = weights_bytes(candidate)
    needed = BASE_BYTES + int(copies * weights)
    if needed > available:
        raise ModelTooLargeError(
            f"{weights / 1e9:.2f} GB of weights need about {needed / 1e9:.1f} GB of memory here,"
            f" {available / 1e9:.1f} GB are available; end other work, or use a machine with more"
        )


def require_one_piece(candidate: Candidate) -> None:
    """Refuses a network whose weights do not fit into an ONNX file in one piece.

    Raises:
        ModelTooLargeError: they do not; says what can be done.
    """
    weights = weights_bytes(candidate)
    if weights > ONE_PIECE_BYTES:
        raise ModelTooLargeError(
            f"{weights / 1e9:.2f} GB of weights; an ONNX file in one piece holds at most"
            f" {ONE_PIECE_BYTES / 1e9:.2f} GB; nas export writes them beside the file"
        )
