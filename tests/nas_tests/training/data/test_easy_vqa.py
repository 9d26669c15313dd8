from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from nas.training.audit import audit_splits
from nas.training.baselines import baseline_of
from nas.training.data.sources import load_task
from nas.training.task import Task, TaskError, TaskSettings

SETTINGS = TaskSettings(name="easy-vqa")


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "easy_vqa", None)
    with pytest.raises(TaskError, match=r"easy-vqa is not installed; pip install 'edgenas\[vqa\]'"):
        load_task(SETTINGS)


@pytest.fixture(scope="module")
def task() -> Iterator[Task]:
    pytest.importorskip("easy_vqa", reason="needs the package easy-vqa")
    yield load_task(SETTINGS)


def test_the_official_test_split_is_kept_and_val_comes_from_train_by_image(task: Task) -> None:
    images = {name: set(task.split(name).inputs[:, 0].tolist()) for name in ("train", "val", "test")}
    assert {name: len(rows) for name, rows in images.items()} == {"train": 3000, "val": 1000, "test": 1000}
    assert not images["train"] & images["val"] and not (images["train"] | images["val"]) & images["test"]
    assert len(task.train) + len(task.val) + len(task.test) == 48_248
    assert len(task.test) == 9_673
    assert task.images is not None and task.images.shape == (5000, 3, 64, 64) and task.images.dtype == np.uint8


def test_its_splits_have_nothing_odd_about_them(task: Task) -> None:
    assert audit_splits(task) == ()


def test_its_kinds_of_questions_are_those_of_its_answers(task: Task) -> None:
    names = sorted(name.split("/")[0] for name in task.domains)
    assert names == ["black", "circle", "no"]


def test_the_question_alone_is_worth_what_is_published_whatever_part_networks_learn_from(task: Task) -> None:
    baseline = baseline_of(task, "test")
    assert baseline.value == pytest.approx(0.670, abs=0.002)
    few = load_task(SETTINGS.model_copy(update={"max_train_examples": 300}))
    assert len(few.train) == 300 and baseline_of(few, "test") == baseline
