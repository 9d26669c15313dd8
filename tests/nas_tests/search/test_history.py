"""What the sampler is shown of a long study: less than all, and nothing of what decides."""

from __future__ import annotations

import random

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

import nas.search.history
from nas.front import non_dominated
from nas.search.candidate_source import SpaceSource
from nas.search.cost import Cost, Measured
from nas.search.history import History, read_history
from search_spaces.space import Choices, RandomSuggest
from tests.nas_tests.search.small_studies import LARGE

LATENCY = Cost(name="latency", maximum=8.0, objective=1, constraint="infer=8ms")


def choices_of(count: int) -> list[Choices]:
    generator = random.Random(0)
    asked = [RandomSuggest(generator) for _ in range(count)]
    for each in asked:
        LARGE.sample(each)
    return [each.choices for each in asked]


def trial_of(number: int, choices: Choices, quality: float, latency_ms: float) -> FrozenTrial:
    is_over = latency_ms > 8
    trial = create_trial(
        state=TrialState.PRUNED if is_over else TrialState.COMPLETE,
        values=None if is_over else [quality, latency_ms],
        params=dict(choices),
        distributions={name: CategoricalDistribution([answer]) for name, answer in choices.items()},
        constraints={"infer=8ms": latency_ms / 8 - 1},
    )
    trial.number = number
    return trial


def study_of(count: int) -> list[FrozenTrial]:
    """Slower networks are better, so that the front has poor ones, too."""
    generator = np.random.default_rng(1)
    trials = []
    for number, choices in enumerate(choices_of(count)):
        latency_ms = float(generator.uniform(1, 12))
        trials.append(trial_of(number, choices, 0.08 * latency_ms + 0.6 * float(generator.random()), latency_ms))
    return trials


def read(trials: list[FrozenTrial], *, measured: tuple[Measured, ...] = ()) -> History:
    source = SpaceSource(LARGE)
    return read_history(trials, source, [LATENCY], measured, sign=1.0, rng=np.random.default_rng(0))


def rows_of(history: History, trials: list[FrozenTrial]) -> list[int]:
    numbers = {tuple(sorted(trial.params.items())): trial.number for trial in trials}
    return [numbers[tuple(sorted(choices.items()))] for choices in history.options.choices]


def test_a_short_study_is_shown_whole_in_its_order() -> None:
    trials = study_of(40)
    history = read(trials[::-1])
    assert rows_of(history, trials) == list(range(40))
    over = [trial.values is None for trial in trials]
    assert np.isnan(history.qualities).tolist() == over
    assert (~history.is_within).tolist() == over
    assert history.costs[:, 0] == pytest.approx([8 * (1 + trial.constraints["infer=8ms"]) for trial in trials])


def test_of_a_long_study_the_front_the_best_the_worst_and_the_latest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nas.search.history, "MAX_KEPT", 40)
    trials = study_of(300)
    history = read(trials)
    kept = rows_of(history, trials)
    assert len(kept) == 40
    assert kept == sorted(kept)
    assert len(history.tried) == 300, "what is left out was tried all the same"
    scored = [trial for trial in trials if trial.values is not None]
    front = non_dominated([trial.values for trial in scored], ["maximize", "minimize"])
    by_quality = sorted(scored, key=lambda trial: trial.values[0])
    needed = {trial.number for trial, is_member in zip(scored, front, strict=True) if is_member}
    needed |= {trial.number for trial in [*by_quality[-10:], by_quality[0], *trials[-10:]]}
    assert needed <= set(kept)


def test_what_is_left_out_hardly_changes_from_one_trial_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nas.search.history, "MAX_KEPT", 40)
    trials = study_of(300)
    one, next_one = (set(rows_of(read(trials[:count]), trials)) for count in (299, 300))
    assert len(one & next_one) >= 37


def test_what_was_only_measured_comes_last_and_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nas.search.history, "MAX_KEPT", 20)
    trials = study_of(62)
    measured = tuple(Measured(choices=trial.params, costs=(3.0,)) for trial in trials[58:])
    history = read(trials[:60], measured=measured)
    assert rows_of(history, trials)[-2:] == [60, 61], "the other two were tried"
    assert history.costs[-2:, 0].tolist() == [3.0, 3.0]
    assert len(history.tried) == 60


def test_a_study_of_which_nothing_was_scored_can_be_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nas.search.history, "MAX_KEPT", 20)
    trials = [trial_of(number, choices, 0.5, 9.0) for number, choices in enumerate(choices_of(50))]
    assert len(rows_of(read(trials), trials)) == 20
