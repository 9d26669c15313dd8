"""A training in small, watched closely: what the smoke gate judges before anything is spent.

The steps and the scoring are those of a real training (`trainer.training_step`, `evaluate.score_val`).
Nothing is judged here: `nas.gates.smoke` does that, without torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nas.training import evaluate
from nas.training.evaluate import BuildModel, NonFiniteOutputs, build_from_space, eval_batch_size
from nas.training.grpo import UpdateRecord
from nas.training.kinds import kind_of
from nas.training.recipe import Recipe
from nas.training.reinforce import reinforced_step
from nas.training.result import Rehearsal, ScoringProbe
from nas.training.steps import (
    derived_seed,
    learning_rate_at,
    parameter_groups,
    reproducible,
    training_step,
)
from nas.training.task import Task
from nas.training.task_kind import TaskKind, call, labels_tensor
from search_spaces.candidate import Candidate

LEAST_STEPS = 5
MOST_STEPS = 40
"""Steps on one repeated batch: as few as show that it learns, at most so many. A network that cannot
fit 64 examples in 40 steps at its peak rate does not learn."""
LOSS_SHARE = 0.9
"""The loss has fallen when it is below this share of the first one."""
NUM_UPDATES = 12
"""Updates by reinforcement: enough for the share of answers that parse to move."""
NUM_EXAMPLES = 256
"""Val examples that are scored, or as many as are at a time."""


@dataclass(slots=True)
class _Watched:
    """What was seen of each parameter over the steps."""

    largest: dict[str, float]
    not_finite: set[str]

    def look(self, model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                continue
            if not bool(torch.isfinite(parameter.grad).all()):
                self.not_finite.add(name)
            self.largest[name] = max(self.largest.get(name, 0.0), float(parameter.grad.abs().max()))


def rehearse(
    candidate: Candidate, task: Task, recipe: Recipe, *, seed: int, build: BuildModel | None = None
) -> Rehearsal:
    """Trains a few steps on one repeated batch, then scores a part of val, and says what was seen.

    Args:
        candidate, task, recipe, seed, build: as for `train`; nothing is kept.
    """
    started_s = time.monotonic()
    with reproducible(recipe.num_threads):
        torch.default_generator.manual_seed(derived_seed(seed, "weights"))
        model: nn.Module = (build or build_from_space)(candidate)
        broken = tuple(name for name, value in _tensors(model) if not bool(torch.isfinite(value).all()))
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        losses, grades, watched = _repeat_one_batch(model, task, recipe)
        still = tuple(
            name for name, parameter in model.named_parameters() if torch.equal(before[name], parameter.detach())
        )
        shares, probe, error = _score(model, task, seed)
        updates = _reinforce(candidate, task, recipe, seed, build) if recipe.recipe == "grpo" else None
    return Rehearsal(
        num_parameters=len(before),
        weights_not_finite=broken,
        without_gradient=tuple(name for name in before if watched.largest.get(name, 0.0) == 0.0),
        gradients_not_finite=tuple(sorted(watched.not_finite)),
        unchanged=still,
        losses=tuple(losses),
        grades=tuple(grades),
        valid_share=shares,
        scoring=probe,
        scoring_error=error,
        direction=task.direction,
        updates=updates,
        duration_s=time.monotonic() - started_s,
    )


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if buffer.is_floating_point())


def _repeat_one_batch(model: nn.Module, task: Task, recipe: Recipe) -> tuple[list[float], list[float], _Watched]:
    """Losses and mean grades before each step, until both are clearly better or the steps are over."""
    kind = kind_of(task)
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), lr=recipe.learning_rate)
    batch = spread_over_labels(task.train.labels, recipe.batch_size)
    inputs, labels = kind.prepare(task, task.train.inputs[batch]), labels_tensor(task.train.labels[batch])
    peak = max(learning_rate_at(step, 10, recipe) for step in range(10))
    losses: list[float] = []
    grades: list[float] = []
    watched = _Watched(largest={}, not_finite=set())
    model.train()
    for step in range(MOST_STEPS + 1):
        stepped = training_step(model, optimizer, kind, inputs, labels, recipe, peak)
        if stepped is None:
            losses.append(float("nan"))
            break
        loss, outputs = stepped
        losses.append(loss)
        grades.append(_mean_grade(kind, outputs, labels))
        watched.look(model)
        if step >= LEAST_STEPS and has_learnt(losses, grades, task.direction):
            break
    return losses, grades, watched


def _reinforce(
    candidate: Candidate, task: Task, recipe: Recipe, seed: int, build: BuildModel | None
) -> tuple[UpdateRecord, ...]:
    """The first updates of a training by reinforcement, at its peak rate and from fresh weights."""
    torch.default_generator.manual_seed(derived_seed(seed, "weights"))
    model: nn.Module = (build or build_from_space)(candidate)
    kind = kind_of(task)
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), lr=recipe.learning_rate)
    generator = torch.Generator().manual_seed(derived_seed(seed, "rollouts"))
    records = []
    for number in range(NUM_UPDATES):
        batch = np.arange(number * recipe.batch_size, (number + 1) * recipe.batch_size) % len(task.train)
        inputs, labels = kind.prepare(task, task.train.inputs[batch]), labels_tensor(task.train.labels[batch])
        assert isinstance(inputs, Tensor)
        record = reinforced_step(model, optimizer, kind, inputs, labels, recipe, recipe.learning_rate, generator)
        if record is None:
            break
        records.append(record)
    return tuple(records)


def spread_over_labels(labels: NDArray[Any], num_wanted: int) -> NDArray[np.int64]:
    """Examples of as many (first) labels as there are, in turn: files are often sorted by class.

    >>> spread_over_labels(np.array([0, 0, 0, 1, 1]), 4).tolist()
    [0, 3, 1, 4]
    """
    first = labels.reshape(len(labels), -1)[:, 0]
    by_label = np.argsort(first, kind="stable")
    starts = np.searchsorted(first[by_label], first[by_label])
    turn = np.arange(len(first)) - starts
    return by_label[np.lexsort((by_label, turn))][:num_wanted]


def has_learnt(losses: list[float], grades: list[float], direction: str) -> bool:
    """Whether loss and grade of one repeated batch are both better than at first.

    >>> has_learnt([2.3, 1.9], [0.1, 0.4], "maximize"), has_learnt([2.3, 1.9], [0.1, 0.0], "maximize")
    (True, False)
    """
    sign = 1.0 if direction == "maximize" else -1.0
    fallen = losses[-1] < losses[0] - (1 - LOSS_SHARE) * abs(losses[0])
    return fallen and sign * (grades[-1] - grades[0]) > 0


def _mean_grade(kind: TaskKind, outputs: Tensor, labels: Tensor) -> float:
    grades = kind.grade(outputs, labels)
    return float(grades.mean()) if grades.numel() else float("nan")


@torch.no_grad()
def _score(model: nn.Module, task: Task, seed: int) -> tuple[float, ScoringProbe | None, str | None]:
    """Share of valid outputs, and what scoring says of labels that are all right, all wrong, and true."""
    kind = kind_of(task)
    part = task.val.take(slice(min(NUM_EXAMPLES, eval_batch_size(task))))
    model.eval()
    outputs = call(model, kind.prepare(task, part.inputs))
    is_valid = torch.isfinite(outputs).flatten(1).all(dim=1)
    valid_share = float(is_valid.to(torch.float64).mean())
    own = kind.answer(outputs).numpy().astype(np.int64)
    num_labels = max(2, kind.num_labels(task))
    try:
        true, right, wrong = (
            evaluate.score_val(model, replace(task, val=replace(part, labels=labels)), seed=seed)
            for labels in (part.labels, own, (own + 1) % num_labels)
        )
    except NonFiniteOutputs as error:
        return valid_share, None, str(error)
    except (ValueError, RuntimeError, TypeError, ZeroDivisionError) as error:  # what an evaluation without grades does
        return valid_share, None, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    if any(score is None for score in (true, right, wrong)):
        return valid_share, None, "it returned nothing"
    probe = ScoringProbe(
        split=true.split, value=true.value, if_right=right.value, if_wrong=wrong.value,
        num_examples=true.num_examples, num_given=len(part),
    )  # fmt: skip
    return valid_share, probe, None
