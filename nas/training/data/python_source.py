"""The source of Python's standard library: text that is on every machine, for language modelling."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path, PurePosixPath

from nas.training.data.language_task import Domain, language_task
from nas.training.data.text_files import TextFile, read_texts
from nas.training.task import Task, TaskError, TaskSettings

_NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"})
"""Folders that are left out: packages of others, and tests, which some systems install apart and which hold source
that is broken on purpose."""

_GENERATED = re.compile(rb"auto-?\s?generated|automatically generated|generated (from|and used)|do not edit", re.I)
"""What a program writes at the top of a file that it wrote: tables of code pages and of Unicode."""
_TOP_BYTES = 1000


def load_python_source(settings: TaskSettings) -> Task:
    """The `.py` files of the interpreter that runs, as one domain; another version of Python is other data."""
    files = library_files(Path(sysconfig.get_path("stdlib")))
    return language_task(settings, [Domain(name="python", origin="python-source", files=files)])


def library_files(root: Path) -> tuple[TextFile, ...]:
    """Source written by people below `root`, without tests and installed packages.

    Raises:
        TaskError: there is none, as in an interpreter whose library is an archive.
    """
    try:
        files = read_texts(root, keep=_is_library, follow_links=False)
    except TaskError as error:
        raise TaskError(
            f"task 'python-source': {error}; this Python has no source of its library, use task.name = \"text\""
        ) from error
    return tuple(
        file for file in files if file.name.endswith(".py") and not _GENERATED.search(file.content[:_TOP_BYTES])
    )


def _is_library(path: PurePosixPath) -> bool:
    return path.name not in _NOT_LIBRARY and path.suffix in ("", ".py")
