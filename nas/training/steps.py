"""The steps of a training: batches, groups of weights, the rate of each step, and the step itself."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from nas.training.recipe import Recipe
from nas.training.task_kind import Inputs, TaskKind, call

if TYPE_CHECKING:
    from numpy.typing import NDArray


def derived_seed(seed: int, purpose: str) -> int:
    """A seed of its own for each purpose, so that no two draws share a stream."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:8], "big") >> 1


def epoch_size(num_examples: int, recipe: Recipe) -> int:
    """Examples of one epoch."""
    return min(num_examples, recipe.epoch_examples or num_examples)


def epoch_order(
    num_examples: int, recipe: Recipe, *, seed: int, epoch: int, generator: torch.Generator
) -> NDArray[np.int64]:
    """The examples of epoch `epoch` (from 0) in their order: all of them anew, or the next ones of one long order.

    Args:
        num_examples: in train.
        recipe: its `epoch_examples`.
        seed: of the training.
        epoch: which one; each follows from the seed alone, so that a training can go on from any.
        generator: of the epoch; orders a whole split.
    """
    size = epoch_size(num_examples, recipe)
    if size == num_examples:
        return np.asarray(torch.randperm(num_examples, generator=generator).numpy())
    rounds, places = np.divmod(np.arange(epoch * size, (epoch + 1) * size), num_examples)
    orders = {}
    for number in np.unique(rounds):
        of_round = torch.Generator().manual_seed(derived_seed(seed, f"round {number}"))
        orders[number] = torch.randperm(num_examples, generator=of_round).numpy()
    return np.array([orders[number][place] for number, place in zip(rounds, places, strict=True)], dtype=np.int64)


def learning_rate_at(step: int, num_steps: int, recipe: Recipe) -> float:
    """Learning rate of step `step` (from 0): linear up to the peak, then half a cosine to zero.

    >>> recipe = Recipe(learning_rate=1.0, warmup_share=0.2)
    >>> [round(learning_rate_at(step, 10, recipe), 2) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.04]
    """
    warmup = round(recipe.warmup_share * num_steps)
    if step < warmup:
        return recipe.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / (num_steps - warmup)
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def batch_bounds(num_examples: int, batch_size: int) -> list[tuple[int, int]]:
    """Start and end of each batch: sizes differ by at most one and are at least `batch_size`.

    A last batch of one example would break batch norm; dropping it would waste data.

    >>> batch_bounds(7, 3)
    [(0, 4), (4, 7)]
    >>> batch_bounds(2, 3)
    [(0, 2)]
    """
    count = max(1, num_examples // batch_size)
    edges = [math.ceil(num_examples * index / count) for index in range(count + 1)]
    return list(pairwise(edges))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for the optimiser: matrices and kernels decay, what is in effect a vector does not.

    Norm weights, biases and per-channel scales (also those of shape 1 x C x 1 x 1) have at most one
    axis longer than 1.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    is_vector = [sum(size > 1 for size in parameter.shape) <= 1 for parameter in trained]
    decayed = [parameter for parameter, vector in zip(trained, is_vector, strict=True) if not vector]
    plain = [parameter for parameter, vector in zip(trained, is_vector, strict=True) if vector]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    kind: TaskKind,
    inputs: Inputs,
    labels: torch.Tensor,
    recipe: Recipe,
    rate: float,
) -> tuple[float, torch.Tensor] | None:
    """One step of the optimiser, in a training and in its rehearsal alike.

    Returns:
        Loss and outputs before the step; None when the loss is not finite, and no step was made.
    """
    outputs = call(model, inputs)
    loss = kind.loss(outputs, labels, recipe)
    loss_value = float(loss.detach())
    if not math.isfinite(loss_value):
        return None
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
    optimizer.step()
    return loss_value, outputs.detach()


@contextmanager
def reproducible(num_threads: int) -> Iterator[None]:
    """Fixed threads, deterministic kernels and a generator of our own; all put back afterwards."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(num_threads)
    torch.use_deterministic_algorithms(True)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=warn_only)
        torch.set_num_threads(threads)
