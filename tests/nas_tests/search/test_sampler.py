from __future__ import annotations

import optuna
import pytest

from nas.config import SearchSettings
from nas.search.sampler import SAMPLERS, OptunaSuggest, decided_sampler, make_sampler


def test_the_samplers_are_those_that_the_configuration_allows() -> None:
    assert set(SAMPLERS) == set(SearchSettings.model_fields["sampler"].annotation.__args__)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_is_made_without_a_warning(name: str) -> None:
    assert isinstance(make_sampler(name, seed=1, trial=2, num_trials=24), optuna.samplers.BaseSampler)


def test_an_answer_once_given_stays() -> None:
    suggest = OptunaSuggest(optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).ask())
    answers = {suggest.choose("width", range(100)) for _ in range(5)}
    assert len(answers) == 1


def first_choice(seed: int, trial: int) -> int:
    sampler = make_sampler("random", seed=seed, trial=trial, num_trials=24)
    return OptunaSuggest(optuna.create_study(sampler=sampler).ask()).choose("x", range(1000))


def test_each_trial_of_each_seed_draws_its_own_numbers() -> None:
    assert first_choice(0, 1) == first_choice(0, 1)
    assert len({first_choice(seed, trial) for seed in range(5) for trial in range(5)}) > 20


def test_a_decided_sampler_gives_the_decisions_and_asks_the_other_for_the_rest() -> None:
    other = make_sampler("random", seed=0, trial=0, num_trials=24)
    suggest = OptunaSuggest(optuna.create_study(sampler=decided_sampler({"x": 7}, other)).ask())
    assert suggest.choose("x", range(10)) == 7
    assert suggest.choose("y", range(10)) in range(10)
