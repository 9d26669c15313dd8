"""Faults that a run can have while it looks healthy, each planted into a small real run: which gate catches it?"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.bench.tiny_studies import RECIPE, TinyBench, TinySpace, TinyStudy, run_tiny
from nas.search.audit_run import AuditPlan
from nas.search.pipeline import Proposal
from nas.search.smoke_run import SmokeFailedError
from nas.training import job
from nas.training.recipe import Recipe
from nas.training.result import TrainFailure, TrainResult
from search_spaces.candidate import Candidate

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """What the gates said of a run.

    Attributes:
        gates: those that fired, `smoke` with its stage (`smoke:train`).
        said: the reason of the first one, or of the one that is expected.
    """

    gates: tuple[str, ...]
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault to plant.

    Attributes:
        name: in words.
        gate: which one must fire.
        word: what its reason must name.
        run: plants it into a run in an empty folder, and says what fired.
    """

    name: str
    gate: str
    word: str
    run: Callable[[Path], Caught]


def study_with(
    *,
    change: Callable[[TinyBench], None] = lambda bench: None,
    recipe: Recipe = RECIPE,
    audit: AuditPlan | None = None,
    trials: int = 4,
    task: Callable[[Path], dict[str, object]] = lambda folder: {},
) -> Callable[[Path], Caught]:
    """A study with a faulty bench, recipe or data."""

    def run(folder: Path) -> Caught:
        study = TinyStudy(
            folder=folder / "study", recipe=recipe, audit=audit, trials=trials, change=change, task=task(folder)
        )
        return what_fired(study)

    return run


def what_fired(study: TinyStudy) -> Caught:
    """Runs a study; the gates that failed, or the smoke gate that stopped it."""
    try:
        gates = run_tiny(study).summary.gates
    except SmokeFailedError as error:
        said = str(error)
        stage = said.partition("stage ")[2].partition(":")[0]
        return Caught(gates=(f"smoke:{stage}",), said=said)
    failed = {name: gate.reason for name, gate in gates.items() if not gate.passed}
    return Caught(gates=tuple(failed), said="; ".join(failed.values()))


# Data


def _digits_file(folder: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, object]:
    """Digits as a file with train and a second one with test, after something was done to them."""
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.int64)
    parts = {
        "images": images[:1000],
        "labels": labels[:1000],
        "test_images": images[1000:],
        "test_labels": labels[1000:],
    }
    change(parts)
    np.savez(folder / "train.npz", images=parts["images"], labels=parts["labels"])
    np.savez(folder / "test.npz", images=parts["test_images"], labels=parts["test_labels"])
    return {"name": "npz", "path": str(folder / "train.npz"), "test_path": str(folder / "test.npz")}


def shuffled_labels(folder: Path) -> dict[str, object]:
    """Labels dealt out anew: nothing can be learnt from the inputs."""
    import numpy as np

    def change(parts: dict[str, Any]) -> None:
        np.random.default_rng(0).shuffle(parts["labels"])

    return _digits_file(folder, change)


def overlapping_test(folder: Path) -> dict[str, object]:
    """A tenth of test is also in train."""

    def change(parts: dict[str, Any]) -> None:
        parts["test_images"][:80], parts["test_labels"][:80] = parts["images"][:80], parts["labels"][:80]

    return _digits_file(folder, change)


# Training


@contextmanager
def changed_kind(**functions: Any) -> Iterator[None]:
    """The functions of image classification replaced."""
    from nas.training.kinds import KINDS

    name = "image_classification"
    before = KINDS[name]
    KINDS[name] = replace(before, **functions)
    try:
        yield
    finally:
        KINDS[name] = before


def flipped_loss(folder: Path) -> Caught:
    """The loss with its sign flipped."""
    from nas.training.kinds import KINDS

    loss = KINDS["image_classification"].loss

    def flipped(outputs: Tensor, labels: Tensor, recipe: Recipe) -> Tensor:
        return -loss(outputs, labels, recipe)

    with changed_kind(loss=flipped):
        return study_with()(folder)


