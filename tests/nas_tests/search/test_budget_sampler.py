from __future__ import annotations

from collections.abc import Callable

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from threadpoolctl import threadpool_info, threadpool_limits

from nas.budget import parse_budget, resolve_budgets
from nas.front import hypervolume
from nas.search.budget_sampler import BudgetSampler
from nas.search.candidate_source import SpaceSource
from nas.search.cost import Cost, Measured
from nas.search.sampler import OptunaSuggest, Samplers, costs_of
from search_spaces.candidate import Candidate
from search_spaces.layers import num_macs, num_params
from search_spaces.space import Choices, replay
from tests.nas_tests.search.small_studies import LARGE

LATENCY = Cost(name="latency", maximum=8.0, objective=1, constraint="infer=8ms")


def latency_ms(candidate: Candidate) -> float:
    return num_macs(candidate) / 1e6


def searched(sampler: optuna.samplers.BaseSampler, num_trials: int) -> tuple[optuna.Study, list[Candidate]]:
    """A study in which more work is better, up to the budget."""
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    candidates = []
    for _ in range(num_trials):
        trial = study.ask()
        candidates.append(LARGE.sample(OptunaSuggest(trial)))
        spent = latency_ms(candidates[-1])
        trial.set_constraint("infer=8ms", spent / 8.0 - 1)
        if spent > 8:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, [1 - np.exp(-num_params(candidates[-1]) / 1e6), spent])
    return study, candidates


def make(seed: int = 0, **options: object) -> BudgetSampler:
    return BudgetSampler(SpaceSource(LARGE, seed=seed), [LATENCY], seed=seed, **options)  # type: ignore[arg-type]


def test_it_learns_to_stay_within_the_budget_and_finds_better_networks() -> None:
    study, candidates = searched(make(), 30)
    over = [latency_ms(candidate) > 8 for candidate in candidates]
    assert np.mean(over[15:]) < 0.35
    by_chance, _ = searched(optuna.samplers.RandomSampler(seed=0), 30)
    volumes = [
        hypervolume([trial.values for trial in each.trials if trial.values], [0.0, 8.0], ["maximize", "minimize"])
        for each in (study, by_chance)
    ]
    assert volumes[0] > volumes[1]


def test_nothing_is_proposed_twice() -> None:
    _, candidates = searched(make(), 25)
    assert len({candidate.candidate_id for candidate in candidates}) == 25


def test_a_proposal_depends_on_seed_number_and_earlier_trials_alone() -> None:
    study, _ = searched(make(), 14)
    fresh = make()
    assert make().propose(study, 14) == fresh.propose(study, 14) == fresh.propose(study, 14)
    assert make().propose(study, 14) != make(seed=1).propose(study, 14)


def test_workers_that_ask_at_the_same_time_get_different_candidates() -> None:
    study, _ = searched(make(), 16)
    asked = []
    for _ in range(4):
        trial = study.ask()
        asked.append(LARGE.sample(OptunaSuggest(trial)).candidate_id)
    assert len(set(asked)) == 4


def test_conditional_choices_always_make_a_candidate() -> None:
    source = SpaceSource(LARGE, seed=0)
    rng = np.random.default_rng(0)
    parents: list[Choices] = [source.pool((), rng).choices[number] for number in range(6)]
    pool = source.pool(parents, rng)
    assert len(set(pool.keys)) == len(pool.keys)
    for choices, key in list(zip(pool.choices, pool.keys, strict=True))[:50]:
        assert replay(LARGE, choices).candidate_id == key


def test_measurements_from_elsewhere_teach_costs_and_leave_the_candidates_to_be_tried() -> None:
    source = SpaceSource(LARGE, seed=0)
    pool = source.pool((), np.random.default_rng(0))
    measured = [
        Measured(choices=choices, costs=(latency_ms(candidate),))
        for choices, candidate in list(zip(pool.choices, pool.candidates, strict=True))[:20]
    ]
    _, informed = searched(make(measured=measured), 12)
    assert sum(latency_ms(candidate) > 8 for candidate in informed) <= 4


def test_several_budgets_hold_together() -> None:
    budgets = resolve_budgets([parse_budget("infer=8ms"), parse_budget("params=300k")], ("infer",))
    samplers = Samplers(name="budget", seed=0, num_trials=20, space=LARGE, budgets=budgets, phase="infer")
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=samplers.of(0))
    for _ in range(10):
        candidate = LARGE.sample(OptunaSuggest(trial := study.ask()))
        assert num_params(candidate) <= 300_000, "parameters are counted before anything is tried"
        trial.set_constraint("infer=8ms", latency_ms(candidate) / 8 - 1)
        trial.set_constraint("params=300k", num_params(candidate) / 3e5 - 1)
        study.tell(trial, [0.5, latency_ms(candidate)])


def test_a_latency_without_a_budget_is_an_objective() -> None:
    (latency, params) = costs_of([parse_budget("params=300k")], "infer", {})
    assert (latency.objective, latency.maximum) == (1, None)
    assert (params.objective, params.constraint) == (None, "params=300k")


@pytest.mark.parametrize(
    ("make_it", "words"),
    [
        (lambda: Cost(name="memory"), "neither a budget nor an objective"),
        (lambda: Cost(name="memory", maximum=3.0), "come together"),
        (lambda: BudgetSampler(SpaceSource(LARGE), [Cost(name="m", maximum=3.0, constraint="m")]), "none of them is"),
    ],
)
def test_costs_that_make_no_sense_are_refused(make_it: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_it()


def test_a_proposal_computes_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a measurement, threads that wait for each other made a proposal ten times as slow."""
    seen: list[int] = []
    propose = BudgetSampler._propose

    def watched(self: BudgetSampler, study: optuna.Study, number: int) -> Choices:
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return propose(self, study, number)

    monkeypatch.setattr(BudgetSampler, "_propose", watched)
    with threadpool_limits(limits=2, user_api="blas"):
        searched(make(), 2)
    assert seen
    assert set(seen) == {1}
