from __future__ import annotations

import pytest

from nas.training.data.sources import _UNUSED, SOURCES, load_task
from nas.training.task import TaskError, TaskSettings


def test_an_unknown_data_set_lists_the_known_ones() -> None:
    with pytest.raises(TaskError, match="'mnist'; allowed: digits, fashion-mnist, image-folder, npz"):
        load_task(TaskSettings(name="mnist"))


def test_a_setting_that_a_source_does_not_use_is_refused_and_not_ignored() -> None:
    with pytest.raises(TaskError, match="'digits': path is 'here'"):
        load_task(TaskSettings(path="here"))
    with pytest.raises(TaskError, match="'image-folder': test_path"):
        load_task(TaskSettings(name="image-folder", path="here", test_path="there"))


def test_every_source_says_what_it_does_not_use() -> None:
    assert set(_UNUSED) == set(SOURCES)
    assert {key for keys in _UNUSED.values() for key in keys} <= set(TaskSettings.model_fields)
