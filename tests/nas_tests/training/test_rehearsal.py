from __future__ import annotations

import pytest
import torch
from torch import nn

from nas.gates.smoke import rehearsal_fault
from nas.training.recipe import Recipe
from nas.training.rehearsal import rehearse
from search_spaces.candidate import Candidate
from search_spaces.registry import make_space
from search_spaces.space import replay
from tests.nas_tests.training.small_tasks import QUICK, bright_half_task, build_small, candidate_of
from tests.nas_tests.training.small_texts import small_task

TASK = bright_half_task()


@pytest.mark.parametrize("seed", range(3))
def test_a_network_that_learns_passes_with_any_seed_and_leaves_torch_as_it_was(seed: int) -> None:
    torch.manual_seed(1)
    expected = torch.rand(2).tolist()
    torch.manual_seed(1)
    seen = rehearse(candidate_of(), TASK, QUICK, seed=seed, build=build_small)
    assert rehearsal_fault(seen) is None, seen
    assert torch.rand(2).tolist() == expected
    assert seen.scoring is not None and (seen.scoring.if_right, seen.scoring.if_wrong) == (1.0, 0.0)


def test_every_reference_of_the_vision_space_passes() -> None:
    space = make_space("conv_attention", TASK.input, TASK.head)
    for name, choices in space.references().items():
        if name != "largest":
            seen = rehearse(replay(space, choices), TASK, Recipe(num_threads=1), seed=0)
            assert rehearsal_fault(seen) is None, (name, seen)


def test_every_kind_of_network_of_the_language_space_passes() -> None:
    task = small_task()
    space = make_space("hybrid_language", task.input, task.head)
    for name, choices in space.references().items():
        if name != "largest":
            seen = rehearse(replay(space, choices), task, Recipe(num_threads=1, batch_size=8), seed=0)
            assert rehearsal_fault(seen) is None, (name, seen)


def frozen(candidate: Candidate) -> nn.Module:
    model = build_small(candidate)
    model.get_parameter("stem.weight").requires_grad_(False)
    return model


def broken(candidate: Candidate) -> nn.Module:
    model = build_small(candidate)
    with torch.no_grad():
        model.get_parameter("head.weight")[0, 0] = float("nan")
    return model


def test_a_frozen_layer_and_a_weight_that_is_no_number_are_named() -> None:
    seen = rehearse(candidate_of(), TASK, QUICK, seed=0, build=frozen)
    assert (seen.without_gradient, seen.unchanged) == (("stem.weight",), ("stem.weight",))
    assert rehearse(candidate_of(), TASK, QUICK, seed=0, build=broken).weights_not_finite == ("head.weight",)


def test_a_rate_of_zero_changes_nothing() -> None:
    seen = rehearse(candidate_of(), TASK, QUICK.model_copy(update={"learning_rate": 0.0}), seed=0, build=build_small)
    assert len(seen.unchanged) == seen.num_parameters


def test_answers_that_are_no_numbers_are_counted() -> None:
    seen = rehearse(candidate_of("nan"), TASK, QUICK, seed=0, build=build_small)
    assert seen.valid_share == 0.0
    assert seen.scoring is None and seen.scoring_error is not None and "NaN" in seen.scoring_error
