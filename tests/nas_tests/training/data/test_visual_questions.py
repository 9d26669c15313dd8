from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from nas.training.audit import audit_splits
from nas.training.data.question_text import questions_of
from nas.training.data.visual_questions import VisualQuestion, kinds_of_questions, visual_question_task
from nas.training.task import SplitName, Task, TaskError
from search_spaces.candidate import BlockSpec
from tests.nas_tests.training.small_visual_questions import SETTINGS, pictures_and_questions, small_task


def pixels_of(task: Task, name: SplitName) -> set[bytes]:
    assert task.images is not None
    return {task.images[row].tobytes() for row in task.split(name).inputs[:, 0]}


def task_of(asked: list[VisualQuestion], images: np.ndarray | None = None) -> Task:
    if images is None:
        images, _ = pictures_and_questions(20)
    return visual_question_task(SETTINGS, images, asked)


def question(image: int, text: str = "what?", answer: str = "red", split: SplitName | None = None) -> VisualQuestion:
    return VisualQuestion(where=f"f.csv: row {image}", image=image, question=text, answer=answer, split=split)


def test_a_task_says_what_a_network_for_it_takes_and_answers() -> None:
    task = small_task()
    sizes = {"channels": 3, "height": 6, "width": 8, "context": 24, "vocabulary": 256}
    assert task.input == BlockSpec.of("image_text", **sizes)
    assert task.head == BlockSpec.of("vision_language_model", vocabulary=256)
    assert task.images is not None and task.images.shape == (120, 3, 6, 8)
    assert task.train.inputs.shape == (len(task.train), 25) and task.train.labels.shape == (len(task.train), 24)
    assert len(task.train) + len(task.val) + len(task.test) == 360
    assert audit_splits(task) == ()


@pytest.mark.parametrize("seed", range(5))
def test_no_image_is_in_two_splits_and_all_questions_of_one_stay_together(seed: int) -> None:
    task = small_task(40, SETTINGS.model_copy(update={"seed": seed}))
    train, val, test = (pixels_of(task, name) for name in ("train", "val", "test"))
    assert not train & val and not train & test and not val & test
    assert (len(train), len(val), len(test)) == (24, 8, 8)
    assert [len(task.split(name)) for name in ("train", "val", "test")] == [72, 24, 24]


def test_images_with_the_same_pixels_count_as_one_and_never_fall_apart() -> None:
    images, _ = pictures_and_questions(10)
    doubled = np.concatenate([images, images])
    task = task_of([question(index) for index in range(20)], doubled)
    assert task.images is not None and len(task.images) == 10
    assert not pixels_of(task, "train") & pixels_of(task, "val")
    assert not pixels_of(task, "train") & pixels_of(task, "test")


def test_an_image_that_its_source_puts_into_two_splits_is_refused_with_both_rows() -> None:
    images, _ = pictures_and_questions(4)
    images[3] = images[0]
    asked = [question(0, split="train"), question(1, split="train"), question(3, split="test")]
    with pytest.raises(TaskError, match=re.escape("f.csv: row 3: its image is in test, and in train at f.csv: row 0")):
        task_of(asked, images)


def test_images_that_nobody_asks_about_are_not_kept() -> None:
    task = task_of([question(index) for index in range(0, 20, 2)])
    assert task.images is not None and len(task.images) == 10


def test_the_fingerprint_depends_on_pixels_and_text() -> None:
    task = small_task(20)
    assert task.images is not None
    images = task.images.copy()
    images[0, 0, 0, 0] ^= 1
    assert replace(task, images=images).fingerprint != task.fingerprint == small_task(20).fingerprint
    assert small_task(20, SETTINGS.model_copy(update={"context": 25})).fingerprint != task.fingerprint


def test_constants_are_of_the_train_images_alone() -> None:
    task = small_task(30)
    assert task.images is not None
    seen = task.images[np.unique(task.train.inputs[:, 0])].astype(np.float64)
    assert task.mean == pytest.approx(seen.mean(axis=(0, 2, 3)))
    assert task.std == pytest.approx(seen.std(axis=(0, 2, 3)))
    assert abs(task.mean[0] - task.images[:, 0].mean()) > 1e-9


def test_limits_leave_a_part_of_each_split_in_random_order() -> None:
    limits = {"max_train_examples": 30, "max_val_examples": 9, "max_test_examples": 7}
    task, whole = small_task(60, SETTINGS.model_copy(update=limits)), small_task(60)
    assert [len(task.split(name)) for name in ("train", "val", "test")] == [30, 9, 7]
    assert pixels_of(task, "val") <= pixels_of(whole, "val")
    assert len(set(questions_of(task.train.inputs[:8, 1:]))) > 1


def test_a_limit_draws_evenly_over_kinds_for_train_and_leaves_val_as_it_comes() -> None:
    images, _ = pictures_and_questions(60)
    asked = [question(index, f"is it {word}?", "yes") for index in range(60) for word in "abcd"]
    asked += [question(index, "what colour?", "red") for index in range(60)]
    settings = SETTINGS.model_copy(update={"max_train_examples": 40, "max_val_examples": 40})
    task = visual_question_task(settings, images, asked)
    assert task.train.domains is not None and task.val.domains is not None
    assert np.bincount(task.train.domains).tolist() == [20, 20]
    yes, colours = np.bincount(task.val.domains).tolist()
    assert yes > 2 * colours


def test_kinds_of_questions_are_those_with_one_set_of_answers() -> None:
    task = small_task()
    assert sorted(task.domains) == ["blue/red", "left/right", "no/yes"]
    assert task.val.domains is not None
    for name, text in (("no/yes", b"is it red?"), ("blue/red", b"what colour?"), ("left/right", b"which side?")):
        inside = task.val.inputs[task.val.domains == task.domains.index(name), 1:]
        assert set(questions_of(inside)) == {text}


def test_many_kinds_of_questions_are_the_largest_and_the_others_together() -> None:
    asked = [question(0, f"q{number}", f"a{number}") for number in range(12)] + [question(0, "q11", "b")]
    kinds = kinds_of_questions(asked)
    assert len(kinds.names) == 9 and kinds.names[0] == "a11/b" and kinds.names[-1] == "other"
    assert np.bincount(kinds.numbers).tolist() == [2, *[1] * 7, 4]


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (question(3, answer=" "), "f.csv: row 3: the answer is empty"),
        (question(3, text=""), "f.csv: row 3: the question is empty"),
        (question(3, text="two\nlines"), r"f.csv: row 3: the question is 'two\\nlines'; allowed: one line"),
        (question(3, text="x" * 21), "f.csv: row 3: question and answer take 25 tokens; allowed: task.context = 24"),
        (question(3, text="ü" * 11), "f.csv: row 3: question and answer take 26 tokens"),
    ],
)
def test_text_that_cannot_be_learnt_is_refused_with_its_row(odd: VisualQuestion, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        task_of([question(1), question(2), odd])


def test_one_image_cannot_be_split() -> None:
    with pytest.raises(TaskError, match=r"f\.csv: 1 distinct image\(s\) left for train and test; allowed: at least 2"):
        task_of([question(1), question(1, "why?")])


def test_a_source_without_train_is_refused() -> None:
    with pytest.raises(TaskError, match="no question in train"):
        task_of([question(1, split="val"), question(2, split="test")])
