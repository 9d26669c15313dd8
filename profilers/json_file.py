"""Writes a JSON file so that a reader, or a kill at any instant, sees the old content or the new one, never half."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Any, *, indent: int | None = None) -> None:
    """Replaces the content of `path`; its folder is made when missing. Everybody may read the file.

    Raises:
        OSError: it cannot be written; what was there before is still there, and nothing beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w") as stream:
            json.dump(content, stream, indent=indent)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
