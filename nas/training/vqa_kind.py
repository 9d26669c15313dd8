"""Visual question answering: an image and a question in, the answer as text out.

Legend: n examples, c channels, h height, w width, t text positions, v tokens of the vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nas.training.data.question_text import IGNORED
from nas.training.image_kind import shift_and_mirror, standardise_images
from nas.training.recipe import Recipe
from nas.training.score import clustered_share_interval
from nas.training.task import Split, Task
from nas.training.task_kind import Inputs, Interval, TaskKind


def _images_and_tokens(task: Task, inputs: NDArray[Any]) -> Inputs:
    """Looks each example's image up; the first column is its row in the table, the others are tokens."""
    assert task.images is not None
    images_nchw = standardise_images(task, task.images[inputs[:, 0]])
    return images_nchw, torch.from_numpy(inputs[:, 1:].astype(np.int64))


def _augmented(inputs: Inputs, recipe: Recipe, generator: torch.Generator) -> Inputs:
    images_nchw, tokens_nt = inputs
    return shift_and_mirror(images_nchw, recipe, generator), tokens_nt


def _cross_entropy(outputs_ntv: Tensor, labels_nt: Tensor, recipe: Recipe) -> Tensor:
    """The mean over the tokens of answers and their ends; questions are given, not asked."""
    return functional.cross_entropy(
        outputs_ntv.flatten(0, 1), labels_nt.flatten(), ignore_index=IGNORED, label_smoothing=recipe.label_smoothing
    )


def _is_answered(outputs_ntv: Tensor, labels_nt: Tensor) -> Tensor:
    """Whether the whole answer, its end included, would come out of greedy decoding.

    The network is given the right answer up to each position. That is the same thing: greedy decoding feeds back what
    was likeliest, so as long as every token is right it sees exactly these inputs, and the first wrong one decides.
    """
    is_right = (outputs_ntv.argmax(dim=2) == labels_nt) | (labels_nt == IGNORED)
    return is_right.all(dim=1).to(torch.float64)


def _likeliest(outputs_ntv: Tensor) -> Tensor:
    return outputs_ntv.argmax(dim=2)


def _vocabulary(task: Task) -> int:
    return task.head.integer("vocabulary")


def _logits_of_a_text(task: Task) -> int:
    return task.input.integer("context") * _vocabulary(task)


def _share_answered(split: Split, grades: NDArray[np.float64]) -> Interval:
    """Questions about one image are right or wrong together, as often as the image is misread: clusters."""
    lower, upper = clustered_share_interval(grades, split.groups)
    return float(grades.mean()), lower, upper


def _share_by_kind(task: Task, split: Split, grades: NDArray[np.float64]) -> tuple[tuple[str, float], ...]:
    """Kinds without a question in the split are left out: no number is made up for them."""
    if split.domains is None:
        return ()
    inside = [(name, split.domains == number) for number, name in enumerate(task.domains)]
    return tuple((name, float(grades[mask].mean())) for name, mask in inside if mask.any())


def _other_images(inputs: NDArray[Any], generator: np.random.Generator) -> NDArray[Any]:
    """Deals the images out anew and leaves each question with its answer: what is left is the question alone."""
    mixed = inputs.copy()
    mixed[:, 0] = inputs[generator.permutation(len(inputs)), 0]
    return mixed


VISUAL_QUESTION_ANSWERING = TaskKind(
    prepare=_images_and_tokens,
    augment=_augmented,
    loss=_cross_entropy,
    grade=_is_answered,
    answer=_likeliest,
    num_labels=_vocabulary,
    num_outputs=_logits_of_a_text,
    summarise=_share_answered,
    slices=_share_by_kind,
    shuffle=_other_images,
)
