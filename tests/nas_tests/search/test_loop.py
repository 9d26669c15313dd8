from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from optuna.trial import FrozenTrial, TrialState

import nas.search.loop
from nas.ledger import Ledger
from nas.search.loop import ReferenceFailedError
from nas.search.testing import Rejected, Script, SmallSpace, plausible
from nas.training.result import TrainFailure
from nas.trial import Outcome
from search_spaces.candidate import Candidate
from search_spaces.space import Choices
from tests.nas_tests.search.small_studies import (
    CLASSES,
    IMAGE,
    LARGE,
    LARGE_REFERENCES,
    SMALL,
    SMALL_REFERENCES,
    Killer,
    Run,
    configure,
    eventful,
    run,
)

REFERENCE = SMALL_REFERENCES[0]


def script_of(default: Script, **others: Script) -> Callable[[Candidate], Script]:
    """The script of each candidate by its id, and of all the rest."""
    return lambda candidate: others.get(candidate.candidate_id, default)


def optuna_trials(done: Run) -> list[FrozenTrial]:
    return done.study.get_trials(deepcopy=False)


def queue(done: Run, *names: str) -> None:
    """Makes references the next proposals of a study, once more."""
    for name in names:
        done.study.enqueue_trial(dict(SMALL.references()[name]))


# What is told to whom


def test_every_trial_has_one_outcome_and_the_counts_add_up(tmp_path: Path) -> None:
    config = configure(tmp_path / "study", trials=16)
    done = run(config, space=LARGE)
    assert [record.trial for record in done.records] == list(range(16))
    with Ledger(config.storage_url) as ledger:
        counts = ledger.counts()
    assert counts == {outcome: sum(each.outcome is outcome for each in done.records) for outcome in Outcome}
    assert sum(counts.values()) == 16
    assert len([count for count in counts.values() if count]) >= 4, "the script makes trials end in many ways"
    assert done.ended_because == "all 16 trials are done"


def test_the_sampler_learns_results_and_nothing_of_the_infrastructure(tmp_path: Path) -> None:
    crashed = LARGE_REFERENCES[2]
    script = script_of(
        Script(), **{crashed.candidate_id: Script(train_failure=TrainFailure(kind="crashed", reason="signal 9"))}
    )
    done = run(
        configure(tmp_path / "study", trials=11, budgets=["infer=5ms", "params=9M"]),
        space=LARGE,
        script=lambda candidate: script(candidate) if candidate == crashed else eventful(candidate),
    )
    assert done.records[2].outcome is Outcome.TRAIN_FAILED
    assert done.records[2].cost is not None
    seen = set()
    for record, told in zip(done.records, optuna_trials(done), strict=True):
        seen.add(told.state)
        if record.outcome.is_infrastructure:
            assert (told.state, told.values, told.constraints) == (TrialState.FAIL, None, {})
            continue
        assert record.cost is not None
        latency = record.cost.latency("infer")
        assert latency is not None
        assert told.constraints == pytest.approx(
            {"infer=5ms": latency.upper_ms / 5 - 1, "params=9M": record.cost.num_params / 9e6 - 1}
        )
        if record.outcome is Outcome.SCORED:
            assert record.score is not None
            assert (told.state, told.values) == (TrialState.COMPLETE, [record.score.value, latency.latency_ms])
        else:
            assert (told.state, told.values) == (TrialState.PRUNED, None)
        assert (max(told.constraints.values()) > 0) is (record.outcome is Outcome.OVER_BUDGET)
    assert seen == {TrialState.FAIL, TrialState.COMPLETE, TrialState.PRUNED}


def test_references_come_first_and_once(tmp_path: Path) -> None:
    config = configure(tmp_path / "study", trials=4)
    run(config, script=plausible)
    done = run(configure(tmp_path / "study", trials=6), script=plausible)
    names = [trial.user_attrs.get("reference") for trial in optuna_trials(done)]
    assert names[:3] == ["reference", "convolution_only", "attention_heavy"]
    assert not any(names[3:])
    assert tuple(record.candidate for record in done.records[:3]) == SMALL_REFERENCES[:3]


