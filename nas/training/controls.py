"""Trains and scores with the link between inputs and labels cut: what a control gate compares with chance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from nas.training.evaluate import BuildModel, load_model, score_val
from nas.training.kinds import kind_of
from nas.training.recipe import Recipe
from nas.training.result import Shuffled, TrainFailure
from nas.training.task import Task
from nas.training.trainer import train
from search_spaces.candidate import Candidate

EPOCH_SHARE = 0.25
"""Of the recipe's epochs: a leak shows as early as learning does, and the control stays cheap."""


def score_shuffled(
    candidate: Candidate,
    task: Task,
    recipe: Recipe,
    *,
    seed: int,
    weights_path: Path,
    weights_sha256: str,
    build: BuildModel | None = None,
) -> Shuffled | TrainFailure:
    """Both controls of one trained network.

    Raises:
        CheckpointError: the weights are damaged.
    """
    generator = np.random.default_rng(seed)
    labels = task.train.labels[generator.permutation(len(task.train))]
    short = recipe.model_copy(update={"epochs": max(1, round(EPOCH_SHARE * recipe.epochs)), "keep": "last"})
    dealt = replace(task, train=replace(task.train, labels=labels))
    trained = train(candidate, dealt, short, seed=seed, build=build)
    if isinstance(trained, TrainFailure):
        return trained
    model = load_model(candidate, weights_path, sha256=weights_sha256, build=build)
    inputs = kind_of(task).shuffle(task.val.inputs, generator)
    mixed = replace(task, val=replace(task.val, inputs=inputs))
    return Shuffled(labels=trained.score, inputs=score_val(model, mixed, seed=seed))