def no_grades(folder: Path) -> Caught:
    """An evaluation that goes through the examples and returns nothing of them."""
    from nas.training.kinds import KINDS

    grade = KINDS["image_classification"].grade

    def none_in_evaluation(outputs: Tensor, labels: Tensor) -> Tensor:
        return grade(outputs, labels) if outputs.requires_grad or len(labels) == RECIPE.batch_size else outputs[:0, 0]

    with changed_kind(grade=none_in_evaluation):
        return study_with()(folder)


def wrong_split(folder: Path) -> Caught:
    """An evaluation that says val and reads train."""
    from nas.training import evaluate

    def reads_train(model: nn.Module, task: Any, *, seed: int) -> Any:
        part = slice(0, len(task.val))
        return evaluate._score(
            model,
            task,
            "val",
            task.train.take(part),
            seed,
        )

    before = evaluate.score_val
    evaluate.score_val = reads_train
    try:
        return study_with()(folder)
    finally:
        evaluate.score_val = before


def frozen_layer(candidate: Candidate) -> nn.Module:
    """A network whose last layer does not learn."""
    from search_spaces.build import build_model

    model = build_model(candidate)
    list(model.parameters())[-2].requires_grad_(False)
    return model


def one_nan(candidate: Candidate) -> nn.Module:
    """A network with one weight that is not a number."""
    import torch

    from search_spaces.build import build_model

    model = build_model(candidate)
    with torch.no_grad():
        next(iter(model.parameters())).view(-1)[3] = float("nan")
    return model


def too_large(candidate: Candidate) -> nn.Module:
    """A network that no machine has the memory for."""
    import torch

    torch.empty(1 << 60)
    raise AssertionError("an exbibyte was there")


