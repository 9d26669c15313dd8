from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nas.budget import parse_budget, resolve_budgets
from nas.ledger import Ledger
from nas.search.finalists import (
    SettledFront,
    front_members,
    front_of,
    least_violating,
    settle_front,
)
from nas.search.finalists import (
    test_scores as open_test,
)
from nas.search.pipeline import Proposal, evaluate
from nas.search.progress import Silent
from nas.search.testing import FakeWorkbench, Rejected, Script, made_up_score
from nas.search.winners import keep_winners
from nas.training.data.sources import load_task
from nas.training.result import TrainFailure
from nas.training.task import Task, TaskSettings
from nas.trial import Outcome, TrialRecord
from profilers.errors import ProfileFailure
from search_spaces.candidate import Candidate
from search_spaces.space import replay
from tests.nas_tests.search.small_studies import SMALL

KINDS = ["inverted_residual_k3_e2", "inverted_residual_k3_e4", "inverted_residual_k5_e2", "convnext", "attention"]
CANDIDATES = [replay(SMALL, {"stage1.width": 32, "stage1.depth": 1, "stage1.layer0.kind": kind}) for kind in KINDS]
NAMES = [candidate.candidate_id for candidate in CANDIDATES]


@dataclass
class Study:
    """Trials that were run by their scripts, the n-th script the n-th candidate's."""

    folder: Path
    ledger: Ledger
    scripts: dict[str, Script] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bench: FakeWorkbench = field(init=False)

    def __post_init__(self) -> None:
        self.new_process()

    def new_process(self) -> None:
        self.bench = FakeWorkbench(
            folder=self.folder,
            ledger=self.ledger,
            script=lambda candidate: self.scripts[candidate.candidate_id],
            budgets=resolve_budgets([parse_budget("5ms"), parse_budget("memory=64MiB")], ["infer"]),
        )

    def search(self, *scripts: Script) -> tuple[TrialRecord, ...]:
        for trial, (candidate, script) in enumerate(zip(CANDIDATES, scripts, strict=False)):
            self.scripts[candidate.candidate_id] = script
            self.ledger.record(evaluate(Proposal(trial=trial, candidate=candidate), self.bench))
        return self.ledger.records()

    def settle(self, *scripts: Script) -> SettledFront:
        records = self.search(*scripts)
        watcher = Silent()
        watcher.note = self.notes.append  # type: ignore[method-assign]
        return settle_front(records, "maximize", self.bench, self.ledger, self.folder / "scratch", watcher)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Ledger(f"sqlite:///{tmp_path}/study.db") as ledger:
        yield Study(folder=tmp_path, ledger=ledger)


def trials(settled: SettledFront) -> list[int]:
    return [finalist.record.trial for finalist in settled.finalists]


def dropped(settled: SettledFront) -> dict[int, str]:
    return {each.trial: each.reason for each in settled.dropped}


# The front


def test_every_member_is_measured_again_with_its_weights_and_the_front_is_in_order(study: Study) -> None:
    settled = study.settle(
        Script(look=4.0, num_right=350), Script(look=2.0, num_right=300), Script(look=3.0, num_right=290)
    )
    assert trials(settled) == [1, 0], "the fastest first; trial 2 is slower and worse than trial 1"
    assert settled.dropped == ()
    assert study.bench.num_calls("measure winner") == study.bench.num_calls("compile winner") == 2
    slow = settled.finalists[1]
    assert slow.latency.latency_ms == pytest.approx(4.0)
    assert slow.onnxruntime is not None
    assert slow.onnxruntime.latency_ms == pytest.approx(6.0)
    assert {runtime: artifact.runtime for runtime, artifact in slow.files.items()} == {
        "tvm": "tvm",
        "onnxruntime": "onnxruntime",
    }


def test_a_member_that_misses_now_is_dropped_and_named_and_what_it_dominated_gets_its_chance(study: Study) -> None:
    settled = study.settle(
        Script(look=2.0, num_right=350, second_looks=(9.0,)),
        Script(look=3.0, num_right=340),
        Script(look=4.0, num_right=330),
    )
    assert trials(settled) == [1]
    (gone,) = settled.dropped
    assert (gone.trial, gone.candidate_id) == (0, NAMES[0])
    assert gone.reason.startswith("measured again, it misses: infer=5ms: seen ")
    assert study.notes == [f"winner {NAMES[0]} (trial 0) dropped: {gone.reason}"]
    assert study.bench.num_calls("measure winner", NAMES[2]) == 0, "still dominated"


