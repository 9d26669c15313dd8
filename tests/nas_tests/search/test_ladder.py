"""Successive halving: who goes on, what is remembered, what the sampler sees, and studies killed at every place."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState

from nas.front import Direction, non_dominated
from nas.ledger import Ledger
from nas.search.candidate_source import SpaceSource
from nas.search.finalists import front_of, least_violating
from nas.search.history import read_history
from nas.search.ladder import RungPoint, is_promoted
from nas.search.sampler import RUNG_ATTRIBUTE, costs_of
from nas.search.story import tell_story
from nas.search.testing import plausible
from nas.trial import Outcome, TrialRecord
from tests.nas_tests.search.small_studies import LARGE, Killer, Run, configure, run

LADDER: dict[str, object] = {"trials": 14, "sampler": "random", "budgets": ["infer=12ms"], "ladder": 2}
points = st.builds(RungPoint, value=st.integers(0, 9).map(float), latency_ms=st.integers(1, 9).map(float))


@given(st.lists(points, max_size=12), points, st.integers(2, 4), st.sampled_from(["maximize", "minimize"]))
def test_the_best_share_and_the_front_of_a_rung_go_on_and_nobody_else(
    others: list[RungPoint], mine: RungPoint, factor: int, direction: Direction
) -> None:
    everyone = [*others, mine]
    sign = 1 if direction == "maximize" else -1
    place = sum(sign * other.value > sign * mine.value for other in others)
    is_best = place < max(1, len(everyone) // factor)
    on_front = non_dominated([[each.value, each.latency_ms] for each in everyone], [direction, "minimize"])[-1]
    is_twin = any(other == mine for other in others)
    if is_best or (on_front and not is_twin):
        assert is_promoted(mine, others, factor, direction)
    if not is_best and not on_front:
        assert not is_promoted(mine, others, factor, direction)


def test_the_first_to_come_to_a_rung_goes_on() -> None:
    assert is_promoted(RungPoint(value=0.1, latency_ms=9.0), [], 4, "maximize")


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(configure(tmp_path_factory.mktemp("ladder") / "study", **LADDER), space=LARGE, script=plausible)


def of_outcome(done: Run, outcome: Outcome) -> list[TrialRecord]:
    return [record for record in done.records if record.outcome is outcome]


def test_each_rung_is_recorded_and_only_the_top_one_gives_a_score(climbed: Run) -> None:
    scored, stopped = of_outcome(climbed, Outcome.SCORED), of_outcome(climbed, Outcome.STOPPED_EARLY)
    assert scored and stopped
    for record in scored:
        assert [rung.epochs for rung in record.rungs] == [1, 2, 4, 8]
        assert [rung.verdict for rung in record.rungs] == ["promoted"] * 3 + ["top"]
        assert record.score == record.rungs[-1].score
        assert sum(rung.seconds for rung in record.rungs) == pytest.approx(dict(record.seconds)["train"])
    for record in stopped:
        assert [rung.verdict for rung in record.rungs][-1] == "stopped"
        assert record.score is None
        assert f"stopped by the ladder after {record.rungs[-1].epochs} epochs" in str(record.error)
        assert sum(rung.seconds for rung in record.rungs) == pytest.approx(dict(record.seconds)["train"])
        folder = climbed.bench.weights_folder(record.trial)
        assert list(folder.iterdir()) == [], "nothing is kept of a training that does not go on"
    num_trained = sum(bool(record.rungs) for record in climbed.records)
    assert climbed.bench.num_calls("train") == len(scored) < num_trained, "long training goes where it matters"


def test_a_record_with_rungs_survives_json_and_one_without_is_written_as_before(climbed: Run) -> None:
    for record in climbed.records:
        assert TrialRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    assert "rungs" not in replace(climbed.records[0], rungs=()).to_json()


def test_what_a_rung_stopped_is_neither_on_a_front_nor_called_infeasible(climbed: Run) -> None:
    scored = tuple(of_outcome(climbed, Outcome.SCORED))
    stopped = tuple(of_outcome(climbed, Outcome.STOPPED_EARLY))
    assert {record.trial for record in front_of(scored, "maximize", "infer")} <= {record.trial for record in scored}
    assert least_violating(stopped, climbed.budgets) == ()
    with pytest.raises(AssertionError):
        front_of(stopped, "maximize", "infer")
    with pytest.raises(ValueError, match="only scored has one"):
        replace(stopped[0], score=stopped[0].rungs[0].score)


def test_the_sampler_learns_qualities_of_one_rung_alone_and_of_every_trained_network(climbed: Run) -> None:
    trials = climbed.study.get_trials(deepcopy=False)
    for record, told in zip(climbed.records, trials, strict=True):
        if record.outcome is Outcome.STOPPED_EARLY:
            assert (told.state, told.values) == (TrialState.PRUNED, None)
            assert max(told.constraints.values()) <= 0
        assert told.user_attrs.get(RUNG_ATTRIBUTE) == (record.rungs[0].score.value if record.rungs else None)
    costs = costs_of(climbed.budgets, "infer", {})
    import numpy as np

    history = read_history(trials, SpaceSource(LARGE), costs, (), sign=1.0, rng=np.random.default_rng(0))
    lowest = [record.rungs[0].score.value for record in climbed.records if record.rungs]
    assert sorted(history.qualities[~np.isnan(history.qualities)]) == sorted(lowest)
    assert not np.isnan(history.costs[~np.isnan(history.qualities)]).any()


def test_a_stopped_network_has_a_cost_for_the_sampler_without_a_budget_of_its_latency(tmp_path: Path) -> None:
    settings = {**LADDER, "budgets": ["params=9M"], "sampler": "budget", "trials": 14}
    done = run(configure(tmp_path / "study", **settings), space=LARGE, script=plausible)
    assert of_outcome(done, Outcome.STOPPED_EARLY)
    costs = costs_of(done.budgets, "infer", {})
    for trial in done.study.get_trials(deepcopy=False):
        assert costs[0].known(trial) is not None


@pytest.mark.parametrize("sampler", ["budget", "tpe", "nsga2"])
def test_every_sampler_goes_on_in_a_study_with_a_ladder(tmp_path: Path, sampler: str) -> None:
    done = run(configure(tmp_path / "study", **{**LADDER, "sampler": sampler}), space=LARGE, script=plausible)
    assert done.ended_because == "all 14 trials are done"


def test_the_story_tells_every_rung(climbed: Run, tmp_path: Path) -> None:
    stopped = of_outcome(climbed, Outcome.STOPPED_EARLY)[0]
    with Ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        chapters = {each.stage: each for each in tell_story(stopped, ledger, climbed.budgets)}
    assert chapters["budget"].verdict == "passed"
    assert chapters["train"].verdict == "stopped here"
    assert "rung of 1 epochs: val" in chapters["train"].evidence[0]
    assert "stopped, compared with" in chapters["train"].evidence[len(stopped.rungs) - 1]
    assert chapters["score"].verdict == "not reached"


# Killed and resumed

KILLS = [
    ("pause", 1),
    ("after record_stage", 1),
    ("pause", 2),
    ("after record_stage", 2),
    ("train", 1),
    ("after record_stage", 1),
    ("before record", 1),
    ("forget", 1),
    ("forget", 1),
    ("after record", 1),
    ("before tell", 2),
    ("after tell", 1),
]
"""(place, which time a process passes it): before and after each rung, and while one is being left."""


def assert_as_if_never_killed(killed: Run, whole: Run) -> None:
    assert killed.records == whole.records
    told = [[(t.number, t.state, t.values, t.params, t.user_attrs) for t in run.study.get_trials()]
            for run in (killed, whole)]  # fmt: skip
    assert told[0] == told[1]


@pytest.mark.parametrize("sampler", ["random", "budget"])
def test_a_ladder_killed_at_every_place_equals_an_uninterrupted_one(tmp_path: Path, sampler: str) -> None:
    settings = {**LADDER, "sampler": sampler}
    whole = run(configure(tmp_path / "whole", **settings), space=LARGE, script=plausible)
    assert of_outcome(whole, Outcome.STOPPED_EARLY)
    ended, num_paused = [], 0
    for name, at in [*KILLS, ("never", 1)]:
        killer = Killer(at, name)
        done = run(configure(tmp_path / "study", **settings), space=LARGE, script=plausible, point=killer)
        num_paused += killer.passed.count("pause") - (name == "pause")
        if done.ended_because is None:
            ended.append(killer.passed[-1])
    assert ended == [name for name, _ in KILLS]
    assert_as_if_never_killed(done, whole)
    assert num_paused == whole.bench.num_calls("pause"), "no rung is trained, or decided, twice"


@pytest.mark.parametrize("life", [23])
def test_a_ladder_killed_at_odd_instants_equals_an_uninterrupted_one(tmp_path: Path, life: int) -> None:
    whole = run(configure(tmp_path / "whole", **LADDER), space=LARGE, script=plausible)
    for number in itertools.count():
        assert number < 100, "no progress"
        killer = Killer(life + 3 * (number % 5))
        done = run(configure(tmp_path / "study", **LADDER), space=LARGE, script=plausible, point=killer)
        if done.ended_because is not None:
            break
    assert number >= 4
    assert_as_if_never_killed(done, whole)
