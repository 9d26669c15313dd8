from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nas.training.checkpoint import load_state
from nas.training.data.sources import load_task
from nas.training.evaluate import load_model, score_val
from nas.training.recipe import Recipe
from nas.training.result import TrainFailure, TrainResult
from nas.training.steps import batch_bounds, learning_rate_at, parameter_groups
from nas.training.task import Split, Task, TaskSettings
from nas.training.trainer import train
from search_spaces.candidate import Candidate
from tests.nas_tests.training.small_tasks import QUICK, MixedNet, bright_half_task, build_small, candidate_of


def _train(
    task: Task, out_dir: Path | None = None, recipe: Recipe = QUICK, seed: int = 0, kind: str = "mixed"
) -> TrainResult:
    result = train(candidate_of(kind), task, recipe, seed=seed, out_dir=out_dir, build=build_small)
    assert isinstance(result, TrainResult), result
    return result


def test_a_training_learns_reports_and_keeps_its_weights(tmp_path: Path) -> None:
    task = bright_half_task()
    steps: list[tuple[int, int]] = []
    result = train(
        candidate_of(),
        task,
        QUICK,
        seed=3,
        out_dir=tmp_path,
        build=build_small,
        on_step=lambda step, total: steps.append((step, total)),
    )
    assert isinstance(result, TrainResult)
    assert result.score.lower > result.untrained_score.upper
    assert (result.score.split, result.score.num_examples, result.seed) == ("val", len(task.val), 3)
    assert steps == [(step, result.num_steps) for step in range(1, result.num_steps + 1)]
    assert [record.step for record in result.history] == [result.num_steps * epoch // 3 for epoch in (1, 2, 3)]
    assert max(record.val_value for record in result.history) == result.score.value
    assert {record.step: record.val_value for record in result.history}[result.chosen_step or 0] == result.score.value
    assert result.history[-1].train_loss < result.history[0].train_loss
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights.pt", "weights.pt.sha256"]
    model = load_model(candidate_of(), tmp_path / "weights.pt", sha256=result.weights_sha256, build=build_small)
    assert score_val(model, task, seed=3) == result.score


def test_the_step_is_chosen_by_val_or_is_the_last(tmp_path: Path) -> None:
    task, rough = bright_half_task(), QUICK.model_copy(update={"epochs": 6, "learning_rate": 0.03})
    best = _train(task, tmp_path / "best", rough, seed=1)
    last = _train(task, tmp_path / "last", rough.model_copy(update={"keep": "last"}), seed=1)
    assert [each.val_value for each in best.history] == [each.val_value for each in last.history]
    assert (last.chosen_step, last.score.value) == (last.num_steps, last.history[-1].val_value)
    assert best.score.value == max(each.val_value for each in best.history)
    assert best.chosen_step == next(each.step for each in best.history if each.val_value == best.score.value)
    model = load_model(candidate_of(), tmp_path / "best" / "weights.pt", build=build_small)
    assert score_val(model, task, seed=1) == best.score


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(tmp_path: Path) -> None:
    task = bright_half_task()
    hashes = [_train(task, tmp_path / name, seed=seed).weights_sha256 for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    assert hashes[0] == hashes[1] != hashes[2]


def test_draws_of_others_neither_change_a_training_nor_are_changed_by_it(tmp_path: Path) -> None:
    task = bright_half_task()
    torch.manual_seed(1)
    np.random.seed(1)
    expected_draws = (torch.rand(3).tolist(), np.random.rand(), random.Random(1).random())
    first = _train(task, tmp_path / "a")
    torch.manual_seed(1)
    np.random.seed(1)
    threads = torch.get_num_threads()
    second = _train(task, tmp_path / "b")
    assert (torch.rand(3).tolist(), np.random.rand(), random.Random(1).random()) == expected_draws
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
    assert first.weights_sha256 == second.weights_sha256


def test_the_test_split_cannot_influence_a_training(tmp_path: Path) -> None:
    task = bright_half_task()
    noise = Split(inputs=255 - task.test.inputs, labels=(task.test.labels + 1) % 4)
    first, second = _train(task, tmp_path / "a"), _train(replace(task, test=noise), tmp_path / "b")
    assert first.weights_sha256 == second.weights_sha256
    assert first.score == second.score
    assert first.task_fingerprint != second.task_fingerprint


def test_a_loss_that_is_not_finite_is_a_value_and_not_an_exception(tmp_path: Path) -> None:
    recipe = QUICK.model_copy(update={"learning_rate": 1e30, "clip_norm": 1e30})
    failure = train(candidate_of(), bright_half_task(), recipe, seed=0, out_dir=tmp_path, build=build_small)
    assert isinstance(failure, TrainFailure)
    assert failure.kind == "diverged" and not failure.is_infrastructure
    assert "loss was not finite at step" in failure.reason and failure.step < 9  # within the first epoch
    assert list(tmp_path.iterdir()) == []


def test_nan_answers_after_a_finite_loss_have_diverged_too() -> None:
    failure = train(candidate_of("nan"), bright_half_task(), QUICK, seed=0, build=build_small)
    assert isinstance(failure, TrainFailure) and failure.kind == "diverged"
    assert "NaN" in failure.reason


class _Killed(Exception):
    pass


def _train_until(stop_at: int, task: Task, out_dir: Path, recipe: Recipe = QUICK) -> None:
    def stop(step: int, total: int) -> None:
        if step == stop_at:
            raise _Killed

    with pytest.raises(_Killed):
        train(candidate_of(), task, recipe, seed=0, out_dir=out_dir, build=build_small, on_step=stop)


@pytest.mark.parametrize("stop_at", [3, 10, 18, 27])
def test_a_training_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path, stop_at: int) -> None:
    task = bright_half_task()
    whole = _train(task, tmp_path / "whole")
    epoch_steps = whole.num_steps // QUICK.epochs
    _train_until(stop_at, task, tmp_path / "torn")
    resumed = _train(task, tmp_path / "torn")
    assert resumed.resumed_from_step == (stop_at - 1) // epoch_steps * epoch_steps
    assert resumed.weights_sha256 == whole.weights_sha256
    assert (resumed.score, resumed.untrained_score, resumed.history) == (
        whole.score,
        whole.untrained_score,
        whole.history,
    )


def test_a_training_with_pauses_ends_with_the_same_bits_as_one_without(tmp_path: Path) -> None:
    task = bright_half_task()
    whole = _train(task, tmp_path / "whole")
    for epoch in (1, 1, 2):  # the second time as after a kill between training and its record in the ledger
        paused = train(
            candidate_of(), task, QUICK, seed=0, out_dir=tmp_path / "paused", build=build_small, until_epoch=epoch
        )
        assert isinstance(paused, TrainResult)
        assert (paused.weights_path, paused.num_steps) == (None, whole.history[epoch - 1].step)
        assert paused.history == whole.history[:epoch]
        assert paused.score.value == max(record.val_value for record in whole.history[:epoch])
    _train_until(whole.num_steps - 2, task, tmp_path / "paused")
    ended = _train(task, tmp_path / "paused", QUICK.model_copy(update={"ladder": 3, "min_epochs": 1}))
    assert ended.resumed_from_step > 0
    assert (ended.weights_sha256, ended.score, ended.history) == (whole.weights_sha256, whole.score, whole.history)


def test_a_checkpoint_of_another_recipe_or_of_other_data_is_not_continued(tmp_path: Path) -> None:
    task = bright_half_task()
    _train_until(20, task, tmp_path)
    other = bright_half_task(seed=9)
    assert _train(other, tmp_path).resumed_from_step == 0
    _train_until(20, task, tmp_path)
    assert _train(task, tmp_path, QUICK.model_copy(update={"weight_decay": 0.5})).resumed_from_step == 0
    _train_until(20, task, tmp_path)
    assert _train(task, tmp_path, QUICK.model_copy(update={"timeout_s": 7.0})).resumed_from_step > 0


def test_norms_biases_and_scales_do_not_decay_and_every_weight_is_in_one_group() -> None:
    model = MixedNet(8, 4)
    decayed, plain = parameter_groups(model, 0.3)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert sorted(names[id(parameter)] for parameter in decayed["params"]) == [
        "attention.in_proj_weight",
        "attention.out_proj.weight",
        "head.weight",
        "stem.weight",
    ]
    assert len(decayed["params"]) + len(plain["params"]) == len(names)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.3, 0.0)


