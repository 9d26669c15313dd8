from __future__ import annotations

import warnings

import optuna
import pytest

from nas.config import SearchSettings
from nas.search.sampler import BUDGET_SAMPLER, SAMPLERS, OptunaSuggest, decided_sampler, make_sampler, taught


def test_the_samplers_are_those_that_the_configuration_allows() -> None:
    assert {*SAMPLERS, BUDGET_SAMPLER} == set(SearchSettings.model_fields["sampler"].annotation.__args__)  # type: ignore[union-attr]


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


@pytest.mark.parametrize("name", ["nsga2", "gp"])
def test_a_trial_over_budget_teaches_samplers_that_learn_from_complete_trials_only(name: str) -> None:
    seen: list[tuple[optuna.trial.TrialState, list[float] | None]] = []
    sampler = make_sampler(name, seed=0, trial=9, num_trials=30)
    inner = sampler.infer_relative_search_space

    class Spy(type(sampler)):  # type: ignore[misc]
        def infer_relative_search_space(
            self, study: optuna.Study, trial: optuna.trial.FrozenTrial
        ) -> dict[str, object]:
            seen.extend((each.state, each.values) for each in study.get_trials(deepcopy=False))
            return {}

    assert inner is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=taught(Spy(seed=0)))
    scored = study.ask()
    study.tell(scored, [0.8, 2.0])
    over = study.ask()
    over.set_constraint("infer=5ms", 0.4)
    over.set_user_attr("latency_ms", 7.0)
    study.tell(over, state=optuna.trial.TrialState.PRUNED)
    seen.clear()
    study.ask()
    assert seen[1] == (optuna.trial.TrialState.COMPLETE, [0.8, 7.0])
    assert study.trials[1].state is optuna.trial.TrialState.PRUNED, "nothing made up is in the database"
