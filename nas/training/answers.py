"""Answers within a text, of which alone labels ask: their loss, and whether the whole of one is right.

Legend: n examples, t text positions, v tokens of the vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nas.training.data.question_text import IGNORED
from nas.training.recipe import Recipe
from nas.training.score import clustered_share_interval
from nas.training.task import Split, Task
from nas.training.task_kind import Interval


def answer_loss(outputs_ntv: Tensor, labels_nt: Tensor, recipe: Recipe) -> Tensor:
    """The mean cross entropy over the tokens of answers and their ends; what was asked is given, not learnt."""
    return functional.cross_entropy(
        outputs_ntv.flatten(0, 1), labels_nt.flatten(), ignore_index=IGNORED, label_smoothing=recipe.label_smoothing
    )


def is_answered(outputs_ntv: Tensor, labels_nt: Tensor) -> Tensor:
    """Whether the whole answer, its end included, would come out of greedy decoding.

    The network is given the right answer up to each position. That is the same thing: greedy decoding feeds back what
    was likeliest, so as long as every token is right it sees exactly these inputs, and the first wrong one decides.
    """
    is_right = (outputs_ntv.argmax(dim=2) == labels_nt) | (labels_nt == IGNORED)
    return is_right.all(dim=1).to(torch.float64)


def likeliest(outputs_ntv: Tensor) -> Tensor:
    """The likeliest token at each position."""
    return outputs_ntv.argmax(dim=2)


def vocabulary_of(task: Task) -> int:
    """Tokens that there are."""
    return task.head.integer("vocabulary")


def logits_of_a_text(task: Task) -> int:
    """Numbers that a network answers one text with."""
    return task.input.integer("context") * vocabulary_of(task)


def share_answered(split: Split, grades: NDArray[np.float64]) -> Interval:
    """The share of right answers; questions of one group, about one image for instance, are right or wrong together."""
    lower, upper = clustered_share_interval(grades, split.groups)
    return float(grades.mean()), lower, upper
