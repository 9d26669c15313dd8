"""Imports TVM's intrinsics in seconds instead of tens of seconds."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Iterator

_INTRINSICS = "tvm.s_tir.tensor_intrin"


def import_intrinsics() -> None:
    """Registers the tensor intrinsics, which MetaSchedule imports when it first needs them.

    Each of some 200 intrinsics is parsed from source, and for each the parser calls
    `inspect.stack()`, which looks for the source file of every frame, the importer's frozen ones
    included, among all loaded modules: 16 to 25 s here. The parser needs the frames only, so it
    is given just those while the import lasts: 2 to 5 s.
    """
    if _INTRINSICS not in sys.modules:
        importlib.import_module("tvm")
        with _frames_only():
            importlib.import_module(_INTRINSICS)


@contextlib.contextmanager
def _frames_only() -> Iterator[None]:
    original = inspect.stack
    inspect.stack = _stack
    try:
        yield
    finally:
        inspect.stack = original


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    frame, infos = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        infos.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
        frame = frame.f_back  # type: ignore[assignment]
    return infos
