"""Which choices mattered: what is said of a study, and when nothing is."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from nas.search.importance import MIN_COMPLETE, importances_of
from nas.search.testing import plausible
from tests.nas_tests.search.small_studies import LARGE, configure, run


def study_of(num_trials: int, *, latency_varies: bool = True) -> optuna.Study:
    """Quality depends on `width` alone, latency on `depth` alone, and `idle` on nothing."""
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(num_trials):
        trial = study.ask()
        width, depth, _ = (trial.suggest_categorical(name, [1, 2, 3]) for name in ("width", "depth", "idle"))
        study.tell(trial, [0.1 * width, float(depth if latency_varies else 1)])
    return study


def test_the_choice_that_matters_to_an_objective_has_nearly_all_of_it() -> None:
    found = {each.choice: each for each in importances_of(study_of(60))}
    assert set(found) == {"width", "depth", "idle"}
    assert found["width"].quality > 0.9
    assert found["depth"].latency > 0.9
    assert max(found["idle"].quality, found["idle"].latency) < 0.05
    assert sum(each.quality for each in found.values()) == pytest.approx(1.0)
    assert sum(each.latency for each in found.values()) == pytest.approx(1.0)


def test_the_most_important_for_quality_comes_first_and_it_is_the_same_every_time() -> None:
    study = study_of(60)
    found = importances_of(study)
    assert [each.quality for each in found] == sorted((each.quality for each in found), reverse=True)
    assert importances_of(study) == found


def test_too_few_trials_say_nothing() -> None:
    assert importances_of(study_of(MIN_COMPLETE - 1)) == ()
    assert importances_of(study_of(MIN_COMPLETE)) != ()


def test_an_objective_that_never_varied_is_explained_by_nothing() -> None:
    found = importances_of(study_of(40, latency_varies=False))
    assert {each.latency for each in found} == {0.0}
    assert found[0].choice == "width"


def test_a_search_with_conditional_choices_and_trials_over_budget_is_explained(tmp_path: Path) -> None:
    done = run(configure(tmp_path / "study", trials=20, sampler="random"), space=LARGE, script=plausible)
    assert any(trial.state is optuna.trial.TrialState.PRUNED for trial in done.study.trials)
    found = importances_of(done.study)
    assert {"stage1.width", "stage3.depth"} <= {each.choice for each in found}
    assert sum(each.quality for each in found) == pytest.approx(1.0)