def test_another_budget_than_the_latency_can_be_missed_now(study: Study) -> None:
    study.search(Script(look=2.0))
    study.scripts[NAMES[0]] = Script(look=2.0, peak_memory_bytes=1 << 30)
    settled = settle_front(
        study.ledger.records(), "maximize", study.bench, study.ledger, study.folder / "scratch", Silent()
    )
    assert dropped(settled) == {0: "measured again, it misses: memory=64MiB: seen 1GiB"}


def test_new_latencies_change_who_dominates_whom(study: Study) -> None:
    settled = study.settle(
        Script(look=2.0, num_right=340, second_looks=(4.0,)),
        Script(look=3.0, num_right=350),
        Script(look=3.5, num_right=345),
    )
    assert trials(settled) == [1], "trial 0 is now slower and worse than trial 1"
    assert settled.dropped == (), "it kept to the budget: it is dominated, not dropped"


def test_what_a_slower_member_no_longer_dominates_is_looked_at(study: Study) -> None:
    settled = study.settle(
        Script(look=2.0, num_right=340, second_looks=(4.0,)),
        Script(look=3.0, num_right=330),
    )
    assert trials(settled) == [1, 0]
    assert study.bench.num_calls("measure winner", NAMES[0]) == 1, "no member is measured twice"


def test_a_finalist_carries_what_was_seen_now_beside_what_the_search_saw(study: Study) -> None:
    (finalist,) = study.settle(Script(look=2.0, second_looks=(2.5,))).finalists
    assert finalist.cost.latency("infer") == finalist.latency
    assert finalist.latency.latency_ms == pytest.approx(2.5)
    assert finalist.record == study.ledger.records()[0]
    assert finalist.record.cost != finalist.cost


def test_failed_over_budget_and_duplicate_trials_are_no_candidates_for_the_front(study: Study) -> None:
    records = study.search(Script(look=9.0, num_right=359), Script(compile_failure="no"), Script(look=2.0))
    again = TrialRecord.from_json({**records[2].to_json(), "trial": 7, "duplicate_of": 2})
    settled = settle_front((*records, again), "maximize", study.bench, study.ledger, study.folder / "scratch", Silent())
    assert trials(settled) == [2]
    assert front_of((), "maximize", "infer") == ()


# The second look


def test_undecided_after_three_looks_is_dropped(study: Study) -> None:
    study.search(Script(look=4.0))
    study.scripts[NAMES[0]] = Script(look=5.0, spread=0.2)
    settled = settle_front(
        study.ledger.records(), "maximize", study.bench, study.ledger, study.folder / "scratch", Silent()
    )
    assert "undecided after all looks" in dropped(settled)[0]
    assert study.bench.num_calls("measure winner") == 3


def test_further_looks_are_pooled_and_stop_once_it_is_decided(study: Study) -> None:
    study.search(Script(look=4.0))
    study.scripts[NAMES[0]] = Script(look=4.0, second_looks=(4.97, 4.9), spread=0.02)
    (finalist,) = settle_front(
        study.ledger.records(), "maximize", study.bench, study.ledger, study.folder / "scratch", Silent()
    ).finalists
    assert study.bench.num_calls("measure winner") == 2
    assert len(finalist.measurement.blocks) == 24
    assert 4.9 < finalist.latency.latency_ms < 4.97


@pytest.mark.parametrize(
    "disturbed", [Rejected(reason="busy"), ProfileFailure(kind="rejected", reason="too few blocks")]
)
def test_a_rejected_measurement_is_made_again(study: Study, disturbed: Rejected | ProfileFailure) -> None:
    settled = study.settle(Script(look=2.0, second_looks=(disturbed, disturbed, 2.2)))
    (finalist,) = settled.finalists
    assert finalist.latency.latency_ms == pytest.approx(2.2)
    assert finalist.measurement.rejected_because is None
    assert finalist.onnxruntime is not None, "ONNX Runtime's good look counts as well"


