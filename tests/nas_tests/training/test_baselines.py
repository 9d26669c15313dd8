from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from nas.training.baselines import CONSTANT_SCORES, constant_score
from nas.training.kinds import KINDS
from tests.nas_tests.training.small_tasks import bright_half_task
from tests.nas_tests.training.small_texts import small_task


def test_every_kind_of_task_has_a_baseline() -> None:
    assert set(CONSTANT_SCORES) == set(KINDS)


def test_of_classes_it_is_the_share_of_the_largest_one() -> None:
    task = bright_half_task()
    some = task.val.take(np.flatnonzero(task.val.labels != 3))
    largest = max(int((some.labels == label).sum()) for label in range(3))
    assert constant_score(replace(task, val=some)) == largest / len(some)


def test_of_text_it_is_what_frequencies_of_tokens_in_train_cost() -> None:
    task = small_task()
    counts = [1 + int((task.train.labels == token).sum()) for token in range(256)]
    bits = [-math.log2(counts[token] / sum(counts)) for token in task.val.labels.ravel().tolist()]
    assert constant_score(task) == pytest.approx(sum(bits) / len(bits))
    assert 3 < constant_score(task) < 5


def test_a_token_that_train_lacks_costs_many_bits_and_not_infinitely_many() -> None:
    task = small_task()
    odd = replace(task, val=replace(task.val, labels=np.full_like(task.val.labels, 255)))
    assert 10 < constant_score(odd) < 20
