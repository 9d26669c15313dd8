"""Trains one candidate on one task, bit for bit the same each time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nas.training import checkpoint
from nas.training.evaluate import BuildModel, NonFiniteOutputs, build_from_space, score_val
from nas.training.kinds import kind_of
from nas.training.paths import TrainingPath, path_of
from nas.training.recipe import Recipe
from nas.training.reinforce import reinforced_step
from nas.training.result import EpochRecord, TrainFailure, TrainResult
from nas.training.score import HeldOutScore
from nas.training.steps import (
    batch_bounds,
    derived_seed,
    epoch_order,
    epoch_size,
    learning_rate_at,
    parameter_groups,
    reproducible,
    training_step,
)
from nas.training.task import Task
from nas.training.task_kind import Inputs, labels_tensor
from search_spaces.candidate import Candidate

OnStep = Callable[[int, int], None]
"""Called after each step with the steps done and the steps in all."""

OnLoss = Callable[[float], None]
"""Called with the loss of each step."""

WEIGHTS_FILE = "weights.pt"


def train(
    candidate: Candidate,
    task: Task,
    recipe: Recipe,
    *,
    seed: int,
    out_dir: Path | None = None,
    on_step: OnStep | None = None,
    on_loss: OnLoss | None = None,
    build: BuildModel | None = None,
    path: TrainingPath | None = None,
    until_epoch: int | None = None,
) -> TrainResult | TrainFailure:
    """Trains `candidate` on the train split and scores it on val; test is never touched.

    AdamW (Loshchilov and Hutter 2019), linear warm-up, cosine to zero. The same arguments and
    threads give the same weights to the last bit on one machine; torch's global generator, thread
    count and determinism switch are as before afterwards.

    Args:
        candidate: what to build.
        task: data; its kind selects loss and scoring.
        recipe: how to train. `timeout_s` is for the caller, who can kill the process.
        seed: of initial weights, order of examples, dropout and augmentation.
        out_dir: gets the final weights, and a checkpoint each epoch from which the same call goes
            on after a kill; None keeps nothing.
        on_step, on_loss: progress.
        build: makes the network; None means `search_spaces.build.build_model`.
        path: how steps are run; None means that of the recipe.
        until_epoch: pause after this epoch, with the score so far, no weights, and the checkpoint from which the
            same call with a later epoch, or None, goes on. The schedule is that of the whole recipe, so that a
            training with pauses ends with the same bits as one without; a paused one has not come to rest.

    Raises:
        CheckpointError: `out_dir` cannot be written.
        TaskError: a task of unknown kind.
    """
    with reproducible(recipe.num_threads):
        run = _Run.begin(
            candidate, task, recipe, seed, out_dir, build or build_from_space, path or path_of(recipe.fast_path)
        )
        last_epoch = min(recipe.epochs, until_epoch or recipe.epochs)
        try:
            run.untrained = run.untrained or score_val(run.model, task, seed=seed)
            score: HeldOutScore | None = None
            while run.epoch < last_epoch:
                loss = _train_epoch(run, on_step, on_loss)
                if loss is None:
                    return run.diverged(f"the loss was not finite at step {run.step} of {run.num_steps}")
                score = score_val(run.model, task, seed=seed)
                run.keep_if_best(score)
                rate = learning_rate_at(run.step - 1, run.num_steps, recipe)
                run.history.append(
                    EpochRecord(step=run.step, train_loss=loss, learning_rate=rate, val_value=score.value)
                )
                run.save()
            if run.best is not None:
                score = run.best.score
            # None when the kill came after the last epoch's checkpoint.
            score = score or score_val(run.model, task, seed=seed)
        except NonFiniteOutputs as error:
            return run.diverged(f"{error} after step {run.step} of {run.num_steps}")
        return run.finish(score) if last_epoch == recipe.epochs else run.result(score)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Best:
    """The weights with the best val score so far."""

    step: int
    score: HeldOutScore
    weights: dict[str, torch.Tensor]


@dataclass(slots=True)
class _Run:
    """State of one training between epochs: all of it is in a checkpoint."""

    candidate: Candidate
    task: Task
    recipe: Recipe
    seed: int
    out_dir: Path | None
    path: TrainingPath
    model: nn.Module
    stepped: nn.Module
    optimizer: torch.optim.Optimizer
    fingerprint: str
    identity: str
    num_steps: int
    started_s: float
    step: int = 0
    resumed_from_step: int = 0
    earlier_s: float = 0.0
    untrained: HeldOutScore | None = None
    history: list[EpochRecord] = field(default_factory=list)
    best: _Best | None = None

    @classmethod
    def begin(
        cls,
        candidate: Candidate,
        task: Task,
        recipe: Recipe,
        seed: int,
        out_dir: Path | None,
        build: BuildModel,
        path: TrainingPath,
    ) -> _Run:
        """A fresh training, or the one that was interrupted in `out_dir`."""
        started_s = time.monotonic()
        torch.default_generator.manual_seed(derived_seed(seed, "weights"))
        model = build(candidate)
        fingerprint = task.fingerprint
        run = cls(
            candidate=candidate,
            task=task,
            recipe=recipe,
            seed=seed,
            out_dir=out_dir,
            path=path,
            model=model,
            stepped=path.prepare(model),
            optimizer=torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), lr=recipe.learning_rate),
            fingerprint=fingerprint,
            identity=_identity(candidate, recipe, seed, fingerprint),
            num_steps=recipe.epochs * len(batch_bounds(epoch_size(len(task.train), recipe), recipe.batch_size)),
            started_s=started_s,
        )
        state = None if out_dir is None else checkpoint.latest_checkpoint(out_dir, identity=run.identity)
        if state is not None:
            run.restore(state)
        return run

    @property
    def epoch(self) -> int:
        return len(self.history)

    def duration_s(self) -> float:
        return self.earlier_s + time.monotonic() - self.started_s

    def keep_if_best(self, score: HeldOutScore) -> None:
        """Copies the weights when their score is better than any before; of equal ones the earlier stays."""
        if self.recipe.keep == "last":
            return
        sign = 1.0 if self.task.direction == "maximize" else -1.0
        if self.best is None or sign * score.value > sign * self.best.score.value:
            weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
            self.best = _Best(step=self.step, score=score, weights=weights)

    def save(self) -> None:
        """Keeps the state after an epoch.

        No generator state is in it: every epoch seeds its own from (seed, epoch), so there is none
        between epochs.
        """
        if self.out_dir is None:
            return
        assert self.untrained is not None
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": [asdict(record) for record in self.history],
            "untrained": asdict(self.untrained),
            "duration_s": self.duration_s(),
        }
        if self.best is not None:
            state["best"] = {
                "step": self.best.step, "score": asdict(self.best.score), "weights": self.best.weights
            }  # fmt: skip
        checkpoint.save_checkpoint(self.out_dir, step=self.step, identity=self.identity, state=state)

    def restore(self, state: dict[str, Any]) -> None:
        """Puts back what `save` kept."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history = [EpochRecord(**record) for record in state["history"]]
        self.untrained = HeldOutScore(**state["untrained"])
        self.earlier_s = state["duration_s"]
        if "best" in state:
            best = state["best"]
            self.best = _Best(step=best["step"], score=HeldOutScore(**best["score"]), weights=best["weights"])
        self.step = self.resumed_from_step = state["step"]

    def finish(self, score: HeldOutScore) -> TrainResult:
        """Keeps the best weights, or the last, and only then drops the checkpoints."""
        if self.best is not None:
            self.model.load_state_dict(self.best.weights)
        if self.out_dir is None:
            return self.result(score)
        path = self.out_dir / WEIGHTS_FILE
        sha256 = checkpoint.save_state(path, self.model.state_dict())
        checkpoint.remove_checkpoints(self.out_dir)
        return self.result(score, path, sha256)

    def result(self, score: HeldOutScore, path: Path | None = None, sha256: str | None = None) -> TrainResult:
        """What came of the epochs so far, and where the weights are."""
        assert self.untrained is not None
        return TrainResult(
            candidate_id=self.candidate.candidate_id,
            seed=self.seed,
            score=score,
            untrained_score=self.untrained,
            history=tuple(self.history),
            num_steps=self.step,
            chosen_step=self.step if self.best is None else self.best.step,
            resumed_from_step=self.resumed_from_step,
            duration_s=self.duration_s(),
            task_fingerprint=self.fingerprint,
            weights_path=None if path is None else str(path),
            weights_sha256=sha256,
        )

    def diverged(self, reason: str) -> TrainFailure:
        """The failure as a value; checkpoints go, as the same call would diverge again."""
        if self.out_dir is not None:
            checkpoint.remove_checkpoints(self.out_dir)
        return TrainFailure(kind="diverged", reason=reason, step=self.step, duration_s=self.duration_s())


