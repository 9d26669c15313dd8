"""Scores a network on held-out examples; the one place where test is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from nas.training import checkpoint
from nas.training.kinds import kind_of
from nas.training.score import HeldOutScore
from nas.training.task import Split, Task
from search_spaces.candidate import Candidate

BuildModel = Callable[[Candidate], nn.Module]

EVAL_BATCH_SIZE = 256
"""Examples at a time; changes memory, and the score only through rounding."""


class NonFiniteOutputs(ArithmeticError):
    """A network answered with NaN or infinity: it has no score."""


def score_val(model: nn.Module, task: Task, *, seed: int) -> HeldOutScore:
    """Scores `model` on the val split, which may steer the search.

    Args:
        model: any network for the task; its mode is as before afterwards.
        task: the data.
        seed: the training seed behind the weights, recorded in the score.

    Raises:
        NonFiniteOutputs: the network answers with NaN or infinity.
        ValueError: no examples.
    """
    return _score(model, task, "val", task.val, seed)


def score_test(model: nn.Module, task: Task, *, seed: int) -> HeldOutScore:
    """Opens the test split. For members of the final front, once; never inside the search.

    Arguments and errors as for `score_val`.
    """
    return _score(model, task, "test", task.test, seed)


def load_model(
    candidate: Candidate, weights_path: Path, *, sha256: str | None = None, build: BuildModel | None = None
) -> nn.Module:
    """The trained network in evaluation mode.

    Args:
        candidate: what was trained.
        weights_path: `TrainResult.weights_path`.
        sha256: `TrainResult.weights_sha256`; None takes the one from the file beside the weights.
        build: as for `train`.

    Raises:
        CheckpointError: damaged weights, or weights of another candidate.
    """
    state = checkpoint.load_state(weights_path, sha256=sha256)
    with torch.random.fork_rng(devices=[]):
        model = (build or build_from_space)(candidate)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        line = " ".join(str(error).split())[:200]
        raise checkpoint.CheckpointError(
            f"{weights_path}: not the weights of {candidate.candidate_id}: {line}"
        ) from error
    return model.eval()


def build_from_space(candidate: Candidate) -> nn.Module:
    """The network that the search space makes of `candidate`, with fresh weights from torch's generator."""
    from search_spaces.build import build_model

    return build_model(candidate)


@torch.no_grad()
def _score(model: nn.Module, task: Task, name: Literal["val", "test"], split: Split, seed: int) -> HeldOutScore:
    kind = kind_of(task)
    if len(split) == 0:
        raise ValueError(f"task {task.name!r}: {name} has no examples; a score needs at least one")
    was_training = model.training
    model.eval()
    grades: list[Tensor] = []
    try:
        for start in range(0, len(split), EVAL_BATCH_SIZE):
            batch = slice(start, start + EVAL_BATCH_SIZE)
            outputs = model(kind.prepare(task, split.inputs[batch]))
            if not bool(torch.isfinite(outputs).all()):
                # argmax of NaN is a class like any other: it would pass for an answer.
                raise NonFiniteOutputs(f"the network answered {name} examples with NaN or infinity")
            grades.append(kind.grade(outputs, torch.from_numpy(split.labels[batch])))
    finally:
        model.train(was_training)
    values = torch.cat(grades).numpy().astype(np.float64)
    value, lower, upper = kind.summarise(values)
    return HeldOutScore(
        metric=task.metric,
        split=name,
        value=value,
        lower=lower,
        upper=upper,
        num_examples=len(split),
        seeds=(seed,),
        slices=kind.slices(task, values, split.labels),
    )
