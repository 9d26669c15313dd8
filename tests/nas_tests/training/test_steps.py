from __future__ import annotations

import numpy as np
import torch

from nas.training.recipe import Recipe
from nas.training.steps import epoch_order, epoch_size
from nas.training.trainer import train
from tests.nas_tests.training.small_texts import QUICK, build_text_network, candidate_of, small_task

PART = Recipe(epoch_examples=4)


def order(epoch: int, recipe: Recipe = PART, seed: int = 0, num_examples: int = 10) -> list[int]:
    generator = torch.Generator().manual_seed(epoch)
    return epoch_order(num_examples, recipe, seed=seed, epoch=epoch, generator=generator).tolist()


def test_no_example_comes_again_before_all_have_come() -> None:
    seen = [example for epoch in range(5) for example in order(epoch)]
    assert sorted(seen[:10]) == list(range(10))
    assert sorted(seen[10:20]) == list(range(10))
    assert seen[:10] != seen[10:20]


def test_another_seed_gives_another_order_and_the_same_seed_the_same() -> None:
    assert order(3) == order(3) != order(3, seed=1)


def test_an_epoch_of_all_examples_is_a_new_order_each_time() -> None:
    for recipe in (Recipe(), Recipe(epoch_examples=10), Recipe(epoch_examples=99)):
        assert epoch_size(10, recipe) == 10
        assert sorted(order(0, recipe)) == sorted(order(1, recipe)) == list(range(10))
        assert order(0, recipe) != order(1, recipe)


def test_a_training_in_parts_of_train_takes_its_steps_and_learns() -> None:
    recipe = QUICK.model_copy(update={"epochs": 6, "epoch_examples": 64})
    result = train(candidate_of(), small_task(), recipe, seed=0, build=build_text_network)
    assert result.num_steps == 6 * 8 and len(result.history) == 6  # type: ignore[union-attr]
    values = [epoch.val_value for epoch in result.history]  # type: ignore[union-attr]
    assert np.argmin(values) >= 4
