"""A folder that a command fills: it appears whole, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nas.errors import NasError


class NewFolderError(NasError):
    """A place where no new folder can be made without overwriting something."""


def require_free(out: Path) -> None:
    """Refuses a place that holds something; before work is spent on what could not be put there.

    Raises:
        NewFolderError: `out` is there, and is not an empty folder.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise NewFolderError(f"{out}: exists and is not an empty folder; give another --out, or remove it")


@contextmanager
def folder_that_becomes(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its name when everything went well, and is removed when not.

    Readable for others, the unprivileged user of the measuring child among them.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".nas-", dir=out.parent))
    building.chmod(0o755)
    try:
        yield building
        if out.is_dir():
            out.rmdir()
        building.rename(out)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