def test_the_references_that_come_first_are_the_spaces_first_whatever_their_names(tmp_path: Path) -> None:
    class Renamed(SmallSpace):
        def references(self) -> dict[str, Choices]:
            return {f"mix {number}": choices for number, choices in enumerate(super().references().values())}

    done = run(configure(tmp_path / "study", trials=4), space=Renamed(IMAGE, CLASSES), script=plausible)
    names = [trial.user_attrs.get("reference") for trial in optuna_trials(done)]
    assert names[:4] == ["mix 0", "mix 1", "mix 2", None]


# Duplicates


def test_a_duplicate_reuses_the_known_result_at_no_cost_and_names_the_trial(tmp_path: Path) -> None:
    script = script_of(
        Script(), **{SMALL_REFERENCES[1].candidate_id: Script(look=99.0), SMALL_REFERENCES[2].candidate_id: Script()}
    )
    first = run(configure(tmp_path / "study", trials=3), script=script)
    queue(first, "convolution_only", "reference", "reference")
    again = run(configure(tmp_path / "study", trials=4), script=script)
    over, scored, twice = again.records[3:6]
    assert {candidate_id for _, candidate_id in again.bench.calls} == {again.records[-1].candidate.candidate_id}
    assert (over.duplicate_of, scored.duplicate_of, twice.duplicate_of) == (1, 0, 0)
    assert (over.outcome, over.cost, over.error) == (Outcome.OVER_BUDGET, first.records[1].cost, first.records[1].error)
    assert (scored.outcome, scored.score) == (Outcome.SCORED, first.records[0].score)
    assert over.seconds == scored.seconds == ()
    states = [trial.state for trial in optuna_trials(again)]
    assert states[3:6] == [TrialState.PRUNED, TrialState.COMPLETE, TrialState.COMPLETE]


def test_a_repeated_proposal_does_not_count_as_a_trial(tmp_path: Path) -> None:
    first = run(configure(tmp_path / "study", trials=3), script=plausible)
    queue(first, "reference", "reference")
    again = run(configure(tmp_path / "study", trials=5), script=plausible)
    new = [record for record in again.records if record.duplicate_of is None]
    assert (len(new), again.ended_because) == (5, "all 5 trials are done")
    assert len(again.records) >= 7


@pytest.mark.parametrize("sampler", ["budget", "random"])
def test_a_search_ends_when_its_space_has_nothing_new(
    tmp_path: Path, sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nas.search.loop, "MAX_REPEATS", 6)
    done = run(configure(tmp_path / "study", trials=99, sampler=sampler), script=plausible)
    tried = [record.candidate.candidate_id for record in done.records if record.duplicate_of is None]
    assert len(tried) == len(set(tried)) == SMALL.num_candidates() or sampler == "random"
    assert done.ended_because is not None
    assert "the last 6 proposals were known already" in done.ended_because


def test_a_failure_of_the_infrastructure_is_tried_again(tmp_path: Path) -> None:
    broken = script_of(Script(), **{REFERENCE.candidate_id: Script(compile_failure="the disk was full")})
    first = run(configure(tmp_path / "study", trials=3), script=broken)
    assert first.records[0].outcome is Outcome.COMPILE_FAILED
    queue(first, "reference", "reference")
    again = run(configure(tmp_path / "study", trials=5), script=script_of(Script()))
    assert [record.outcome for record in again.records[3:5]] == [Outcome.SCORED, Outcome.SCORED]
    assert [record.duplicate_of for record in again.records[3:5]] == [None, 3]
    assert again.bench.num_calls("train", REFERENCE.candidate_id) == 1


# When it ends


def test_a_finished_study_does_nothing_more(tmp_path: Path) -> None:
    config = configure(tmp_path / "study", trials=5)
    first, again = run(config), run(config)
    assert again.bench.calls == []
    assert again.records == first.records


def test_more_trials_go_on_where_fewer_ended(tmp_path: Path) -> None:
    # `random`, as a longer study has other samplers explore for longer.
    run(configure(tmp_path / "study", trials=5, sampler="random"))
    longer = run(configure(tmp_path / "study", trials=9, sampler="random"))
    at_once = run(configure(tmp_path / "other", trials=9, sampler="random"))
    assert longer.records == at_once.records


