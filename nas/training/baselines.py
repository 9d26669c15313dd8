"""What an answer scores that is always the same: the level that every network has to beat.

No torch: gates ask for it in the process that waits for workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nas.training.task import Split, Task


def constant_score(task: Task) -> float:
    """The score on val of the best answer that does not look at the inputs, in the metric's unit.

    For classes it is the share of val in its largest class; for tokens, bits per byte when each token
    is given its share of the train split.
    """
    return CONSTANT_SCORES[task.kind](task)


def largest_share(task: Task) -> float:
    """Share of val in its largest class."""
    _, counts = np.unique(task.val.labels, return_counts=True)
    return float(counts.max() / counts.sum())


def unigram_bits_per_byte(task: Task) -> float:
    """Bits per byte of val when every token has the probability of its share of train.

    Each count is one more than it is (Laplace's rule), so that a token that train lacks costs many bits
    and not infinitely many.
    """
    vocabulary = task.head.integer("vocabulary")
    counts = _counts(task.train, vocabulary) + 1.0
    nats = -float((_counts(task.val, vocabulary) * np.log(counts / counts.sum())).sum())
    assert task.val.num_bytes is not None
    return nats / math.log(2) / float(task.val.num_bytes.sum())


def _counts(split: Split, vocabulary: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.bincount(split.labels.ravel(), minlength=vocabulary)


CONSTANT_SCORES: dict[str, Callable[[Task], float]] = {
    "image_classification": largest_share,
    "language_modelling": unigram_bits_per_byte,
}
"""Kind of task to its baseline."""