def test_a_rejected_look_between_undecided_ones_does_not_end_it(study: Study) -> None:
    study.search(Script(look=4.0))
    study.scripts[NAMES[0]] = Script(look=4.0, second_looks=(4.97, Rejected(reason="busy"), 4.9), spread=0.02)
    settled = settle_front(
        study.ledger.records(), "maximize", study.bench, study.ledger, study.folder / "scratch", Silent()
    )
    assert trials(settled) == [0]


def test_what_is_rejected_three_times_is_dropped_with_the_reason(study: Study) -> None:
    settled = study.settle(Script(look=2.0, second_looks=(Rejected(reason="busy"),)))
    assert dropped(settled) == {0: "measured again 3 times, each rejected: busy"}


def test_a_failed_measurement_is_dropped_with_its_kind(study: Study) -> None:
    failure = ProfileFailure(kind="outputs_differ", reason="0.3 off")
    assert dropped(study.settle(Script(look=2.0, second_looks=(failure,)))) == {
        0: "measured again: outputs_differ: 0.3 off"
    }


def test_a_member_in_untuned_kernels_is_dropped(study: Study) -> None:
    settled = study.settle(Script(look=2.0, tuned_coverage=0.9), Script(look=1.0, tuned_coverage=0.96))
    assert dropped(settled) == {} and trials(settled) == [1]
    study.scripts[NAMES[1]] = Script(look=1.0, tuned_coverage=0.94)
    again = settle_front(
        study.ledger.records(), "maximize", study.bench, study.ledger, study.folder / "scratch", Silent()
    )
    assert dropped(again) == {
        1: "only 94.0% of its work is in tuned kernels; at least 95%",
        0: "only 90.0% of its work is in tuned kernels; at least 95%",
    }


def test_weights_that_are_gone_and_code_that_no_longer_compiles_are_reasons(study: Study) -> None:
    study.search(Script(look=2.0, num_right=300), Script(look=1.0, num_right=200))
    (study.bench.weights_folder(0) / "weights.pt").unlink()
    study.scripts[NAMES[1]] = Script(compile_failure="out of memory")
    settled = settle_front(
        study.ledger.records(), "maximize", study.bench, study.ledger, study.folder / "scratch", Silent()
    )
    assert dropped(settled) == {
        0: "its trained weights are gone from the results folder, or are no longer those it was scored with",
        1: "with trained weights it no longer compiles: out of memory",
    }


def test_a_network_without_onnx_is_published_with_a_note(study: Study) -> None:
    (finalist,) = study.settle(Script(look=2.0, onnx_failure="no such operator")).finalists
    assert finalist.onnxruntime is None
    assert finalist.notes == ("no ONNX file: no such operator",)
    assert list(finalist.files) == ["tvm"]


# Test scores


def test_test_is_opened_once_for_each_member_and_its_scores_are_kept(study: Study) -> None:
    settled = study.settle(Script(look=2.0, num_right=300), Script(look=4.0, num_right=350))
    scores = open_test(settled.finalists, study.bench, study.ledger)
    assert scores == {0: made_up_score(299, "test"), 1: made_up_score(349, "test")}
    assert study.bench.num_calls("test") == 2
    study.new_process()
    assert open_test(settled.finalists, study.bench, study.ledger) == scores
    assert study.bench.calls == []
    events = study.ledger.events("test_opened")
    assert [(event.detail["trial"], event.detail["candidate_id"]) for event in events] == [
        (0, NAMES[0]),
        (1, NAMES[1]),
    ]


def test_nothing_opens_test_before_the_front_is_settled(study: Study) -> None:
    study.settle(Script(look=2.0))
    assert study.ledger.events("test_opened") == ()
    assert study.bench.num_calls("test") == 0


def test_a_test_score_that_failed_is_a_note_and_is_tried_again(study: Study) -> None:
    settled = study.settle(Script(look=2.0))
    settled.finalists[0].weights.path.write_text("damaged")
    scores = open_test(settled.finalists, study.bench, study.ledger)
    assert isinstance(scores[0], TrainFailure)
    (member,) = front_members(settled.finalists, scores)
    assert member.test_score is None
    assert member.notes == (f"no test score: {scores[0].reason}",)
    open_test(settled.finalists, study.bench, study.ledger)
    assert study.bench.num_calls("test") == 2


