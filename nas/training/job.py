"""What a worker process runs: one training, or one look at test, as plain picklable values."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nas.training.checkpoint import CheckpointError, write_atomically
from nas.training.data.sources import load_task
from nas.training.recipe import Recipe
from nas.training.result import Rehearsal, Shuffled, TrainFailure, TrainFailureKind, TrainResult
from nas.training.score import HeldOutScore
from nas.training.task import Task, TaskError, TaskSettings
from search_spaces.candidate import Candidate

if TYPE_CHECKING:
    from nas.gates.result import GateResult
    from nas.training.evaluate import BuildModel

T = TypeVar("T")

PROGRESS_INTERVAL_S = 0.25
"""Time between two writes of the progress file: smooth for a person, free for the training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a training is."""

    step: int
    num_steps: int


def train_job(
    candidate_json: str,
    task_settings: TaskSettings,
    recipe: Recipe,
    seed: int,
    out_dir: str,
    progress_path: str | None = None,
    build: BuildModel | None = None,
    until_epoch: int | None = None,
) -> TrainResult | TrainFailure:
    """Loads the data, trains and scores one candidate; meant for a child process, so it never raises.

    The caller enforces `recipe.timeout_s` by killing the process; calling again goes on from the
    last whole epoch.

    Args:
        candidate_json: `Candidate.canonical_json()`.
        task_settings: the data; kept in this process for the next call with the same settings.
        recipe: how to train, threads included.
        seed: of the training.
        out_dir: folder of this candidate alone: weights and checkpoints.
        progress_path: file that `read_progress` reads; None writes none.
        build: a module-level function that makes the network; None means the search spaces' own.
        until_epoch: as for `train`.
    """

    def work() -> TrainResult | TrainFailure:
        from nas.training.trainer import train

        candidate = Candidate.from_json(json.loads(candidate_json))
        on_step = None if progress_path is None else ProgressFile(Path(progress_path))
        return train(
            candidate,
            _cached_task(task_settings),
            recipe,
            seed=seed,
            out_dir=Path(out_dir),
            on_step=on_step,
            build=build,
            until_epoch=until_epoch,
        )

    return _at_boundary(work)


def rehearse_job(
    candidate_json: str, task_settings: TaskSettings, recipe: Recipe, seed: int, build: BuildModel | None = None
) -> Rehearsal | TrainFailure:
    """A few training steps and one scoring in a child process, for the smoke gate; arguments as for `train_job`."""

    def work() -> Rehearsal:
        from nas.training.rehearsal import rehearse

        candidate = Candidate.from_json(json.loads(candidate_json))
        return rehearse(candidate, _cached_task(task_settings), recipe, seed=seed, build=build)

    return _at_boundary(work)


def compare_path_job(
    name: str, candidate_json: str, task_settings: TaskSettings, recipe: Recipe, seed: int,
    build: BuildModel | None = None,
) -> GateResult | TrainFailure:  # fmt: skip
    """Puts a fast path through its gate in a child process; other arguments as for `train_job`."""

    def work() -> GateResult:
        from nas.training.fast_paths import compare_path

        candidate = Candidate.from_json(json.loads(candidate_json))
        seeds = (seed, seed + 1, seed + 2)
        return compare_path(name, candidate, _cached_task(task_settings), recipe, seeds=seeds, build=build)

    return _at_boundary(work)


def controls_job(
    candidate_json: str,
    task_settings: TaskSettings,
    recipe: Recipe,
    seed: int,
    weights_path: str,
    weights_sha256: str,
    build: BuildModel | None = None,
) -> Shuffled | TrainFailure:
    """The controls of one trained network in a child process; arguments as for `score_test_job`."""

    def work() -> Shuffled | TrainFailure:
        from nas.training.controls import score_shuffled

        return score_shuffled(
            Candidate.from_json(json.loads(candidate_json)),
            _cached_task(task_settings),
            recipe,
            seed=seed,
            weights_path=Path(weights_path),
            weights_sha256=weights_sha256,
            build=build,
        )

    return _at_boundary(work)


def score_test_job(
    candidate_json: str,
    task_settings: TaskSettings,
    seed: int,
    weights_path: str,
    weights_sha256: str,
    num_threads: int,
    build: BuildModel | None = None,
) -> HeldOutScore | TrainFailure:
    """Scores trained weights on test in a child process: for members of the final front, once."""

    def work() -> HeldOutScore | TrainFailure:
        import torch

        from nas.training.evaluate import NonFiniteOutputs, load_model, score_test

        torch.set_num_threads(num_threads)
        candidate = Candidate.from_json(json.loads(candidate_json))
        model = load_model(candidate, Path(weights_path), sha256=weights_sha256, build=build)
        try:
            return score_test(model, _cached_task(task_settings), seed=seed)
        except NonFiniteOutputs as error:
            return TrainFailure(kind="diverged", reason=str(error))

    return _at_boundary(work)


class ProgressFile:
    """Keeps a small file current with the steps done; readers never see half of it."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock, self._next_s = path, clock, 0.0

    def __call__(self, step: int, num_steps: int) -> None:
        """Writes when the last write is long enough ago, and always at the end."""
        now_s = self._clock()
        if now_s >= self._next_s or step == num_steps:
            content = json.dumps({"step": step, "num_steps": num_steps}).encode()
            write_atomically(self._path, content)
            self._next_s = now_s + PROGRESS_INTERVAL_S


def read_progress(path: Path) -> Progress | None:
    """How far the training that writes `path` is; None before its first step."""
    try:
        content = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    return Progress(**json.loads(content))


@lru_cache(maxsize=2)
def _cached_task(settings: TaskSettings) -> Task:
    return load_task(settings)


def _at_boundary(work: Callable[[], T]) -> T | TrainFailure:
    """Runs `work`; what it raises becomes a failure with its traceback."""
    started_s = time.monotonic()

    def failure(kind: TrainFailureKind, error: BaseException) -> TrainFailure:
        lines = str(error).splitlines() or [type(error).__name__]
        reason = lines[0] if kind != "crashed" else f"{type(error).__name__}: {lines[0]}"
        return TrainFailure(
            kind=kind, reason=reason, duration_s=time.monotonic() - started_s, traceback=traceback.format_exc()
        )

    try:
        return work()
    except TaskError as error:
        return failure("bad_data", error)
    except (CheckpointError, OSError) as error:
        return failure("storage", error)
    except MemoryError as error:
        return failure("out_of_memory", error)
    except Exception as error:  # the process boundary: the parent must get a value
        # torch has no type of its own for a failed allocation on the processor.
        is_memory = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
        return failure("out_of_memory" if is_memory else "crashed", error)
