"""Which text goes where: whole files, so that none is in two splits; only a file that is half of all text is cut."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from nas.training.data.text_files import TextFile
from nas.training.task import SplitName

LONG_SHARE = 0.5
"""Of a domain's bytes: a file that holds as much leaves no two other splits of sensible size, and is cut in three."""

MAX_SHIFT = 4096
"""Bytes that a cut may move on to the next end of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A file, or a contiguous part of one."""

    name: str
    content: bytes


Pieces = dict[SplitName, tuple[Piece, ...]]


def split_texts(files: Sequence[TextFile], *, val_share: float, test_share: float, seed: int) -> Pieces:
    """Deals files out to train, val and test by a hash of their content, so that their order means nothing.

    Args:
        files: of one domain, distinct in name and content.
        val_share: share of the bytes that test leaves.
        test_share: share of all bytes.
        seed: another one deals otherwise.
    """
    total = sum(len(file.content) for file in files)
    long = [file for file in files if len(file.content) >= LONG_SHARE * total]
    rest = _without(files, long)
    rest.sort(key=lambda file: hashlib.sha256(f"{seed}/{file.digest}".encode()).digest())
    size = sum(len(file.content) for file in rest)
    # A file that is cut gives each split its part; without one each split needs a file of its own.
    test = _draw(rest, test_share * size, leave=0 if long else 2)
    rest = _without(rest, test)
    val = _draw(rest, val_share * (size - sum(len(file.content) for file in test)), leave=0 if long else 1)
    train = _without(rest, val)
    whole: dict[SplitName, list[TextFile]] = {"train": train, "val": val, "test": test}
    pieces = {name: [Piece(name=file.name, content=file.content) for file in part] for name, part in whole.items()}
    for file in long:
        for name, piece in _cut(file, val_share, test_share).items():
            pieces[name].append(piece)
    return {name: tuple(sorted(part, key=lambda piece: (piece.name, piece.content))) for name, part in pieces.items()}


def _draw(files: Sequence[TextFile], quota: float, *, leave: int) -> list[TextFile]:
    """Files in order as long as they fit into the quota; where too little fits, the smallest of the others as well.

    Args:
        files: to draw from.
        quota: bytes.
        leave: files that the other splits need; 0 also says that nothing has to be drawn.
    """
    drawn: list[TextFile] = []
    room = quota
    for file in files:
        if len(file.content) <= room and len(files) - len(drawn) > leave:
            drawn.append(file)
            room -= len(file.content)
    others = _without(files, drawn)
    if leave and room > quota / 2 and len(others) > leave:
        drawn.append(min(others, key=lambda file: len(file.content)))
    return drawn


def _without(files: Sequence[TextFile], others: Sequence[TextFile]) -> list[TextFile]:
    names = {file.name for file in others}
    return [file for file in files if file.name not in names]


def _cut(file: TextFile, val_share: float, test_share: float) -> dict[SplitName, Piece]:
    """Train, val and test, one after the other, without overlap and with nothing between them."""
    size = len(file.content)
    test = _line_end(file.content, size - round(test_share * size))
    val = _line_end(file.content, test - round(val_share * test))
    bounds: dict[SplitName, tuple[int, int]] = {"train": (0, val), "val": (val, test), "test": (test, size)}
    return {
        name: Piece(name=f"{file.name}[{start}:{end}]", content=file.content[start:end])
        for name, (start, end) in bounds.items()
    }


def _line_end(content: bytes, near: int) -> int:
    """Just after the first end of a line from `near` on; `near` itself where none is close.

    >>> _line_end(b"ab\\ncd\\nef", 1), _line_end(b"abcdef", 2)
    (3, 2)
    """
    end = content.find(b"\n", near, near + MAX_SHIFT)
    return near if end < 0 else end + 1