# What is kept


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(TaskSettings())


def test_each_winner_has_its_folder_with_everything_to_run_it(study: Study, task: Task) -> None:
    keep_winners(study.settle(Script(look=2.0)).finalists, task, study.folder)
    folder = study.folder / "winners" / NAMES[0]
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "candidate.json",
        "inputs.json",
        "measurements.json",
        "onnxruntime/artifact.json",
        "onnxruntime/model.onnx",
        "tvm/artifact.json",
        "tvm/library.so",
        "weights.pt",
        "weights.pt.sha256",
    ]
    assert Candidate.from_json(json.loads((folder / "candidate.json").read_text())) == CANDIDATES[0]
    digest, name = (folder / "weights.pt.sha256").read_text().split()
    assert (digest, name) == (hashlib.sha256((folder / "weights.pt").read_bytes()).hexdigest(), "weights.pt")
    assert set(json.loads((folder / "measurements.json").read_text())) == {"tvm", "onnxruntime"}
    inputs = json.loads((folder / "inputs.json").read_text())
    assert inputs == task.facts()
    assert inputs["mean"] == list(task.mean) and inputs["std"] == list(task.std)
    assert inputs["class_names"] == [str(label) for label in range(10)]


def test_winners_of_an_earlier_front_and_halves_are_removed_and_notes_stay(study: Study, task: Task) -> None:
    settled = study.settle(Script(look=2.0, num_right=300), Script(look=4.0, num_right=350))
    keep_winners(settled.finalists, task, study.folder)
    winners = study.folder / "winners"
    (winners / ".half.tmp").mkdir()
    (winners / "notes.txt").write_text("mine")
    keep_winners(settled.finalists[1:], task, study.folder)
    assert sorted(entry.name for entry in winners.iterdir()) == sorted([NAMES[1], "notes.txt"])
    keep_winners((), task, study.folder)
    assert [entry.name for entry in winners.iterdir()] == ["notes.txt"]


# When nothing meets the budget


def test_the_least_violating_come_first_and_failures_are_not_among_them(study: Study) -> None:
    records = study.search(
        Script(look=20.0),
        Script(look=6.0, peak_memory_bytes=60 << 20),
        Script(compile_failure="no"),
        Script(look=6.0, peak_memory_bytes=1 << 28),
        Script(look=4.0, peak_memory_bytes=80 << 20),
    )
    again = TrialRecord.from_json({**records[1].to_json(), "trial": 9, "duplicate_of": 1})
    ordered = least_violating((*records, again), study.bench.budgets)
    # Relative excess: 0.2 of latency, 0.25 of memory, 3 of latency, 0.2 + 3; what is left of a budget does not count.
    assert [record.trial for record in ordered] == [1, 4, 0, 3]
    assert [record.trial for record in least_violating(records, study.bench.budgets, limit=2)] == [1, 4]
    assert {record.outcome for record in ordered} == {Outcome.OVER_BUDGET}


def test_equally_violating_trials_come_in_the_order_of_their_numbers(study: Study) -> None:
    records = study.search(*[Script(look=8.0)] * 4)
    assert [record.trial for record in least_violating(records[::-1], study.bench.budgets)] == [0, 1, 2, 3]


def test_weights_that_are_not_those_that_were_scored_are_dropped(study: Study) -> None:
    study.settle(Script(look=2.0))
    weights = next(study.folder.rglob("weights.pt"))
    weights.write_bytes(b"others")
    settled = settle_front(study.ledger.records(), "maximize", study.bench, study.ledger, study.folder, Silent())
    assert settled.finalists == ()
    assert "no longer those it was scored with" in settled.dropped[0].reason


def test_a_winner_is_not_measured_anew_when_nothing_has_changed(study: Study) -> None:
    (first,) = study.settle(Script(look=2.0, second_looks=(2.5, 2.7))).finalists
    study.new_process()
    (again,) = settle_front(
        study.ledger.records(), "maximize", study.bench, study.ledger, study.folder, Silent()
    ).finalists
    assert study.bench.num_calls("measure winner") == 0
    assert again.latency == first.latency
    assert again.onnxruntime == first.onnxruntime
