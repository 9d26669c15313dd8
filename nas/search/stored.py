"""A study as it lies in its folder: its configuration, for commands that are given the folder alone."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from nas.config import StudyConfig
from nas.search.study import MANIFEST_NAME
from nas.search.study_lock import StudyError


def stored_config(folder: Path) -> StudyConfig:
    """The configuration in a study's manifest, its results folder being `folder`.

    Raises:
        StudyError: no study is there, or its manifest cannot be read.
    """
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise StudyError(f"{folder}: holds no study (no {MANIFEST_NAME}); give the results folder of `nas search`")
    try:
        config = StudyConfig.model_validate_json(json.dumps(json.loads(path.read_text())["config"]), strict=True)
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        line = str(error).splitlines()[0]
        raise StudyError(f"{path}: cannot be read ({line}); it is damaged or of another version of nas") from error
    return config.model_copy(update={"output": config.output.model_copy(update={"out": folder})})
