"""Scores a network on held-out examples; the one place where test is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from nas.training import checkpoint
from nas.training.kinds import kind_of
from nas.training.score import HeldOutScore
from nas.training.task import Split, Task
from nas.training.task_kind import call, labels_tensor
from search_spaces.candidate import Candidate

BuildModel = Callable[[Candidate], nn.Module]

EVAL_BATCH_SIZE = 256
"""Examples at a time; changes memory, and the score only through rounding."""

MAX_OUTPUTS = 2**22
"""Numbers that a network may answer at a time, 16 MiB of float32: examples with larger answers, as the logits
of every position of a text, are scored fewer at a time."""


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


def eval_batch_size(task: Task) -> int:
    """Examples that are scored at a time."""
    return min(EVAL_BATCH_SIZE, max(1, MAX_OUTPUTS // max(1, kind_of(task).num_outputs(task))))


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
        line = _other_vocabulary(state, model, candidate) or " ".join(str(error).split())[:200]
        raise checkpoint.CheckpointError(
            f"{weights_path}: not the weights of {candidate.candidate_id}: {line}"
        ) from error
    return model.eval()


def _other_vocabulary(state: dict[str, Any], model: nn.Module, candidate: Candidate) -> str | None:
    """Says that weights and network differ in their vocabulary alone; None when they differ otherwise, or have none."""
    mine = dict(candidate.head.options).get("vocabulary")
    own = model.state_dict()
    differing = {name for name in {*own, *state} if name not in own or name not in state}
    shapes = [
        (tuple(state[name].shape), tuple(value.shape))
        for name, value in own.items()
        if name in state and state[name].shape != value.shape
    ]
    others = {theirs[0] for theirs, ours in shapes if theirs[1:] == ours[1:] and ours[:1] == (mine,)}
    if mine is None or differing or len(others) != 1 or any(ours[:1] != (mine,) for _, ours in shapes):
        return None
    return (
        f"they are of a vocabulary of {others.pop()} tokens, the network has {mine};"
        " set task.vocabulary to that of the training"
    )


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
        size = eval_batch_size(task)
        for start in range(0, len(split), size):
            batch = slice(start, start + size)
            outputs = call(model, kind.prepare(task, split.inputs[batch]))
            if not bool(torch.isfinite(outputs).all()):
                # argmax of NaN is a class like any other: it would pass for an answer.
                raise NonFiniteOutputs(f"the network answered {name} examples with NaN or infinity")
            grades.append(kind.grade(outputs, labels_tensor(split.labels[batch])))
    finally:
        model.train(was_training)
    values = torch.cat(grades).numpy().astype(np.float64)
    value, lower, upper = kind.summarise(split, values)
    return HeldOutScore(
        metric=task.metric,
        split=name,
        value=value,
        lower=lower,
        upper=upper,
        num_examples=len(split),
        seeds=(seed,),
        slices=kind.slices(task, split, values),
    )
