"""Language modelling: every position predicts the next token; bits per byte of the text.

Legend: n sequences, t positions, v tokens of the vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nas.training.recipe import Recipe
from nas.training.score import ratio_interval
from nas.training.task import Split, Task
from nas.training.task_kind import Inputs, Interval, TaskKind


def _tokens(_task: Task, tokens_nt: NDArray[Any]) -> Tensor:
    return torch.from_numpy(tokens_nt.astype(np.int64))


def _as_it_is(inputs: Inputs, _recipe: Recipe, _generator: torch.Generator) -> Inputs:
    return inputs


def _cross_entropy(outputs_ntv: Tensor, labels_nt: Tensor, recipe: Recipe) -> Tensor:
    """The mean over all positions, in nats a token."""
    return functional.cross_entropy(
        outputs_ntv.flatten(0, 1), labels_nt.flatten(), label_smoothing=recipe.label_smoothing
    )


def _nats(outputs_ntv: Tensor, labels_nt: Tensor) -> Tensor:
    """Nats that each sequence costs in all: a sum, as tokens stand for different numbers of bytes."""
    each = functional.cross_entropy(outputs_ntv.flatten(0, 1), labels_nt.flatten(), reduction="none")
    return each.view(labels_nt.shape).to(torch.float64).sum(dim=1)


def _likeliest(outputs_ntv: Tensor) -> Tensor:
    return outputs_ntv.argmax(dim=2)


def _vocabulary(task: Task) -> int:
    return task.head.integer("vocabulary")


def _logits_of_a_sequence(task: Task) -> int:
    return task.input.integer("context") * _vocabulary(task)


def _bits_per_byte(split: Split, nats: NDArray[np.float64]) -> Interval:
    """Bits over bytes, sum over sum, with sequences of one file taken as correlated."""
    assert split.num_bytes is not None
    bits = nats / math.log(2)
    lower, upper = ratio_interval(bits, split.num_bytes, split.groups)
    return float(bits.sum() / split.num_bytes.sum()), lower, upper


def _bits_per_byte_by_domain(task: Task, split: Split, nats: NDArray[np.float64]) -> tuple[tuple[str, float], ...]:
    """Domains without a sequence in the split are left out: no number is made up for them."""
    if split.domains is None:
        return ()
    values = []
    for number, name in enumerate(task.domains):
        inside = split.domains == number
        if inside.any():
            assert split.num_bytes is not None
            values.append((name, float(nats[inside].sum() / math.log(2) / split.num_bytes[inside].sum())))
    return tuple(values)


LANGUAGE_MODELLING = TaskKind(
    prepare=_tokens,
    augment=_as_it_is,
    loss=_cross_entropy,
    grade=_nats,
    answer=_likeliest,
    num_labels=_vocabulary,
    num_outputs=_logits_of_a_sequence,
    summarise=_bits_per_byte,
    slices=_bits_per_byte_by_domain,
)
