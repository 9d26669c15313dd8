from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from nas.training.data import language_task as module
from nas.training.data.language_task import Domain, language_task
from nas.training.data.text_files import TextFile
from nas.training.task import SplitName, Task, TaskError, TaskSettings
from tests.nas_tests.training.small_texts import CONTEXT, SETTINGS, files_of, small_task, text_of

SPLITS: tuple[SplitName, ...] = ("train", "val", "test")
ROOT = Path(__file__).parents[4]


def domain(*files: TextFile, name: str = "english") -> Domain:
    return Domain(name=name, origin=f"{name}/", files=files)


def settings(**changes: object) -> TaskSettings:
    return SETTINGS.model_copy(update=changes)


def test_each_position_predicts_the_next_byte_and_types_are_small() -> None:
    task = small_task()
    for name in SPLITS:
        split = task.split(name)
        assert split.inputs.dtype == split.labels.dtype == np.uint8
        assert split.inputs.shape == split.labels.shape == (len(split), CONTEXT)
        assert (split.inputs[:, 1:] == split.labels[:, :-1]).all()
        assert split.num_bytes is not None and (split.num_bytes == CONTEXT).all()
    assert (task.input["context"], task.head["vocabulary"], task.direction) == (CONTEXT, 256, "minimize")


def test_no_file_is_in_two_splits_and_every_byte_but_the_first_is_predicted_once() -> None:
    files = tuple(
        TextFile(name=f"{number}", content=bytes([65 + number]) * (10 * CONTEXT + number)) for number in range(20)
    )
    task = language_task(settings(), [domain(*files)])
    letters = {name: set(task.split(name).labels.ravel().tolist()) for name in SPLITS}
    assert all(not letters[left] & letters[right] for left, right in combinations(SPLITS, 2))
    assert set().union(*letters.values()) == set(range(65, 85))
    for name in SPLITS:
        counts = np.bincount(task.split(name).labels.ravel(), minlength=256)
        whole = [len(file.content) for file in files if file.content[0] in letters[name]]
        assert sum(whole) - CONTEXT <= counts.sum() < sum(whole)
        assert counts.max() <= max(whole)


def test_copies_of_a_file_are_never_in_two_splits() -> None:
    copies = [TextFile(name=f"copy{number}", content=text_of("numbers", 900, seed=99)) for number in range(30)]
    task = language_task(settings(), [domain(*files_of(), *copies)])
    alone = language_task(settings(), [domain(*files_of(), copies[0])])
    assert task.fingerprint == alone.fingerprint


def test_groups_are_files_and_domains_are_told_apart() -> None:
    task = small_task(SETTINGS, "english", "numbers")
    val = task.val
    assert val.groups is not None and val.domains is not None
    for group in np.unique(val.groups):
        assert len(np.unique(val.domains[val.groups == group])) == 1
    digits = np.isin(val.labels, np.frombuffer(b"0123456789", dtype=np.uint8)).any(axis=1)
    assert (digits == (val.domains == task.domains.index("numbers"))).all()


def test_a_split_of_few_files_has_stretches_of_them_for_groups() -> None:
    book = TextFile(name="book", content=text_of("english", 60_000, seed=0))
    task = language_task(settings(), [domain(book)])
    assert task.val.groups is not None
    assert len(np.unique(task.val.groups)) >= module.MIN_GROUPS
    many = small_task(SETTINGS)
    assert many.train.groups is not None and len(np.unique(many.train.groups)) == 8


def test_limits_draw_evenly_from_the_domains_and_the_same_ones_each_time() -> None:
    limited = settings(max_train_examples=20, max_val_examples=6, max_test_examples=4)
    task = small_task(limited, "english", "numbers")
    assert (len(task.train), len(task.val), len(task.test)) == (20, 6, 4)
    assert task.train.domains is not None and np.bincount(task.train.domains).tolist() == [10, 10]
    assert small_task(limited, "english", "numbers").fingerprint == task.fingerprint
    assert small_task(limited.model_copy(update={"seed": 1}), "english", "numbers").fingerprint != task.fingerprint
    whole = small_task(SETTINGS, "english", "numbers")
    assert {row.tobytes() for row in task.train.inputs} <= {row.tobytes() for row in whole.train.inputs}


def test_another_process_and_another_order_of_files_make_the_same_task() -> None:
    code = (
        "from tests.nas_tests.training.small_texts import *\n"
        "print(language_task(SETTINGS, [Domain(name='english', origin='e', files=files_of()[::-1])]).fingerprint)"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert seen == {small_task().fingerprint}


def test_the_fingerprint_follows_domains_and_groups() -> None:
    task: Task = small_task()
    assert replace(task, domains=("other",)).fingerprint != task.fingerprint
    assert replace(task, val=replace(task.val, groups=None)).fingerprint != task.fingerprint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"short", "english/: train has"),
        (b"a line of text\n" * 12, "allowed: 65 or more, 2 sequences of task.context = 32"),
    ],
)
def test_a_text_too_short_for_its_context_says_what_it_would_take(text: bytes, words: str) -> None:
    with pytest.raises(TaskError) as caught:
        language_task(settings(), [domain(TextFile(name="a", content=text))])
    assert words in str(caught.value)
    assert "give more text or a shorter context" in str(caught.value)


def test_a_domain_that_only_repeats_another_is_refused() -> None:
    with pytest.raises(TaskError, match=r"everything in domain 'other' is in domain 'english' as well"):
        language_task(settings(), [domain(*files_of()), domain(*files_of(), name="other")])