def _train_epoch(run: _Run, on_step: OnStep | None, on_loss: OnLoss | None) -> float | None:
    """One epoch. Returns the mean loss, or None as soon as one is not finite."""
    kind, recipe, split = kind_of(run.task), run.recipe, run.task.train
    generator = torch.Generator().manual_seed(derived_seed(run.seed, f"epoch {run.epoch}"))
    torch.default_generator.manual_seed(derived_seed(run.seed, f"dropout {run.epoch}"))
    order = epoch_order(len(split), recipe, seed=run.seed, epoch=run.epoch, generator=generator)
    run.stepped.train()
    total = 0.0
    for start, end in batch_bounds(len(order), recipe.batch_size):
        batch = order[start:end]
        inputs = kind.augment(kind.prepare(run.task, split.inputs[batch]), recipe, generator)
        rate = learning_rate_at(run.step, run.num_steps, recipe)
        loss_value = _take_step(run, inputs, labels_tensor(split.labels[batch]), rate, generator)
        if loss_value is None:
            return None
        total += loss_value * len(batch)
        run.step += 1
        if on_loss is not None:
            on_loss(loss_value)
        if on_step is not None:
            on_step(run.step, run.num_steps)
    return total / len(order)


def _take_step(
    run: _Run, inputs: Inputs, labels: torch.Tensor, rate: float, generator: torch.Generator
) -> float | None:
    """The loss of one step, or by reinforcement minus the mean reward; None when the loss is not finite."""
    kind, recipe = kind_of(run.task), run.recipe
    if recipe.recipe == "grpo":
        assert isinstance(inputs, torch.Tensor)
        record = reinforced_step(run.model, run.optimizer, kind, inputs, labels, recipe, rate, generator)
        return None if record is None else -record.mean_reward
    with run.path.context():
        stepped = training_step(run.stepped, run.optimizer, kind, inputs, labels, recipe, rate)
    return None if stepped is None else stepped[0]


def _identity(candidate: Candidate, recipe: Recipe, seed: int, fingerprint: str) -> str:
    """What must be equal for a checkpoint to be continued; the time limit and where it may pause do not matter."""
    said = recipe.model_dump_json(exclude={"timeout_s", "ladder", "min_epochs"})
    parts = (candidate.canonical_json(), said, seed, fingerprint)
    return hashlib.sha256(repr((*parts, torch.__version__)).encode()).hexdigest()
