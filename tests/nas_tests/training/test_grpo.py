from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nas.gates.smoke_reinforcement import reinforcement_fault
from nas.training.grpo import UpdateRecord, clipped_loss, group_advantages, update
from nas.training.rollout import (
    END,
    EQUALS,
    ReinforcementRecipe,
    ToyPolicy,
    parse_answer,
    sample,
    train_by_reinforcement,
)

SMALL = ReinforcementRecipe(updates=8, prompts=8, group=8)


def test_a_positive_advantage_raises_the_probability_of_the_sampled_tokens_and_a_negative_one_lowers_it() -> None:
    torch.manual_seed(0)
    policy = ToyPolicy()
    rollouts = sample(policy, ReinforcementRecipe(prompts=1, group=2), torch.Generator().manual_seed(0))
    assert rollouts.tokens_nt[0].tolist() != rollouts.tokens_nt[1].tolist()
    for better in (0, 1):
        rewards = torch.zeros(1, 2)
        rewards[0, better] = 1.0
        fresh = ToyPolicy()
        fresh.load_state_dict(policy.state_dict())
        optimizer = torch.optim.SGD(fresh.parameters(), lr=0.1)
        record = update(fresh, list(fresh.parameters()), optimizer, replace(rollouts, rewards_pg=rewards), num_passes=1)
        assert record.rise_of_better is not None and record.rise_of_worse is not None
        assert record.rise_of_better > 0 > record.rise_of_worse


def test_a_group_of_equal_rewards_teaches_nothing_and_advantages_have_mean_0_and_deviation_1() -> None:
    advantages = group_advantages(torch.tensor([[0.0, 1.0, 1.0, 0.0], [0.5, 0.5, 0.5, 0.5]]))
    assert torch.allclose(advantages.mean(dim=1), torch.zeros(2), atol=1e-6)
    assert float(advantages[0].std()) == pytest.approx(1.0, abs=1e-4)
    assert advantages[1].tolist() == [0.0] * 4


def test_beyond_the_clip_a_token_has_no_gradient_in_the_direction_it_moved() -> None:
    old = torch.zeros(2, 1)
    new = torch.tensor([[0.5], [-0.5]], requires_grad=True)
    loss, clipped = clipped_loss(new, old, torch.ones(2, 1), torch.tensor([1.0, -1.0]))
    loss.backward()
    assert clipped.flatten().tolist() == [True, True]
    assert new.grad is not None and new.grad.flatten().tolist() == [0.0, 0.0]
    back = torch.tensor([[-0.5], [0.5]], requires_grad=True)
    loss, clipped = clipped_loss(back, old, torch.ones(2, 1), torch.tensor([1.0, -1.0]))
    loss.backward()
    assert clipped.any().item() is False
    assert back.grad is not None and back.grad[0, 0] < 0 < back.grad[1, 0]


def test_tokens_after_the_end_do_not_count() -> None:
    new, old = torch.tensor([[0.1, 9.0]]), torch.zeros(1, 2)
    masked, _ = clipped_loss(new, old, torch.tensor([[1.0, 0.0]]), torch.ones(1))
    assert float(masked) == pytest.approx(-float(torch.exp(torch.tensor(0.1))))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="must agree"):
        clipped_loss(torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2, 3), torch.zeros(3))


def test_an_answer_parses_only_in_its_form() -> None:
    assert parse_answer([EQUALS, 7, END]) == 7
    for tokens in ([7, EQUALS, END], [EQUALS, 7], [EQUALS, END, END], [EQUALS, 7, 7]):
        assert parse_answer(tokens) is None


def test_the_toy_task_is_learnt_as_far_as_its_form_and_the_same_seed_gives_the_same_numbers() -> None:
    recipe = ReinforcementRecipe(updates=60)
    first = train_by_reinforcement(recipe, seed=0)
    assert first == train_by_reinforcement(recipe, seed=0)
    assert first[-1].parsed_share > 0.95 > first[0].parsed_share
    assert reinforcement_fault(first) is None


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_advantage_is_named_and_a_right_one_is_not(seed: int) -> None:
    assert reinforcement_fault(train_by_reinforcement(SMALL, seed=seed)) is None
    fault = reinforcement_fault(
        train_by_reinforcement(SMALL, seed=seed, advantages=lambda rewards: -group_advantages(rewards))
    )
    assert fault is not None and "flipped sign of the advantage" in fault.likely_cause


RECORD = UpdateRecord(
    loss=0.1, clip_ratio=0.1, mean_reward=0.5, parsed_share=0.95, rise_of_better=0.2, rise_of_worse=-0.2
)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (replace(RECORD, rise_of_better=None), "different reward"),
        (replace(RECORD, rise_of_better=0.0, rise_of_worse=0.0), "no update changed"),
        (replace(RECORD, rise_of_better=-0.2, rise_of_worse=0.2), "less likely"),
        (replace(RECORD, clip_ratio=0.8), "80% of the tokens were clipped"),
        (replace(RECORD, parsed_share=0.1), "10.0% of the answers parse"),
    ],
)
def test_what_is_off_about_updates_is_named(record: UpdateRecord, words: str) -> None:
    fault = reinforcement_fault([record])
    assert fault is not None and words in fault.seen