@given(st.integers(1, 500), st.integers(2, 70))
def test_batches_cover_every_example_once_and_are_never_small(num_examples: int, batch_size: int) -> None:
    bounds = batch_bounds(num_examples, batch_size)
    assert [index for start, end in bounds for index in range(start, end)] == list(range(num_examples))
    sizes = [end - start for start, end in bounds]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= min(batch_size, num_examples)


@given(st.integers(1, 400), st.floats(0, 0.5))
def test_the_rate_rises_to_its_peak_then_only_falls_and_is_never_zero(num_steps: int, warmup_share: float) -> None:
    recipe = Recipe(learning_rate=0.5, warmup_share=warmup_share)
    rates = [learning_rate_at(step, num_steps, recipe) for step in range(num_steps)]
    peak = rates.index(max(rates))
    assert max(rates) == pytest.approx(0.5)
    assert rates[: peak + 1] == sorted(rates[: peak + 1]) and rates[peak:] == sorted(rates[peak:], reverse=True)
    assert min(rates) > 0


def test_the_default_recipe_learns_digits() -> None:
    task = load_task(TaskSettings(max_train_examples=600))

    def build(candidate: Candidate) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10),
        )  # fmt: skip

    result = train(candidate_of(classes=10), task, Recipe(num_threads=1), seed=0, build=build)
    assert isinstance(result, TrainResult)
    assert result.score.value > 0.93
    assert {name for name, _ in result.score.slices} == set("0123456789")


def test_final_weights_hold_tensors_only(tmp_path: Path) -> None:
    _train(bright_half_task(), tmp_path)
    assert all(isinstance(value, torch.Tensor) for value in load_state(tmp_path / "weights.pt").values())
