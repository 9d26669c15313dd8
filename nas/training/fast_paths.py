"""A faster way to train beside the slow one, on the same seeds and batches, for `nas.gates.equal_paths`."""

from __future__ import annotations

import math

from nas.gates.equal_paths import PathRun, equal_paths_gate
from nas.gates.result import GateResult
from nas.training.evaluate import BuildModel
from nas.training.paths import SLOW, TrainingPath, path_of
from nas.training.recipe import Recipe
from nas.training.result import TrainFailure
from nas.training.task import Task
from nas.training.trainer import train
from search_spaces.candidate import Candidate

EPOCH_SHARE = 0.25
"""Of the recipe's epochs: a path that computes something else shows as early as learning does. Over long trainings two
paths drift apart by rounding alone, as far as two seeds are apart."""


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
    """Trains both ways with each seed, as a study trains, and says whether the fast one may stand for the slow one.

    Args:
        name: of `FAST_PATHS`, or what to call `path`.
        candidate, task, recipe, build: as for `train`; the recipe's epochs are cut to `EPOCH_SHARE`.
        seeds: at least three.
        path: another one than those of `FAST_PATHS`.
    """
    fast = path or path_of(name)
    short = recipe.model_copy(update={"epochs": max(1, round(EPOCH_SHARE * recipe.epochs)), "keep": "last"})
    runs = [[_run(each, candidate, task, short, seed, build) for seed in seeds] for each in (SLOW, fast)]
    return equal_paths_gate(name, *runs)


def _run(
    path: TrainingPath, candidate: Candidate, task: Task, recipe: Recipe, seed: int, build: BuildModel | None
) -> PathRun:
    losses: list[float] = []
    trained = train(candidate, task, recipe, seed=seed, path=path, build=build, on_loss=losses.append)
    if isinstance(trained, TrainFailure):
        return PathRun(seed=seed, losses=(*losses, math.nan), score=math.nan)
    return PathRun(seed=seed, losses=tuple(losses), score=trained.score.value)
