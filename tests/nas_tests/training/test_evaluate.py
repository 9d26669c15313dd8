from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nas.training import evaluate
from nas.training.checkpoint import CheckpointError, save_state
from nas.training.evaluate import NonFiniteOutputs, load_model, score_test, score_val
from nas.training.score import wilson_interval
from nas.training.task import Split
from tests.nas_tests.training.small_tasks import bright_half_task, build_small, candidate_of


class _Answers(nn.Module):
    """Gives the answers it was made with, in order; fails if it is asked in training mode."""

    def __init__(self, answers: list[int]) -> None:
        super().__init__()
        self.answers, self.asked = answers, 0

    def forward(self, x_nchw: Tensor) -> Tensor:
        assert not self.training
        batch = self.answers[self.asked : self.asked + len(x_nchw)]
        self.asked += len(x_nchw)
        return nn.functional.one_hot(torch.tensor(batch), 4).float()


def test_a_score_counts_right_answers_with_their_interval_and_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "EVAL_BATCH_SIZE", 7)
    task = bright_half_task()
    answers = task.val.labels.copy()
    wrong = np.flatnonzero(answers == 2)[:3]
    answers[wrong] = 3
    score = score_val(_Answers(answers.tolist()), task, seed=5)
    num = len(task.val)
    assert (score.metric, score.split, score.num_examples, score.seeds) == ("accuracy", "val", num, (5,))
    assert score.value == pytest.approx((num - 3) / num)
    assert (score.lower, score.upper) == wilson_interval(num - 3, num)
    of_top = int((task.val.labels == 2).sum())
    assert dict(score.slices) == pytest.approx({"left": 1, "right": 1, "top": (of_top - 3) / of_top, "bottom": 1})


def test_test_is_scored_by_its_own_function_on_its_own_examples() -> None:
    task = bright_half_task()
    score = score_test(_Answers(task.test.labels.tolist()), task, seed=0)
    assert (score.split, score.value, score.num_examples) == ("test", 1.0, len(task.test))


def test_a_class_without_examples_gets_no_slice() -> None:
    task = bright_half_task()
    some = task.val.labels != 1
    task = replace(task, val=Split(inputs=task.val.inputs[some], labels=task.val.labels[some]))
    score = score_val(_Answers(task.val.labels.tolist()), task, seed=0)
    assert [name for name, _ in score.slices] == ["left", "top", "bottom"]


def test_the_mode_of_the_network_is_as_before() -> None:
    task, model = bright_half_task(), _Answers([0] * 500)
    for mode in (True, False):
        score_val(model.train(mode), task, seed=0)
        assert model.training is mode


def test_nan_outputs_have_no_score() -> None:
    task, model = bright_half_task(), build_small(candidate_of())
    with torch.no_grad():
        model.get_parameter("head.weight").fill_(float("nan"))
    with pytest.raises(NonFiniteOutputs):
        score_val(model, task, seed=0)


def test_a_score_on_no_examples_is_an_error() -> None:
    task = bright_half_task()
    empty = replace(task)
    split = replace(task.val)
    object.__setattr__(split, "inputs", task.val.inputs[:0])  # past the check that Split itself makes
    object.__setattr__(split, "labels", task.val.labels[:0])
    object.__setattr__(empty, "val", split)
    with pytest.raises(ValueError, match="no examples"):
        score_val(build_small(candidate_of()), empty, seed=0)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    sha256 = save_state(tmp_path / "weights.pt", build_small(candidate_of()).state_dict())
    model = load_model(candidate_of(), tmp_path / "weights.pt", sha256=sha256, build=build_small)
    assert not model.training
    with pytest.raises(CheckpointError, match="not the weights of"):
        load_model(candidate_of(classes=5), tmp_path / "weights.pt", sha256=sha256, build=build_small)
