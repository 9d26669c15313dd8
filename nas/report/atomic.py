"""Writes a file so that a reader, or a kill at any instant, sees the old content or the new one, never half."""

from __future__ import annotations

import os
from pathlib import Path

from nas.errors import NasError


class ReportError(NasError):
    """A results file could not be written; what was there before is still there."""


def write_atomic(path: Path, content: bytes) -> None:
    """Replaces the content of `path`.

    Raises:
        ReportError: the folder is missing, not writable, or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ReportError(
            f"{path}: cannot be written: {error.strerror}; check the folder and the space on the disk,"
            " then run the same command again"
        ) from error
