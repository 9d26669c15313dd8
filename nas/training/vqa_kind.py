"""Visual question answering: an image and a question in, the answer as text out.

Legend: n examples, c channels, h height, w width, t text positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nas.training.answers import answer_loss, is_answered, likeliest, logits_of_a_text, share_answered, vocabulary_of
from nas.training.image_kind import shift_and_mirror, standardise_images
from nas.training.recipe import Recipe
from nas.training.task import Split, Task
from nas.training.task_kind import Inputs, TaskKind


def _images_and_tokens(task: Task, inputs: NDArray[Any]) -> Inputs:
    """Looks each example's image up; the first column is its row in the table, the others are tokens."""
    assert task.images is not None
    images_nchw = standardise_images(task, task.images[inputs[:, 0]])
    return images_nchw, torch.from_numpy(inputs[:, 1:].astype(np.int64))


def _augmented(inputs: Inputs, recipe: Recipe, generator: torch.Generator) -> Inputs:
    images_nchw, tokens_nt = inputs
    return shift_and_mirror(images_nchw, recipe, generator), tokens_nt


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
    loss=answer_loss,
    grade=is_answered,
    answer=likeliest,
    num_labels=vocabulary_of,
    num_outputs=logits_of_a_text,
    summarise=share_answered,
    slices=_share_by_kind,
    shuffle=_other_images,
)