def ends_its_process(candidate: Candidate) -> nn.Module:
    """A network whose building ends its process, as the kernel does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it outlived its end")


def _building(build: Callable[[Candidate], nn.Module]) -> Callable[[TinyBench], None]:
    def change(bench: TinyBench) -> None:
        bench.build = build

    return change


def memory_short_in_a_third(bench: TinyBench) -> None:
    """Every third training asks for more memory than there is."""

    def instead(proposal: Proposal) -> TrainResult | TrainFailure | None:
        if proposal.trial % 3:
            return None
        folder = str(bench.weights_folder(proposal.trial))
        config = bench.config
        return job.train_job(
            proposal.candidate.canonical_json(), config.task, config.training, 0, folder, None, too_large
        )

    bench.train_instead = instead


def one_worker_killed(bench: TinyBench) -> None:
    """The process of one training is killed."""

    def instead(proposal: Proposal) -> TrainResult | TrainFailure | None:
        from nas.compile import workers

        if proposal.trial != 1:
            return None
        config = bench.config
        with workers.WorkerPool[Any](1, initializer=workers.prepare_worker) as pool:
            seen = pool.run(
                job.train_job, proposal.candidate.canonical_json(), config.task, config.training, 0,
                str(bench.weights_folder(1)), None, ends_its_process, timeout_s=120.0,
            )  # fmt: skip
        if isinstance(seen, workers.WorkerFailure):
            return TrainFailure(kind="crashed", reason=seen.reason)
        assert isinstance(seen, TrainResult | TrainFailure)
        return seen

    bench.train_instead = instead


def foreign_latency(bench: TinyBench) -> None:
    """Latencies of winners copied from a study of another device."""
    bench.foreign = "0123456789abcdef"


def flipped_advantage(folder: Path) -> Caught:
    """Group-relative advantages with their sign flipped."""
    from nas.gates.smoke_reinforcement import reinforcement_fault
    from nas.training.grpo import group_advantages
    from nas.training.rollout import ReinforcementRecipe, train_by_reinforcement

    updates = train_by_reinforcement(
        ReinforcementRecipe(updates=8), seed=0, advantages=lambda rewards_pg: -group_advantages(rewards_pg)
    )
    fault = reinforcement_fault(updates)
    return Caught(gates=() if fault is None else (f"smoke:{fault.stage}",), said=str(fault))


def cut_checkpoint(folder: Path) -> Caught:
    """A training killed in its middle, whose newest checkpoint was cut short: it must go on from the one before."""
    from nas.training import checkpoint
    from nas.training.data.sources import load_task
    from nas.training.task import TaskSettings
    from nas.training.trainer import train
    from search_spaces.space import replay

    task = load_task(TaskSettings(max_train_examples=400, val_share=0.4))
    space = TinySpace(task.input, task.head)
    candidate = replay(space, space.references()["reference"])
    whole = train(candidate, task, RECIPE, seed=0, out_dir=folder / "whole")

    class Killed(Exception):
        """The end of the process."""

    def kill(step: int, num_steps: int) -> None:
        if step == num_steps - 2:
            raise Killed

    torn = folder / "torn"
    try:
        train(candidate, task, RECIPE, seed=0, out_dir=torn, on_step=kill)
    except Killed:
        newest = checkpoint.checkpoints_in(torn)[-1]
        newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    damaged = checkpoint.damaged_checkpoints(torn)
    resumed = train(candidate, task, RECIPE, seed=0, out_dir=torn)
    same = (
        isinstance(whole, TrainResult)
        and isinstance(resumed, TrainResult)
        and resumed.resumed_from_step > 0
        and resumed.weights_sha256 == whole.weights_sha256
    )
    said = "; ".join(damaged) + (" -- went on from the one before, to the same bits" if same else " -- other weights")
    return Caught(gates=("checkpoint",) if damaged and same else (), said=said)


TWO_STEPS = RECIPE.model_copy(update={"epochs": 1, "batch_size": 197})
LEARNS_NOTHING = RECIPE.model_copy(update={"learning_rate": 0.0})

FAULTS: tuple[Fault, ...] = (
    Fault(name="shuffled labels", gate="learning", word="trial", run=study_with(task=shuffled_labels)),
    Fault(name="flipped loss sign", gate="smoke:train", word="flipped sign in the loss", run=flipped_loss),
    Fault(
        name="flipped advantage sign",
        gate="smoke:reinforce",
        word="flipped sign of the advantage",
        run=flipped_advantage,
    ),
    Fault(
        name="learning rate zero",
        gate="smoke:train",
        word="learning rate of zero",
        run=study_with(recipe=LEARNS_NOTHING),
    ),
    Fault(name="frozen layer", gate="smoke:train", word="frozen layer", run=study_with(change=_building(frozen_layer))),
    Fault(name="NaN in one weight", gate="smoke:train", word="NaN", run=study_with(change=_building(one_nan))),
    Fault(
        name="train and test overlapping",
        gate="data",
        word="test examples also occur in",
        run=study_with(task=overlapping_test),
    ),
    Fault(name="evaluation returns nothing", gate="smoke:evaluate", word="returns nothing", run=no_grades),
    Fault(name="evaluation of the wrong split", gate="smoke:evaluate", word="another split", run=wrong_split),
    Fault(
        name="latency copied from another device",
        gate="device",
        word="another device",
        run=study_with(change=foreign_latency),
    ),
    Fault(
        name="out of memory in a third of the trials",
        gate="infrastructure",
        word="out_of_memory",
        run=study_with(change=memory_short_in_a_third, trials=6),
    ),
    Fault(
        name="worker killed in training",
        gate="infrastructure",
        word="signal 9",
        run=study_with(change=one_worker_killed),
    ),
    Fault(name="checkpoint cut short", gate="checkpoint", word="the one before", run=cut_checkpoint),
    Fault(
        name="proxy of two steps",
        gate="proxy",
        word="Kendall",
        run=study_with(recipe=TWO_STEPS, trials=10, audit=AuditPlan(num_candidates=10, factor=32)),
    ),
)
"""Those that need neither compiler nor device; `gate_faults_device` has the rest."""
