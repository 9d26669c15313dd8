"""Saves and loads training state so that a kill at any instant loses at most one epoch, a torn file two."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

CHECKPOINT_PATTERN = "checkpoint-{step:09d}.pt"


NUM_KEPT = 2
"""Newest states of a training that are kept: when the last one is torn, the one before is used."""


class CheckpointError(ValueError):
    """A file of weights or training state that is missing, torn, or cannot be written."""


def save_state(path: Path, state: Mapping[str, Any]) -> str:
    """Writes `state` (tensors and plain values) and its SHA-256 beside it, each atomically.

    The sidecar `<name>.sha256` comes last and is in the format of `sha256sum -c`, so a file without
    a matching sidecar is one whose writer was killed.

    Returns:
        The SHA-256; the same state always gives the same one.

    Raises:
        CheckpointError: the folder cannot be written to, for instance a full disk.
    """
    import torch

    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    content = buffer.getvalue()
    sha256 = hashlib.sha256(content).hexdigest()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
        write_atomically(sidecar_of(path), f"{sha256}  {path.name}\n".encode())
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error}); free some space or choose another --out"
        ) from error
    return sha256


def load_state(path: Path, *, sha256: str | None = None) -> dict[str, Any]:
    """Reads what `save_state` wrote, after its hash matched; nothing in it is executed.

    Args:
        path: the file.
        sha256: the hash it must have; None takes the one from the sidecar.

    Raises:
        CheckpointError: missing, torn, changed, or not a file of tensors.
    """
    import torch

    try:
        content = path.read_bytes()
        expected = sha256 or sidecar_of(path).read_text(encoding="ascii").split()[0]
    except (OSError, UnicodeDecodeError, IndexError) as error:
        raise CheckpointError(f"{path}: missing, or no readable {sidecar_of(path).name} beside it ({error})") from error
    actual = hashlib.sha256(content).hexdigest()
    if actual != expected:
        raise CheckpointError(f"{path}: SHA-256 is {actual[:12]}..., expected {expected[:12]}...; the file is damaged")
    try:
        # From the bytes that were hashed, not from the path again: it may have changed in between.
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path}: not a file of tensors ({str(error).splitlines()[0]})") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: holds a {type(state).__name__}; allowed: a dictionary of tensors")
    return state


def save_checkpoint(folder: Path, *, step: int, identity: str, state: Mapping[str, Any]) -> None:
    """Saves the state after `step`, then removes all but the newest `NUM_KEPT`; those of another training first."""
    path = folder / CHECKPOINT_PATTERN.format(step=step)
    save_state(path, {**state, "step": step, "identity": identity})
    earlier = [other for other in checkpoints_in(folder) if other != path]
    later = [other for other in earlier if other.name > path.name]  # of a training that was not continued
    for other in (*later, *[other for other in earlier if other not in later][: 1 - NUM_KEPT]):
        _remove(other)


def latest_checkpoint(folder: Path, *, identity: str) -> dict[str, Any] | None:
    """The newest whole state of the training called `identity`; None means start from the beginning.

    A torn file, or one of another candidate, recipe, seed or data, is passed over with a warning in
    the log: it costs time, never a wrong result.
    """
    for path in reversed(checkpoints_in(folder)):
        try:
            state = load_state(path)
        except CheckpointError as error:
            logger.warning("passed over: %s", error)
            continue
        if state.get("identity") == identity:
            return state
        logger.warning("passed over: %s belongs to another candidate, recipe, seed or data", path)
    return None


def damaged_checkpoints(folder: Path) -> tuple[str, ...]:
    """Why each state in `folder` that cannot be used cannot be; empty when all are whole."""
    complaints = []
    for path in checkpoints_in(folder):
        try:
            load_state(path)
        except CheckpointError as error:
            complaints.append(str(error))
    return tuple(complaints)


def remove_checkpoints(folder: Path) -> None:
    """Removes every state of an unfinished training; final weights stay."""
    for path in checkpoints_in(folder):
        _remove(path)


def sidecar_of(path: Path) -> Path:
    """Where the hash of `path` is kept.

    >>> sidecar_of(Path("weights.pt")).name
    'weights.pt.sha256'
    """
    return path.with_name(path.name + ".sha256")


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces `path` so that a reader sees the old content or the new, also after a power cut.

    Raises:
        OSError: nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself durable, where the system lets a folder be opened (not on Windows)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checkpoints_in(folder: Path) -> list[Path]:
    """Oldest first: the step in the name has a fixed width."""
    return sorted(folder.glob("checkpoint-*.pt"))


def _remove(path: Path) -> None:
    sidecar_of(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)
