from __future__ import annotations

import pytest

from nas.training.data.sources import SOURCES, load_task, require_kind
from nas.training.kinds import KINDS
from nas.training.task import TaskError, TaskSettings


def test_an_unknown_data_set_lists_the_known_ones() -> None:
    with pytest.raises(
        TaskError,
        match="'mnist'; allowed: digits, easy-vqa, fashion-mnist, image-folder, npz, python-source, sequence-toy, text",
    ):
        load_task(TaskSettings(name="mnist"))


def test_a_setting_that_a_source_does_not_use_is_refused_and_not_ignored() -> None:
    with pytest.raises(TaskError, match="'digits': path is 'here'"):
        load_task(TaskSettings(path="here"))
    with pytest.raises(TaskError, match="'image-folder': test_path"):
        load_task(TaskSettings(name="image-folder", path="here", test_path="there"))

    with pytest.raises(TaskError, match="'digits': context is 64"):
        load_task(TaskSettings(context=64))
    with pytest.raises(TaskError, match="'python-source': path is 'here'"):
        load_task(TaskSettings(name="python-source", path="here"))


def test_what_a_source_does_not_use_are_settings_and_its_kind_is_known() -> None:
    for source in SOURCES.values():
        assert set(source.unused) <= set(TaskSettings.model_fields)
        assert source.kind in KINDS


def test_data_of_another_kind_than_the_space_needs_is_refused_with_those_that_fit() -> None:
    with pytest.raises(TaskError) as caught:
        require_kind(TaskSettings(name="digits"), "language_modelling", "hybrid_language")
    assert str(caught.value) == (
        "task 'digits' is image classification, but space 'hybrid_language' needs language modelling;"
        " data sources that fit: python-source, sequence-toy, text"
    )
    require_kind(TaskSettings(name="text"), "language_modelling", "hybrid_language")
