"""Reads text from files and folders of strangers, within limits."""

from __future__ import annotations

import gzip
import hashlib
import logging
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nas.training.task import TaskError

logger = logging.getLogger(__name__)

MAX_TEXT_BYTES = 2**30
"""Text of one task that is still accepted, decompressed: it is held in memory, on edge-class machines too."""

MAX_INVALID_SHARE = 0.1
"""Share of bytes that are not UTF-8 from which on a file is binary. Old encodings of European languages stay below 5%,
compressed and machine code are above 30%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """One file of text.

    Attributes:
        name: path, for messages and for the order of files of equal content.
        content: its bytes, decompressed.
    """

    name: str
    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the content: files that are equal have equal ones."""
        return hashlib.sha256(self.content).hexdigest()


def read_texts(
    root: Path, *, keep: Callable[[PurePosixPath], bool] | None = None, follow_links: bool = True
) -> tuple[TextFile, ...]:
    """Every text below a folder, sorted by path, or the one file that `root` is; `.gz` is decompressed.

    In a folder, hidden entries, empty files and files that are no text (see `why_no_text`) are passed over; a
    file that was named by itself is refused for it.

    Args:
        root: file or folder.
        keep: (path below the folder) -> whether to look at this file or folder; None looks at all.
        follow_links: False passes over links. True follows those that stay below `root` and refuses others.

    Raises:
        TaskError: missing, unreadable or too large, no text in it, or a link that leads out or round in a circle.
    """
    if not root.is_dir():
        content = _read(root, MAX_TEXT_BYTES)
        if (reason := why_no_text(content)) is not None:
            raise TaskError(f"{root}: {reason}; allowed: text, best in UTF-8")
        return (TextFile(name=root.name, content=content),)
    texts, reasons, room = [], [], MAX_TEXT_BYTES
    for path in sorted(_files_below(root, root, keep, follow_links, (root.resolve(),))):
        content = _read(path, room)
        if (reason := why_no_text(content)) is None:
            room -= len(content)
            texts.append(TextFile(name=path.relative_to(root).as_posix(), content=content))
        else:
            reasons.append(f"{path}: {reason}")
    if not texts:
        seen = f"{len(reasons)} files and no text (first: {reasons[0]})" if reasons else "no files"
        raise TaskError(f"{root}: {seen}; allowed: a folder with text files, best in UTF-8")
    if reasons:
        logger.info("%s: %d files passed over, first: %s", root, len(reasons), reasons[0])
    return tuple(texts)


def why_no_text(content: bytes) -> str | None:
    """Why bytes are not taken for text; None when they are.

    >>> why_no_text("Grüße".encode()), why_no_text(b""), why_no_text(b"a" + bytes(1))
    (None, 'empty', 'binary (it holds NUL bytes)')
    """
    if not content.strip():
        return "empty"
    if b"\0" in content:
        return "binary (it holds NUL bytes)"
    invalid = 1 - len(content.decode("utf-8", errors="ignore").encode()) / len(content)
    if invalid > MAX_INVALID_SHARE:
        return f"binary ({invalid:.0%} of its bytes are not UTF-8)"
    return None


def _files_below(
    folder: Path,
    root: Path,
    keep: Callable[[PurePosixPath], bool] | None,
    follow_links: bool,
    above: tuple[Path, ...],
) -> Iterator[Path]:
    """Visible files below `folder`; `above` are the real places of the folders on the way to it."""
    try:
        entries = list(folder.iterdir())
    except OSError as error:
        raise TaskError(f"{folder}: cannot be read ({error.strerror}); check its permissions") from error
    for entry in entries:
        below = PurePosixPath(entry.relative_to(root).as_posix())
        if entry.name.startswith(".") or (keep is not None and not keep(below)):
            continue
        if entry.is_symlink() and not follow_links:
            continue
        real = _real_place(entry, root)
        if not real.is_dir():
            yield entry
        elif real in above:
            raise TaskError(f"{entry}: a link back to {real}, a folder that it is in; remove it")
        else:
            yield from _files_below(entry, root, keep, follow_links, (*above, real))


def _real_place(entry: Path, root: Path) -> Path:
    try:
        real = entry.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise TaskError(f"{entry}: a link that leads nowhere ({error}); remove it") from error
    if not real.is_relative_to(root.resolve()):
        raise TaskError(f"{entry}: a link to {real}, outside {root}; copy it into the folder")
    return real


def _read(path: Path, room: int) -> bytes:
    """The content of one file, at most `room` bytes, decompressed when its name ends in .gz."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise TaskError(f"{path}: neither a file nor a folder; allowed: text files and folders of them")
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            content = file.read(room + 1)
    except FileNotFoundError as error:
        raise TaskError(f"{path}: no such file or folder; allowed: a text file or a folder of them") from error
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise TaskError(f"{path}: cannot be read ({error}); allowed: text, or text compressed with gzip") from error
    if len(content) > room:
        raise TaskError(f"{path}: with it there is more than {MAX_TEXT_BYTES} bytes of text; use fewer files")
    return content
