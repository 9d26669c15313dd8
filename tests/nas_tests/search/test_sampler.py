from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import nas.search.sampler
from nas.config import SearchSettings
from nas.search.sampler import (
    BUDGET_SAMPLER,
    LATENCY_ATTRIBUTE,
    SAMPLERS,
    OptunaSuggest,
    decided_sampler,
    make_sampler,
    taught,
)

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


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


@pytest.mark.parametrize("kind", [optuna.samplers.NSGAIISampler, optuna.samplers.GPSampler])
def test_a_taught_sampler_sees_a_trial_over_budget_as_complete_and_the_database_does_not(
    kind: type[optuna.samplers.BaseSampler],
) -> None:
    seen: list[tuple[TrialState, list[float] | None]] = []

    class Spy(kind):  # type: ignore[misc, valid-type]
        def infer_relative_search_space(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
            seen.extend((each.state, each.values) for each in study.get_trials(deepcopy=False))
            return {}

    study = optuna.create_study(directions=["maximize", "minimize"], sampler=taught(Spy(seed=0)))
    study.tell(study.ask(), [0.8, 2.0])
    over = study.ask()
    over.set_constraint("infer=5ms", 0.4)
    over.set_user_attr(LATENCY_ATTRIBUTE, 7.0)
    study.tell(over, state=TrialState.PRUNED)
    study.ask().suggest_categorical("x", [0, 1])  # a trial asks its sampler when it is asked itself
    assert seen[:2] == [(TrialState.COMPLETE, [0.8, 2.0]), (TrialState.COMPLETE, [0.8, 7.0])]
    assert [each.state for each in study.trials[:2]] == [TrialState.COMPLETE, TrialState.PRUNED], "nothing made up"


def num_over_budget(name: str, seed: int, num_trials: int) -> int:
    """Of a search in which half of the answers to one of two questions are too slow."""
    study = optuna.create_study(directions=["maximize", "minimize"])
    for number in range(num_trials):
        study.sampler = make_sampler(name, seed=seed, trial=number, num_trials=30)
        trial = study.ask()
        x, y = (trial.suggest_categorical(each, list(range(12))) for each in "xy")
        trial.set_constraint("infer=6ms", (1 + x) / 6 - 1)
        if x < 6:
            study.tell(trial, [0.5 + 0.02 * x + 0.01 * y, 1.0 + x])
        else:
            trial.set_user_attr(LATENCY_ATTRIBUTE, 1.0 + x)
            study.tell(trial, state=TrialState.PRUNED)
    return sum(trial.state is TrialState.PRUNED for trial in study.trials)


@pytest.mark.parametrize(("name", "num_seeds", "num_trials"), [("nsga2", 5, 120), ("gp", 1, 20)])
def test_a_taught_sampler_goes_over_budget_less_often(
    name: str, num_seeds: int, num_trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count() -> int:
        return sum(num_over_budget(name, seed, num_trials) for seed in range(num_seeds))

    taught_count = count()
    monkeypatch.setattr(nas.search.sampler, "taught", lambda sampler: sampler)
    assert taught_count < count()


def test_the_gp_is_silent_about_choices_that_depend_on_others(caplog: pytest.LogCaptureFixture) -> None:
    study = optuna.create_study(directions=["maximize", "minimize"])
    for number in range(12):
        study.sampler = make_sampler("gp", seed=0, trial=number, num_trials=12)
        trial = study.ask()
        x = trial.suggest_categorical("x", [0, 1, 2])
        trial.suggest_categorical(f"only with {x}", [0, 1])
        study.tell(trial, [float(x), 1.0])
    assert "independently" not in caplog.text
