"""Reinforcement of networks of the language space on a task whose answers can be checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nas.gates.smoke import rehearsal_fault
from nas.gates.smoke_reinforcement import reinforcement_fault
from nas.training import reinforce
from nas.training.audit import audit_splits
from nas.training.baselines import baseline_of
from nas.training.data.question_text import IGNORED
from nas.training.data.sequence_toy import END, EQUALS
from nas.training.data.sources import load_task, require_kind
from nas.training.grpo import group_advantages
from nas.training.kinds import kind_of, require_checkable
from nas.training.recipe import Recipe
from nas.training.rehearsal import rehearse
from nas.training.reinforce import AnswerPolicy, roll_out
from nas.training.result import TrainResult
from nas.training.task import TaskError, TaskSettings
from nas.training.trainer import train
from search_spaces.build import build_model
from search_spaces.candidate import Candidate
from search_spaces.registry import make_space
from search_spaces.space import replay

TASK = load_task(TaskSettings(name="sequence-toy", max_train_examples=256, max_val_examples=200))
RECIPE = Recipe(recipe="grpo", group=8, epochs=2, batch_size=16, learning_rate=3e-3, label_smoothing=0.0, num_threads=1)


def smallest() -> Candidate:
    space = make_space("hybrid_language", TASK.input, TASK.head)
    return replay(space, space.references()["smallest"])


# The task


def test_prompts_are_in_one_split_each_and_ask_for_their_last_digit() -> None:
    assert audit_splits(TASK) == ()
    for split in (TASK.train, TASK.val, TASK.test):
        asked = split.labels != IGNORED
        assert (asked.sum(axis=1) == 2).all()
        assert (split.labels[asked].reshape(-1, 2)[:, 0] == split.inputs[:, -3]).all()
        assert (split.labels[asked].reshape(-1, 2)[:, 1] == END).all()
        assert (split.inputs[:, -2] == EQUALS).all()
    assert 0.08 < baseline_of(TASK).value < 0.2


def test_the_task_fits_language_spaces_and_only_it_can_be_reinforced() -> None:
    require_kind(TaskSettings(name="sequence-toy"), "language_modelling", "hybrid_language")
    with pytest.raises(TaskError, match=r"fit: .*sequence-toy"):
        require_kind(TaskSettings(name="digits"), "language_modelling", "hybrid_language")
    with pytest.raises(TaskError, match="fit: digits"):
        require_kind(TaskSettings(name="sequence-toy"), "image_classification", "conv_attention")
    require_checkable(TASK)
    with pytest.raises(TaskError, match=r"'digits' with training.recipe = \"grpo\": its answers cannot be checked"):
        require_checkable(load_task(TaskSettings(name="digits", max_train_examples=100)))


def test_shares_that_leave_a_split_empty_are_refused() -> None:
    with pytest.raises(TaskError, match="leave a split empty"):
        load_task(TaskSettings(name="sequence-toy", test_share=0.00001))


# Rollouts


def test_rollouts_are_answers_to_the_prompts_alone_and_their_probabilities_are_the_policys() -> None:
    torch.manual_seed(0)
    policy = AnswerPolicy(build_model(smallest()))
    kind = kind_of(TASK)
    inputs = torch.from_numpy(TASK.train.inputs[:4].astype(np.int64))
    labels = torch.from_numpy(TASK.train.labels[:4].astype(np.int64))
    seen = roll_out(policy, kind, inputs, labels, 3, torch.Generator().manual_seed(0))
    assert seen.prompts_nt.shape == (12, 7) and (seen.prompts_nt[:, -1] == EQUALS).all()
    spoilt = inputs.clone()
    spoilt[:, 7] = 0  # the right answer, which is in the inputs of an example
    again = roll_out(policy, kind, spoilt, labels, 3, torch.Generator().manual_seed(0))
    assert torch.equal(seen.tokens_nt, again.tokens_nt)
    by_hand = []
    for prompt, answer in zip(seen.prompts_nt, seen.tokens_nt, strict=True):
        for place in range(2):
            text = torch.cat([prompt, answer[:place]])[None]
            by_hand.append(torch.log_softmax(policy.next_logits(text)[0], dim=-1)[answer[place]].item())
    assert seen.old_log_probs_nt.flatten().tolist() == pytest.approx(by_hand, abs=1e-5)
    rewards, _ = kind.reward(seen.tokens_nt, labels.repeat_interleave(3, dim=0))  # type: ignore[misc]
    assert torch.equal(seen.rewards_pg, rewards.view(4, 3))


# Training


def test_reinforcement_learns_the_form_of_answers_and_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = train(smallest(), TASK, RECIPE, seed=0, out_dir=tmp_path / "whole")
    assert isinstance(whole, TrainResult)
    assert (whole.score.metric, whole.score.split) == ("answer_accuracy", "val")
    assert whole.score.lower <= whole.score.value <= whole.score.upper
    rewards = [-record.train_loss for record in whole.history]
    assert rewards[1] > rewards[0] > 0
    paused = train(smallest(), TASK, RECIPE, seed=0, out_dir=tmp_path / "paused", until_epoch=1)
    ended = train(smallest(), TASK, RECIPE, seed=0, out_dir=tmp_path / "paused")
    assert isinstance(paused, TrainResult) and isinstance(ended, TrainResult)
    assert ended.resumed_from_step == paused.num_steps
    assert ended.weights_sha256 == whole.weights_sha256


@pytest.mark.parametrize("seed", range(2))
def test_the_smoke_gate_watches_updates_and_names_a_flipped_advantage(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = rehearse(smallest(), TASK, RECIPE, seed=seed)
    assert rehearsal_fault(seen) is None
    assert seen.updates and reinforcement_fault(seen.updates) is None
    plain = reinforce.reinforced_step

    def flipped(*arguments: object) -> object:
        return plain(*arguments, advantages=lambda rewards: -group_advantages(rewards))  # type: ignore[arg-type]

    monkeypatch.setattr("nas.training.rehearsal.reinforced_step", flipped)
    fault = reinforcement_fault(rehearse(smallest(), TASK, RECIPE, seed=seed).updates or ())
    assert fault is not None and fault.stage == "reinforce" and "flipped sign of the advantage" in fault.likely_cause


def test_labels_that_were_dealt_out_anew_teach_no_answer() -> None:
    labels = TASK.train.labels[np.random.default_rng(0).permutation(len(TASK.train))]
    dealt = replace(TASK, train=replace(TASK.train, labels=labels))
    result = train(smallest(), dealt, RECIPE, seed=0)
    assert isinstance(result, TrainResult)
    assert result.score.lower < 0.13