def test_no_trial_starts_after_the_minutes_are_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 20))
    monkeypatch.setattr(nas.search.loop.time, "monotonic", lambda: float(next(now)))
    done = run(configure(tmp_path / "study", trials=9, minutes=1.0))
    # It starts at 0 s; the checks before each trial are at 20, 40, 60 and 80 s.
    assert (done.ended_because, len(done.records)) == ("1 minutes are over", 3)
    monkeypatch.undo()
    more = run(configure(tmp_path / "study", trials=9))
    assert more.ended_because == "all 9 trials are done", "repeats, which cost nothing, are not among them"
    assert sum(record.duplicate_of is None for record in more.records) == 9


def test_a_search_ends_when_little_gain_is_expected_and_says_so(tmp_path: Path) -> None:
    settings = {"trials": 60, "sampler": "budget", "budgets": ["infer=50ms"]}
    done = run(configure(tmp_path / "study", **settings, min_gain=0.9), script=plausible)
    assert done.ended_because == "the expected gain was below 0.9 of the hypervolume 3 times in a row"
    assert len(done.records) < 60
    more = run(configure(tmp_path / "study", **{**settings, "trials": len(done.records) + 2}), script=plausible)
    assert more.ended_because == f"all {len(done.records) + 2} trials are done", "the threshold may change"


# The budget that is there when none was given


def test_without_a_budget_the_reference_gives_it_and_a_note_says_so(tmp_path: Path) -> None:
    done = run(configure(tmp_path / "study", trials=3, budgets=[]), script=script_of(Script(look=2.0)))
    (budget,) = done.budgets
    assert (budget.metric, budget.phase, budget.maximum) == ("latency_ms", "infer", pytest.approx(2.1))
    assert done.note is not None
    assert re.search(r"no budget was given: infer=2.1\d*ms is the latency of the reference network \(2 ms\)", done.note)
    assert all(record.outcome is Outcome.SCORED for record in done.records), "the reference meets its own budget"


def test_a_reference_with_a_wide_interval_still_meets_its_own_budget(tmp_path: Path) -> None:
    done = run(configure(tmp_path / "study", trials=1, budgets=[]), script=script_of(Script(look=2.0, spread=0.3)))
    assert done.records[0].outcome is Outcome.SCORED


def test_the_default_budget_stays_when_a_study_is_resumed(tmp_path: Path) -> None:
    first = run(configure(tmp_path / "study", trials=2, budgets=[]), script=script_of(Script(look=2.0)))
    again = run(configure(tmp_path / "study", trials=4, budgets=[]), script=script_of(Script(look=7.0)))
    assert (again.budgets, again.note) == (first.budgets, first.note)
    assert again.bench.num_calls("measure", REFERENCE.candidate_id) == 0, "it is not measured again"


def test_a_budget_that_was_given_comes_without_a_note(tmp_path: Path) -> None:
    done = run(configure(tmp_path / "study", trials=1))
    assert ([str(budget) for budget in done.budgets], done.note) == (["infer=5ms"], None)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (Script(compile_failure="no rule"), "compile_failed: no rule"),
        (Script(look=Rejected(reason="busy machine")), "profile_failed: rejected: busy machine"),
    ],
)
def test_a_reference_without_a_latency_is_one_line_that_says_why(tmp_path: Path, script: Script, words: str) -> None:
    with pytest.raises(ReferenceFailedError) as caught:
        run(configure(tmp_path / "study", budgets=[]), script=script_of(script))
    message = str(caught.value)
    assert f"reference network 'reference': {words}; give a budget with --budget" in message
    assert "\n" not in message


# Killed and resumed


def assert_as_if_never_killed(killed: Run, whole: Run) -> None:
    assert killed.records == whole.records
    as_told = [(trial.number, trial.state, trial.values, trial.params) for trial in optuna_trials(killed)]
    assert as_told == [(trial.number, trial.state, trial.values, trial.params) for trial in optuna_trials(whole)]
    assert [trial.constraints for trial in optuna_trials(killed)] == [
        trial.constraints for trial in optuna_trials(whole)
    ]
    assert not killed.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


