from __future__ import annotations

import numpy as np
import pytest

from nas.training.audit import audit_splits
from nas.training.data.sources import load_task
from nas.training.task import TaskSettings
from search_spaces.candidate import BlockSpec


def test_digits_are_split_by_class_and_nothing_is_lost_or_shared() -> None:
    task = load_task(TaskSettings())
    splits = [task.train, task.val, task.test]
    assert sum(len(split) for split in splits) == 1797
    assert len(task.test) == pytest.approx(0.2 * 1797, abs=5)
    assert len(task.val) == pytest.approx(0.25 * (1797 - len(task.test)), abs=5)
    whole = np.bincount(np.concatenate([split.labels for split in splits])) / 1797
    for split in splits:
        assert np.abs(np.bincount(split.labels) / len(split) - whole).max() < 0.01
    assert audit_splits(task) == ()


def test_digits_say_what_a_network_sees_and_answers() -> None:
    task = load_task(TaskSettings())
    assert task.kind == "image_classification"
    assert task.input == BlockSpec.of("image", channels=1, height=8, width=8)
    assert task.head == BlockSpec.of("classifier", classes=10)
    assert (task.metric, task.direction, len(task.class_names)) == ("accuracy", "maximize", 10)


def test_the_constants_come_from_train_alone() -> None:
    task = load_task(TaskSettings())
    assert task.mean == pytest.approx([task.train.inputs.astype(float).mean()])
    assert task.std == pytest.approx([task.train.inputs.astype(float).std()])
    everything = np.concatenate([task.train.inputs, task.val.inputs, task.test.inputs])
    assert task.mean[0] != everything.mean()


def test_the_seed_decides_the_split() -> None:
    fingerprints = [load_task(TaskSettings(seed=seed)).fingerprint for seed in (0, 0, 1)]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_fewer_train_examples_leave_val_and_test_alone() -> None:
    whole, few = load_task(TaskSettings()), load_task(TaskSettings(max_train_examples=105))
    assert len(few.train) <= 105 and np.bincount(few.train.labels).min() >= 9
    assert (few.val.inputs == whole.val.inputs).all() and (few.test.inputs == whole.test.inputs).all()
