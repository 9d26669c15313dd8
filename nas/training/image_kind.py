"""Image classification: standardised images, shifts and mirrors, accuracy.

Legend: n examples, c channels, h height, w width, k classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nas.training.recipe import Recipe
from nas.training.score import wilson_interval
from nas.training.task import Split, Task
from nas.training.task_kind import Inputs, Interval, TaskKind


def standardise_images(task: Task, images: NDArray[Any]) -> Tensor:
    """Raw NCHW images to float32 with mean 0 and deviation 1 over the train split, per channel."""
    x_nchw = torch.from_numpy(np.ascontiguousarray(images)).to(torch.float32)
    mean = torch.tensor(task.mean, dtype=torch.float32).view(1, -1, 1, 1)
    std = torch.tensor(task.std, dtype=torch.float32).view(1, -1, 1, 1)
    return (x_nchw - mean) / std


def shift_and_mirror(x_nchw: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Moves each image by up to `shift_pixels` both ways, its edge repeated, and mirrors half of them."""
    num, _, height, width = x_nchw.shape
    shift = min(recipe.shift_pixels, height - 1, width - 1)
    columns = torch.arange(width).expand(num, width)
    if recipe.mirror:
        is_mirrored = torch.rand(num, 1, generator=generator) < 0.5
        columns = torch.where(is_mirrored, width - 1 - columns, columns)
    elif shift == 0:
        return x_nchw
    by_nt = torch.randint(-shift, shift + 1, (2, num, 1), generator=generator)
    rows = (torch.arange(height) + by_nt[0]).clamp(0, height - 1)
    columns = (columns + by_nt[1]).clamp(0, width - 1)
    moved_nhwc = x_nchw[torch.arange(num)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return moved_nhwc.permute(0, 3, 1, 2).contiguous()


def _augmented(inputs: Inputs, recipe: Recipe, generator: torch.Generator) -> Tensor:
    assert isinstance(inputs, Tensor)
    return shift_and_mirror(inputs, recipe, generator)


def _smoothed_cross_entropy(outputs_nk: Tensor, labels_n: Tensor, recipe: Recipe) -> Tensor:
    return functional.cross_entropy(outputs_nk, labels_n, label_smoothing=recipe.label_smoothing)


def _is_right(outputs_nk: Tensor, labels_n: Tensor) -> Tensor:
    return (outputs_nk.argmax(dim=1) == labels_n).to(torch.float64)


def _largest(outputs_nk: Tensor) -> Tensor:
    return outputs_nk.argmax(dim=1)


def _num_classes(task: Task) -> int:
    return len(task.class_names)


def _accuracy(_split: Split, grades: NDArray[np.float64]) -> Interval:
    lower, upper = wilson_interval(int(grades.sum()), len(grades))
    return float(grades.mean()), lower, upper


def _accuracy_by_class(task: Task, split: Split, grades: NDArray[np.float64]) -> tuple[tuple[str, float], ...]:
    """Classes without an example in the split are left out: no number is made up for them."""
    return tuple(
        (name, float(grades[split.labels == label].mean()))
        for label, name in enumerate(task.class_names)
        if (split.labels == label).any()
    )


IMAGE_CLASSIFICATION = TaskKind(
    prepare=standardise_images,
    augment=_augmented,
    loss=_smoothed_cross_entropy,
    grade=_is_right,
    answer=_largest,
    num_labels=_num_classes,
    num_outputs=_num_classes,
    summarise=_accuracy,
    slices=_accuracy_by_class,
)
