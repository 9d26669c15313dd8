from __future__ import annotations

import json
from pathlib import Path

import pytest

from profilers.json_file import write_json


def test_a_file_is_replaced_and_everybody_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    for content in ({"a": 1}, [2]):
        write_json(path, content)
        assert json.loads(path.read_text()) == content
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_content_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": [1] * 100_000, "b": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
