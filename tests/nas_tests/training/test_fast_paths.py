from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from nas.gates.equal_paths import PathRun, equal_paths_gate
from nas.training.fast_paths import compare_path
from nas.training.paths import TrainingPath
from nas.training.result import TrainResult
from nas.training.trainer import train
from tests.nas_tests.training.small_tasks import QUICK, bright_half_task, build_small, candidate_of

TASK = bright_half_task()


@pytest.mark.parametrize("name", ["channels_last", "bfloat16"])
def test_a_path_that_only_rounds_otherwise_passes(name: str) -> None:
    result = compare_path(name, candidate_of(), TASK, QUICK, build=build_small)
    assert result.passed, result
    figures = dict(result.figures)
    assert 0 <= float(figures["loss_difference"] or 0) < float(figures["loss_spread_of_seeds"] or 0)


def test_a_path_that_leaves_out_a_layer_is_refused() -> None:
    def without_norm(model: nn.Module) -> nn.Module:
        model.norm = nn.Identity()
        return model

    path = TrainingPath(prepare=without_norm)
    result = compare_path("no norm", candidate_of(), TASK, QUICK, path=path, build=build_small)
    assert not result.passed and "refused" in result.reason


def test_a_path_that_does_not_train_the_head_is_refused() -> None:
    def frozen(model: nn.Module) -> nn.Module:
        for parameter in list(model.parameters())[-2:]:
            parameter.requires_grad_(False)
        return model

    path = TrainingPath(prepare=frozen)
    assert not compare_path("frozen", candidate_of(), TASK, QUICK, path=path, build=build_small).passed


def test_a_path_that_diverges_is_refused() -> None:
    def broken(model: nn.Module) -> nn.Module:
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))
        return model

    result = compare_path("broken", candidate_of(), TASK, QUICK, path=TrainingPath(prepare=broken), build=build_small)
    assert not result.passed and dict(result.figures)["loss_difference"] is None


def test_a_slow_way_that_itself_diverges_vouches_for_nothing() -> None:
    nan = [PathRun(seed=seed, losses=(float("nan"),), score=float("nan")) for seed in range(3)]
    result = equal_paths_gate("x", nan, nan)
    assert not result.passed and "the slow way itself diverged" in result.reason


@pytest.mark.slow
def test_a_compiled_step_passes_and_its_training_resumes(tmp_path: Path) -> None:
    assert compare_path("compiled", candidate_of(), TASK, QUICK, build=build_small).passed
    recipe = QUICK.model_copy(update={"fast_path": "compiled"})
    whole, paused, ended = (
        train(candidate_of(), TASK, recipe, seed=0, out_dir=tmp_path / name, build=build_small, until_epoch=until)
        for name, until in (("whole", None), ("paused", 2), ("paused", None))
    )
    assert isinstance(whole, TrainResult) and isinstance(ended, TrainResult) and isinstance(paused, TrainResult)
    assert ended.resumed_from_step == paused.num_steps
    assert ended.weights_sha256 == whole.weights_sha256


@pytest.mark.parametrize("name", ["channels_last", "bfloat16"])
def test_the_trainer_trains_by_the_path_that_its_recipe_names(name: str) -> None:
    losses: dict[str | None, list[float]] = {None: [], name: []}
    for path, seen in losses.items():
        recipe = QUICK.model_copy(update={"fast_path": path, "epochs": 1})
        train(candidate_of(), TASK, recipe, seed=0, build=build_small, on_loss=seen.append)
    assert losses[name] == pytest.approx(losses[None], rel=0.05)
    assert losses[name] != losses[None] or name == "channels_last", "rounded otherwise"


def runs(*scores: float, shift: float = 0.0) -> list[PathRun]:
    return [
        PathRun(seed=seed, losses=(2.0 + seed / 10 + shift, 1.0 + seed / 10 + shift), score=score)
        for seed, score in enumerate(scores)
    ]


def test_scores_beyond_the_spread_of_seeds_are_refused_though_the_losses_agree() -> None:
    slow = runs(0.90, 0.91, 0.92)
    assert equal_paths_gate("x", slow, runs(0.91, 0.91, 0.92)).passed
    assert not equal_paths_gate("x", slow, runs(0.85, 0.86, 0.87)).passed
    assert not equal_paths_gate("x", slow, runs(0.90, 0.91, 0.92, shift=0.5)).passed
    assert not equal_paths_gate("x", slow, runs(0.90, 0.91, 0.92, shift=float("nan"))).passed


def test_runs_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 with equal seeds"):
        equal_paths_gate("x", runs(0.9, 0.9), runs(0.9, 0.9))
