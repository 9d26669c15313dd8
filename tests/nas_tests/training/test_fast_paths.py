from __future__ import annotations

import pytest
from torch import nn

from nas.gates.equal_paths import PathRun, equal_paths_gate
from nas.training.fast_paths import TrainingPath, compare_path
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
