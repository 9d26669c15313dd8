"""What scores without looking at what matters: the levels that every network has to beat.

No torch: gates ask for it in the process that waits for workers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nas.training.data.question_text import answers_of, questions_of
from nas.training.task import Split, SplitName, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What can be scored without the part of the inputs that the task is about.

    Attributes:
        name: what it does, for people.
        split: that was scored.
        value: in the unit of the task's metric.
    """

    name: str
    split: SplitName
    value: float


def baseline_of(task: Task, split: SplitName = "val") -> Baseline:
    """The baseline that scores of `task` are shown beside; it learns from train alone where it learns at all."""
    name, score = BASELINES[task.kind]
    return Baseline(name=name, split=split, value=score(task, split))


def baselines_beside(task: Task, test_scores: Sequence[object | None]) -> tuple[Baseline, ...]:
    """The baseline on val, and on test where a network was scored on it: test is opened once, for both."""
    opened: tuple[SplitName, ...] = ("val", "test") if any(score is not None for score in test_scores) else ("val",)
    return tuple(baseline_of(task, split) for split in opened)


def constant_score(task: Task) -> float:
    """The score on val of the best answer that does not look at the inputs, in the metric's unit.

    For classes it is the share of val in its largest class; for tokens, bits per byte when each token
    is given its share of the train split; for questions, the share of val with its commonest answer.
    """
    return CONSTANT_SCORES[task.kind](task, "val")


def largest_share(task: Task, split: SplitName) -> float:
    """Share of a split in its largest class."""
    _, counts = np.unique(task.split(split).labels, return_counts=True)
    return float(counts.max() / counts.sum())


def unigram_bits_per_byte(task: Task, split: SplitName) -> float:
    """Bits per byte of a split when every token has the probability of its share of train.

    Each count is one more than it is (Laplace's rule), so that a token that train lacks costs many bits
    and not infinitely many.
    """
    vocabulary, scored = task.head.integer("vocabulary"), task.split(split)
    counts = _counts(task.train, vocabulary) + 1.0
    nats = -float((_counts(scored, vocabulary) * np.log(counts / counts.sum())).sum())
    assert scored.num_bytes is not None
    return nats / math.log(2) / float(scored.num_bytes.sum())


def _counts(split: Split, vocabulary: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.bincount(split.labels.ravel(), minlength=vocabulary)


def commonest_answer(task: Task, split: SplitName) -> float:
    """Share of a split's questions that have its commonest answer."""
    counts = Counter(answers_of(task.split(split).labels))
    return max(counts.values()) / counts.total()


def question_only(task: Task, split: SplitName) -> float:
    """Share of a split's questions that are right with the commonest train answer to the same words.

    A question that train lacks gets the commonest answer of all: no image is looked at. Train is all of it, also where
    a limit leaves networks a part.
    """
    train = task.train if task.whole_train is None else task.whole_train
    by_question: dict[bytes, Counter[bytes]] = {}
    for question, answer in _pairs(train):
        by_question.setdefault(question, Counter())[answer] += 1
    overall = _commonest(sum(by_question.values(), Counter[bytes]()))
    best = {question: _commonest(counts) for question, counts in by_question.items()}
    pairs = _pairs(task.split(split))
    return sum(best.get(question, overall) == answer for question, answer in pairs) / len(pairs)


def _pairs(split: Split) -> list[tuple[bytes, bytes]]:
    # The first column is the image.
    return list(zip(questions_of(split.inputs[:, 1:]), answers_of(split.labels), strict=True))


def _commonest(counts: Counter[bytes]) -> bytes:
    """The first in order of bytes where several are as common: the order of examples means nothing."""
    return min(counts, key=lambda answer: (-counts[answer], answer))


CONSTANT_SCORES: dict[str, Callable[[Task, SplitName], float]] = {
    "checked_sequences": commonest_answer,
    "image_classification": largest_share,
    "language_modelling": unigram_bits_per_byte,
    "visual_question_answering": commonest_answer,
}
"""Kind of task to the score of an answer that does not look at the inputs."""

BASELINES: dict[str, tuple[str, Callable[[Task, SplitName], float]]] = {
    "checked_sequences": ("commonest answer", commonest_answer),
    "image_classification": ("largest class", largest_share),
    "language_modelling": ("token frequencies", unigram_bits_per_byte),
    "visual_question_answering": ("question only", question_only),
}
"""Kind of task to its baseline: a name, and how it scores a split."""
