"""Faster ways to train, each beside the slow one on the same seeds and batches, for `nas.gates.equal_paths`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nas.gates.equal_paths import PathRun, equal_paths_gate
from nas.gates.result import GateResult
from nas.training.evaluate import BuildModel, build_from_space, score_val
from nas.training.kinds import kind_of
from nas.training.recipe import Recipe
from nas.training.steps import (
    batch_bounds,
    derived_seed,
    epoch_order,
    epoch_size,
    learning_rate_at,
    parameter_groups,
    training_step,
)
from nas.training.task import Task
from nas.training.task_kind import labels_tensor
from nas.training.trainer import reproducible
from search_spaces.candidate import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPath:
    """A way to run a training step.

    Attributes:
        prepare: what is done to a network first.
        context: what a step runs in.
    """

    prepare: Callable[[nn.Module], nn.Module] = lambda model: model
    context: Callable[[], AbstractContextManager[Any]] = nullcontext


SLOW = TrainingPath()
"""Contiguous tensors, float32, one operation after the other."""

FAST_PATHS: dict[str, TrainingPath] = {
    "channels_last": TrainingPath(
        prepare=lambda model: model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    ),
    "bfloat16": TrainingPath(context=lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "compiled": TrainingPath(prepare=lambda model: torch.compile(model)),  # type: ignore[arg-type,return-value]
}
"""By name; the trainer uses `channels_last`, which a test puts through the gate."""


def compare_path(
    name: str,
    candidate: Candidate,
    task: Task,
    recipe: Recipe,
    *,
    seeds: tuple[int, ...] = (0, 1, 2),
    path: TrainingPath | None = None,
    build: BuildModel | None = None,
) -> GateResult:
    """Trains both ways with each seed, and says whether the fast one may stand for the slow one.

    Args:
        name: of `FAST_PATHS`, or what to call `path`.
        candidate, task, recipe, build: as for `train`; augmentation is left out of both.
        seeds: at least three.
        path: another one than those of `FAST_PATHS`.
    """
    fast = path or FAST_PATHS[name]
    runs = [[_run(each, candidate, task, recipe, seed, build) for seed in seeds] for each in (SLOW, fast)]
    return equal_paths_gate(name, *runs)


def _run(
    path: TrainingPath, candidate: Candidate, task: Task, recipe: Recipe, seed: int, build: BuildModel | None
) -> PathRun:
    kind = kind_of(task)
    losses: list[float] = []
    with reproducible(recipe.num_threads):
        torch.default_generator.manual_seed(derived_seed(seed, "weights"))
        plain: nn.Module = (build or build_from_space)(candidate)
        model = path.prepare(plain)
        optimizer = torch.optim.AdamW(parameter_groups(plain, recipe.weight_decay), lr=recipe.learning_rate)
        bounds = batch_bounds(epoch_size(len(task.train), recipe), recipe.batch_size)
        num_steps = recipe.epochs * len(bounds)
        for epoch in range(recipe.epochs):
            generator = torch.Generator().manual_seed(derived_seed(seed, f"epoch {epoch}"))
            torch.default_generator.manual_seed(derived_seed(seed, f"dropout {epoch}"))
            order = epoch_order(len(task.train), recipe, seed=seed, epoch=epoch, generator=generator)
            model.train()
            for start, end in bounds:
                batch = order[start:end]
                inputs = kind.prepare(task, task.train.inputs[batch])
                labels = labels_tensor(task.train.labels[batch])
                with path.context():
                    rate = learning_rate_at(len(losses), num_steps, recipe)
                    stepped = training_step(model, optimizer, kind, inputs, labels, recipe, rate)
                losses.append(float("nan") if stepped is None else stepped[0])
                if stepped is None:
                    losses += [float("nan")] * (num_steps - len(losses))
                    return PathRun(seed=seed, losses=tuple(losses), score=0.0)
        return PathRun(seed=seed, losses=tuple(losses), score=score_val(plain, task, seed=seed).value)
