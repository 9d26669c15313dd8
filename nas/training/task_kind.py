"""What training needs to know of a kind of task: its functions, and how a network is called with its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nas.training.recipe import Recipe
from nas.training.task import Split, Task

Inputs = Tensor | tuple[Tensor, ...]
"""What a network is called with: one tensor, or several (images and tokens)."""

Interval = tuple[float, float, float]
"""Value, lower and upper end of the 95% interval."""


def shuffle_examples(inputs: NDArray[Any], generator: np.random.Generator) -> NDArray[Any]:
    """The inputs in random order: each example gets those of another."""
    shuffled: NDArray[Any] = inputs[generator.permutation(len(inputs))]
    return shuffled


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind:
    """The functions that differ between kinds of task; the trainer has no `if` for any of them.

    Attributes:
        prepare: (task, raw inputs) -> what the network sees.
        augment: (prepared inputs, recipe, generator) -> inputs of one training step.
        loss: (outputs, labels, recipe) -> scalar.
        grade: (outputs, labels) -> one float64 a scored item, larger is better or worse as the metric says.
        answer: outputs -> the labels that make these outputs right, in the shape of labels.
        num_labels: task -> how many labels there are; a label is a whole number below it.
        num_outputs: task -> numbers that a network answers one example with; memory goes by it.
        summarise: (split, grades) -> value with its 95% interval.
        slices: (task, split, grades) -> (name, value) of each part of the split.
        reward: (sampled answers (n, t), labels of the prompts) -> what each is worth, and whether it parses, both (n,);
            None where an answer cannot be checked, so that nothing is learnt by reinforcement.
        shuffle: (raw inputs, generator) -> the same with what answers should come from dealt out anew, for a control.
    """

    prepare: Callable[[Task, NDArray[Any]], Inputs]
    augment: Callable[[Inputs, Recipe, torch.Generator], Inputs]
    loss: Callable[[Tensor, Tensor, Recipe], Tensor]
    grade: Callable[[Tensor, Tensor], Tensor]
    answer: Callable[[Tensor], Tensor]
    num_labels: Callable[[Task], int]
    num_outputs: Callable[[Task], int]
    summarise: Callable[[Split, NDArray[np.float64]], Interval]
    slices: Callable[[Task, Split, NDArray[np.float64]], tuple[tuple[str, float], ...]]
    shuffle: Callable[[NDArray[Any], np.random.Generator], NDArray[Any]] = shuffle_examples
    reward: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None


def call(model: nn.Module, inputs: Inputs) -> Tensor:
    """What `model` answers: a tuple of inputs is so many arguments."""
    outputs: Tensor = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    return outputs


def labels_tensor(labels: NDArray[Any]) -> Tensor:
    """Labels of any whole-number type as the int64 that losses take."""
    return torch.from_numpy(np.asarray(labels, dtype=np.int64))
