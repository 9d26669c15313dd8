"""Trains one candidate on one task, bit for bit the same each time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nas.training import checkpoint
from nas.training.evaluate import BuildModel, NonFiniteOutputs, build_from_space, score_val
from nas.training.kinds import kind_of
from nas.training.recipe import Recipe
from nas.training.result import EpochRecord, TrainFailure, TrainResult
from nas.training.score import HeldOutScore
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
from search_spaces.candidate import Candidate

OnStep = Callable[[int, int], None]
"""Called after each step with the steps done and the steps in all."""

WEIGHTS_FILE = "weights.pt"


def train(
    candidate: Candidate,
    task: Task,
    recipe: Recipe,
    *,
    seed: int,
    out_dir: Path | None = None,
    on_step: OnStep | None = None,
    build: BuildModel | None = None,
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
        on_step: progress.
        build: makes the network; None means `search_spaces.build.build_model`.

    Raises:
        CheckpointError: `out_dir` cannot be written.
        TaskError: a task of unknown kind.
    """
    with reproducible(recipe.num_threads):
        run = _Run.begin(candidate, task, recipe, seed, out_dir, build or build_from_space)
        try:
            run.untrained = run.untrained or score_val(run.model, task, seed=seed)
            score: HeldOutScore | None = None
            while run.epoch < recipe.epochs:
                loss = _train_epoch(run, on_step)
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
                score = run.take_best()
            # None when the kill came after the last epoch's checkpoint.
            score = score or score_val(run.model, task, seed=seed)
        except NonFiniteOutputs as error:
            return run.diverged(f"{error} after step {run.step} of {run.num_steps}")
        return run.finish(score)


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
    model: nn.Module
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
        cls, candidate: Candidate, task: Task, recipe: Recipe, seed: int, out_dir: Path | None, build: BuildModel
    ) -> _Run:
        """A fresh training, or the one that was interrupted in `out_dir`."""
        started_s = time.monotonic()
        torch.default_generator.manual_seed(derived_seed(seed, "weights"))
        # A third less processor time for convolutions on CPUs; tensors without four axes stay as they are.
        model = build(candidate).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        fingerprint = task.fingerprint
        run = cls(
            candidate=candidate,
            task=task,
            recipe=recipe,
            seed=seed,
            out_dir=out_dir,
            model=model,
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

    def take_best(self) -> HeldOutScore:
        """Puts the best weights into the network."""
        assert self.best is not None
        self.model.load_state_dict(self.best.weights)
        return self.best.score

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
        """Keeps the final weights, and only then drops the checkpoints."""
        assert self.untrained is not None
        path, sha256 = None, None
        if self.out_dir is not None:
            path = self.out_dir / WEIGHTS_FILE
            sha256 = checkpoint.save_state(path, self.model.state_dict())
            checkpoint.remove_checkpoints(self.out_dir)
        return TrainResult(
            candidate_id=self.candidate.candidate_id,
            seed=self.seed,
            score=score,
            untrained_score=self.untrained,
            history=tuple(self.history),
            num_steps=self.num_steps,
            chosen_step=self.num_steps if self.best is None else self.best.step,
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


def _train_epoch(run: _Run, on_step: OnStep | None) -> float | None:
    """One epoch. Returns the mean loss, or None as soon as one is not finite."""
    kind, recipe, split = kind_of(run.task), run.recipe, run.task.train
    generator = torch.Generator().manual_seed(derived_seed(run.seed, f"epoch {run.epoch}"))
    torch.default_generator.manual_seed(derived_seed(run.seed, f"dropout {run.epoch}"))
    order = epoch_order(len(split), recipe, seed=run.seed, epoch=run.epoch, generator=generator)
    run.model.train()
    total = 0.0
    for start, end in batch_bounds(len(order), recipe.batch_size):
        batch = order[start:end]
        inputs = kind.augment(kind.prepare(run.task, split.inputs[batch]), recipe, generator)
        rate = learning_rate_at(run.step, run.num_steps, recipe)
        stepped = training_step(
            run.model, run.optimizer, kind, inputs, labels_tensor(split.labels[batch]), recipe, rate
        )
        if stepped is None:
            return None
        loss_value, _ = stepped
        total += loss_value * len(batch)
        run.step += 1
        if on_step is not None:
            on_step(run.step, run.num_steps)
    return total / len(order)


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


def _identity(candidate: Candidate, recipe: Recipe, seed: int, fingerprint: str) -> str:
    """What must be equal for a checkpoint to be continued; the time limit does not matter."""
    parts = (candidate.canonical_json(), recipe.model_dump_json(exclude={"timeout_s"}), seed, fingerprint)
    return hashlib.sha256(repr((*parts, torch.__version__)).encode()).hexdigest()