def live_and_die(folder: Path, killers: Iterator[Killer], **settings: object) -> tuple[Run, list[str]]:
    """Runs a study in one process after the other, each ended by its killer; says where each ended."""
    ended: list[str] = []
    finished: set[str] = set()
    num_trained = 0
    for killer in killers:
        done = run(configure(folder, **settings), space=LARGE, point=killer)
        # A candidate whose trial had its record when the process started costs nothing any more.
        assert not finished & {candidate_id for _, candidate_id in done.bench.calls}
        finished = {record.candidate.candidate_id for record in done.records if not record.outcome.is_infrastructure}
        num_trained += killer.passed.count("after record_stage")
        if done.ended_because is not None:
            break
        ended.append(killer.passed[-1])
        assert len(ended) < 100, "no progress"
    scored = [record for record in done.records if record.outcome is Outcome.SCORED and record.duplicate_of is None]
    assert num_trained == len(scored), "what was trained is not trained again"
    return done, ended


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    known: dict[str, Run] = {}

    def whole(**settings: object) -> Run:
        key = repr(settings)
        if key not in known:
            known[key] = run(configure(tmp_path_factory.mktemp("whole") / "study", **settings), space=LARGE)
        return known[key]

    return whole


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("nsga2", "gp")]

KILLS = [
    ("before enqueue_trial", 2),
    ("after enqueue_trial", 1),
    ("before enqueue_trial", 1),
    ("before ask", 2),
    ("after ask", 1),
    ("after choice", 3),
    ("compile", 2),
    ("measure", 2),
    ("before record", 2),
    ("after record", 1),
    ("before tell", 2),
    ("after tell", 2),
    ("after choice", 5),
    ("after choice", 22),
    ("train", 1),
    ("after record_stage", 1),
    ("after choice", 12),
]
"""(place, which time a process passes it): at every place once, and several times within a proposal."""


@pytest.mark.parametrize("sampler", ["budget", "random", "tpe", *SLOW])
def test_a_study_killed_at_every_place_equals_an_uninterrupted_one(
    tmp_path: Path, uninterrupted: Callable[..., Run], sampler: str
) -> None:
    settings: dict[str, object] = {"trials": 9, "sampler": sampler, "budgets": ["infer=12ms"]}
    killers = (Killer(at, name) for name, at in [*KILLS, ("never", 1)])
    killed, ended = live_and_die(tmp_path / "study", killers, **settings)
    assert ended == [name for name, _ in KILLS]
    assert_as_if_never_killed(killed, uninterrupted(**settings))


@pytest.mark.parametrize("life", [37])
def test_a_study_killed_at_odd_instants_equals_an_uninterrupted_one(
    tmp_path: Path, uninterrupted: Callable[..., Run], life: int
) -> None:
    killers = (Killer(life + 3 * (number % 5)) for number in itertools.count())
    killed, ended = live_and_die(tmp_path / "study", killers, trials=9)
    assert len(ended) >= 4
    assert_as_if_never_killed(killed, uninterrupted(trials=9))


# Samplers


@pytest.mark.parametrize("sampler", ["budget", "random", "tpe", "nsga2", pytest.param("gp", marks=pytest.mark.slow)])
def test_every_sampler_proposes_the_same_in_every_process(tmp_path: Path, sampler: str) -> None:
    """In this one, where warnings are errors, and in one whose hashes of text come out otherwise."""
    config = configure(tmp_path / "here", sampler=sampler, budgets=["infer=12ms"], trials=10)
    here = run(config, space=LARGE, script=plausible)
    assert len(here.records) == 10
    assert len({record.candidate for record in here.records}) >= 6
    there = subprocess.run(
        [sys.executable, "-W", "error", "-c", OTHER_PROCESS, sampler, str(tmp_path / "there")],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.split() == [record.candidate.candidate_id for record in here.records]
    assert there.stderr == ""


OTHER_PROCESS = """
import sys
from pathlib import Path
from nas.search.testing import plausible
from tests.nas_tests.search.small_studies import LARGE, configure, run
config = configure(Path(sys.argv[2]), sampler=sys.argv[1], budgets=["infer=12ms"], trials=10)
done = run(config, space=LARGE, script=plausible)
print(*(record.candidate.candidate_id for record in done.records))
"""


def test_two_seeds_search_elsewhere(tmp_path: Path) -> None:
    one, other = (
        run(configure(tmp_path / str(seed), seed=seed, trials=5), space=LARGE, script=plausible) for seed in (0, 1)
    )
    assert one.records[:3] == other.records[:3], "the references"
    assert {record.candidate for record in one.records[3:]} != {record.candidate for record in other.records[3:]}
