from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from nas.training.recipe import Recipe
from nas.training.task import Split, TaskError, TaskSettings
from tests.nas_tests.training.small_tasks import bright_half_task


def test_the_fingerprint_changes_with_a_single_pixel_of_any_split() -> None:
    task = bright_half_task()
    for name in ("train", "val", "test"):
        split = task.split(name)
        inputs = split.inputs.copy()
        inputs[-1, 0, 0, 0] ^= 1
        changed = replace(task, **{name: Split(inputs=inputs, labels=split.labels)})
        assert changed.fingerprint != task.fingerprint


def test_the_fingerprint_changes_with_a_label_and_not_with_memory_layout() -> None:
    task = bright_half_task()
    labels = task.val.labels.copy()
    labels[0] = (labels[0] + 1) % 4
    assert replace(task, val=Split(inputs=task.val.inputs, labels=labels)).fingerprint != task.fingerprint
    fortran = Split(inputs=np.asfortranarray(task.val.inputs), labels=task.val.labels)
    assert replace(task, val=fortran).fingerprint == task.fingerprint


def test_a_split_without_examples_or_with_a_missing_label_is_refused() -> None:
    with pytest.raises(TaskError, match="no examples"):
        Split(inputs=np.zeros((0, 1, 2, 2)), labels=np.zeros(0, dtype=np.int64))
    with pytest.raises(TaskError, match="3 inputs but 2 labels"):
        Split(inputs=np.zeros((3, 1, 2, 2)), labels=np.zeros(2, dtype=np.int64))


@pytest.mark.parametrize("model", [TaskSettings, Recipe])
def test_every_setting_says_what_it_means_and_an_unknown_one_is_refused(
    model: type[TaskSettings] | type[Recipe],
) -> None:
    assert all(field.description for field in model.model_fields.values())
    with pytest.raises(ValidationError, match="val_shar"):
        model.model_validate({"val_shar": 0.1})
