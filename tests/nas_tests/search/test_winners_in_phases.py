"""Winners of studies with several phases: all timed ones gate, the others are looked at and never do; what is kept."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from nas.budget import parse_budget
from nas.ledger import Ledger
from nas.phases import study_budgets
from nas.search.finalists import Finalist, SettledFront, front_members, settle_front
from nas.search.gate_results import collect_gates
from nas.search.pipeline import Proposal, evaluate
from nas.search.plain_looks import look_at_other_phases
from nas.search.progress import Silent
from nas.search.testing import FakeWorkbench, Rejected, Script
from nas.search.winners import keep_winners
from nas.search.zoo import LIMIT_S, measure_zoo, zoo_of, zoo_seconds
from nas.training.data.sources import load_task
from nas.training.task import TaskSettings
from nas.trial import Outcome
from profilers.errors import ProfileFailure
from search_spaces.space import replay
from tests.nas_tests.search.small_studies import DECODE, PHASED, PREFILL, SHORT, SMALL

TIMED, ALL = (DECODE, PREFILL), (DECODE, PREFILL, SHORT)
KINDS = ("inverted_residual_k3_e2", "inverted_residual_k3_e4", "convnext")
CANDIDATES = [replay(PHASED, {"stage1.width": 32, "stage1.depth": 1, "stage1.layer0.kind": kind}) for kind in KINDS]
BUDGETS = study_budgets([parse_budget(f"{DECODE}=8ms"), parse_budget(f"{PREFILL}=120ms")], PHASED)


def looks(decode: Any, prefill: Any, short: Any = 3.0, **fields: Any) -> Script:
    return Script(looks=((DECODE, decode), (PREFILL, prefill), (SHORT, short)), **fields)


@dataclass
class Study:
    """Trials that were run by their scripts, the n-th script the n-th candidate's."""

    folder: Path
    ledger: Ledger
    scripts: dict[str, Script] = field(default_factory=dict)
    bench: FakeWorkbench = field(init=False)

    def __post_init__(self) -> None:
        self.new_process()

    def new_process(self) -> None:
        self.bench = FakeWorkbench(
            folder=self.folder, ledger=self.ledger, phases=TIMED, budgets=BUDGETS,
            script=lambda candidate: self.scripts.get(candidate.candidate_id, looks(5.0, 90.0)),
        )  # fmt: skip

    def search(self, *scripts: Script) -> None:
        for trial, (candidate, script) in enumerate(zip(CANDIDATES, scripts, strict=False)):
            self.scripts[candidate.candidate_id] = script
            self.ledger.record(evaluate(Proposal(trial=trial, candidate=candidate), self.bench))

    def settle(self) -> SettledFront:
        scratch = self.folder / "scratch"
        settled = settle_front(self.ledger.records(), "maximize", self.bench, self.ledger, scratch, Silent())
        finalists = look_at_other_phases(settled.finalists, ALL, self.bench, self.ledger, Silent())
        return replace(settled, finalists=finalists)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Ledger(f"sqlite:///{tmp_path}/study.db") as ledger:
        yield Study(folder=tmp_path, ledger=ledger)


def the_winner(study: Study, script: Script) -> Finalist:
    study.search(script)
    (finalist,) = study.settle().finalists
    return finalist


# The second look


def test_every_timed_phase_is_measured_again_beside_onnx_runtime(study: Study) -> None:
    finalist = the_winner(study, looks(5.0, 90.0, tuned_coverages=((PREFILL, 0.96),)))
    assert [look.phase for look in finalist.looks] == list(TIMED)
    assert [look.latency.latency_ms for look in finalist.looks] == pytest.approx([5.0, 90.0])
    other = [look.onnxruntime for look in finalist.looks]
    assert [each and each.latency_ms for each in other] == pytest.approx([7.5, 135.0])
    assert [phase for phase, _ in finalist.cost.latencies] == list(TIMED)
    assert finalist.cost.tuned_coverage == 0.96, "the lowest"
    assert finalist.latency == finalist.looks[0].latency


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (((DECODE, (9.0,)),), f"measured again, it misses: {DECODE}=8ms: seen "),
        (((PREFILL, (130.0,)),), f"measured again, it misses: {PREFILL}=120ms: seen "),
        (((PREFILL, (Rejected(reason="busy"),)),), f"{PREFILL}: measured again 3 times, each rejected: busy"),
        (
            ((PREFILL, (ProfileFailure(kind="outputs_differ", reason="0.3 off"),)),),
            f"{PREFILL}: measured again: outputs_differ: 0.3 off",
        ),
    ],
)
def test_a_winner_that_misses_in_any_timed_phase_is_dropped_and_the_phase_is_named(
    study: Study, second: Any, reason: str
) -> None:
    study.search(looks(5.0, 90.0, second_looks_of=second))
    settled = study.settle()
    assert settled.finalists == ()
    assert settled.dropped[0].reason.startswith(reason)


def test_a_phase_in_untuned_kernels_drops_its_winner(study: Study) -> None:
    study.search(looks(5.0, 90.0, tuned_coverages=((PREFILL, 0.9),)))
    assert "only 90.0% of its work is in tuned kernels" in study.settle().dropped[0].reason


def test_doubt_about_the_second_phase_is_looked_at_three_times_and_the_first_once(study: Study) -> None:
    study.search(looks(5.0, 90.0))
    study.scripts[CANDIDATES[0].candidate_id] = looks(5.0, 120.0)
    assert "undecided after all looks" in study.settle().dropped[0].reason
    seen = [phase for stage, phase in study.bench.phase_calls if stage == "measure winner"]
    assert (seen.count(DECODE), seen.count(PREFILL)) == (1, 3)


def test_the_front_is_that_of_quality_and_the_primary_phase(study: Study) -> None:
    study.search(looks(5.0, 30.0, num_right=300), looks(4.0, 110.0, num_right=300), looks(6.0, 20.0, num_right=290))
    assert [finalist.record.trial for finalist in study.settle().finalists] == [1]


# Plain looks


def test_the_remaining_phases_get_one_look_that_is_marked_and_remembered(study: Study) -> None:
    finalist = the_winner(study, looks(5.0, 90.0, 3.0))
    (plain,) = finalist.plain_looks
    assert (plain.phase, plain.is_plain, plain.onnxruntime) == (SHORT, True, None)
    assert list(plain.files) == ["tvm"], "an ONNX file would take longer than the look"
    assert plain.latency.latency_ms == pytest.approx(3.0)
    assert SHORT not in dict(finalist.cost.latencies), "it is no part of what was held against budgets"
    (member,) = front_members((finalist,), {})
    assert [(each.phase, each.is_plain_look) for each in member.other_phases] == [(PREFILL, False), (SHORT, True)]
    study.new_process()
    (again,) = study.settle().finalists
    assert again.plain_looks[0].latency == plain.latency
    assert {stage for stage, _ in study.bench.calls} == {"compile winner", "export"}


@pytest.mark.parametrize(
    ("script", "note"),
    [
        (looks(5.0, 90.0, Rejected(reason="busy")), f"{SHORT}: not measured: rejected: busy"),
        (
            looks(5.0, 90.0, ProfileFailure(kind="outputs_differ", reason="0.3 off")),
            f"{SHORT}: not measured: outputs_differ: 0.3 off",
        ),
        (
            looks(5.0, 90.0, compile_failure="no rule", failing_phase=SHORT),
            f"{SHORT}: not compiled: no rule",
        ),
    ],
)
def test_a_plain_look_that_fails_is_a_note_and_never_drops_a_winner(study: Study, script: Script, note: str) -> None:
    finalist = the_winner(study, script)
    assert finalist.plain_looks == ()
    assert note in finalist.notes
    assert study.settle().dropped == ()


def test_a_plain_look_is_held_against_no_budget_and_no_gate(study: Study) -> None:
    finalist = the_winner(study, looks(5.0, 90.0, 1e5, tuned_coverages=((SHORT, 0.1),)))
    assert finalist.cost.tuned_coverage == 1.0
    gates = collect_gates(
        SettledFront(finalists=(finalist,), dropped=()), front_members((finalist,), {}), (),
        load_task(TaskSettings()), study.bench, study.ledger,
    )  # fmt: skip
    assert gates["tuned"].passed and gates["device"].passed


def test_a_timed_phase_of_another_device_fails_the_device_gate(study: Study) -> None:
    finalist = the_winner(study, looks(5.0, 90.0))
    decode, prefill = finalist.looks
    foreign = replace(prefill, measurement=replace(prefill.measurement, fingerprint="elsewhere"))
    for changed, passed in (((decode, prefill), True), ((decode, foreign), False)):
        settled = SettledFront(finalists=(replace(finalist, looks=changed),), dropped=())
        gates = collect_gates(
            settled, front_members(settled.finalists, {}), (), load_task(TaskSettings()), study.bench, study.ledger
        )
        assert gates["device"].passed is passed


# What is kept


def test_a_winner_of_several_phases_has_its_files_in_a_folder_a_phase(study: Study) -> None:
    finalist = the_winner(study, looks(5.0, 90.0))
    keep_winners((finalist,), load_task(TaskSettings()), study.folder)
    folder = study.folder / "winners" / CANDIDATES[0].candidate_id
    kept = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert kept == {
        "candidate.json", "inputs.json", "measurements.json", "weights.pt", "weights.pt.sha256",
        *(f"{phase}/tvm/{name}" for phase in ALL for name in ("artifact.json", "library.so")),
        *(f"{phase}/onnxruntime/{name}" for phase in TIMED for name in ("artifact.json", "model.onnx")),
    }  # fmt: skip
    measurements = json.loads((folder / "measurements.json").read_text())
    assert {phase: set(each) for phase, each in measurements.items()} == {
        DECODE: {"tvm", "onnxruntime"}, PREFILL: {"tvm", "onnxruntime"}, SHORT: {"tvm", "is_plain_look"},
    }  # fmt: skip
    assert json.loads((folder / PREFILL / "onnxruntime" / "artifact.json").read_text())["phase"] == PREFILL


# The zoo


def test_every_named_network_is_measured_in_the_timed_phases_over_budget_or_not_and_once(study: Study) -> None:
    study.bench.script = lambda candidate: looks(50.0, 90.0)
    measure_zoo(PHASED, study.bench, study.ledger, Silent())
    zoo = zoo_of(PHASED, TIMED, study.ledger)
    assert [network.name for network in zoo] == list(PHASED.references())
    for network in zoo:
        assert network.cost is not None
        assert [phase for phase, _ in network.cost.latencies] == list(TIMED)
        assert (network.failure, network.val_score) == (None, None)
    assert study.bench.num_calls("train") == 0
    num_networks = len({network.candidate_id for network in zoo})
    assert study.bench.num_calls("measure") == 2 * num_networks
    assert dict(zoo_seconds(study.ledger)).keys() == {"tune", "compile", "profile"}
    study.new_process()
    measure_zoo(PHASED, study.bench, study.ledger, Silent())
    assert study.bench.calls == []
    assert zoo_of(PHASED, TIMED, study.ledger) == zoo


def test_a_network_that_was_a_trial_has_its_score_and_is_not_measured_again(study: Study) -> None:
    reference = replay(PHASED, PHASED.references()["reference"])
    record = evaluate(Proposal(trial=0, candidate=reference), study.bench)
    assert record.outcome is Outcome.SCORED
    study.ledger.record(record)
    study.new_process()
    measure_zoo(PHASED, study.bench, study.ledger, Silent())
    assert study.bench.num_calls("measure", reference.candidate_id) == 0
    (network,) = (each for each in zoo_of(PHASED, TIMED, study.ledger) if each.name == "reference")
    assert (network.cost, network.val_score) == (record.cost, record.score)


def test_a_trial_that_was_left_out_of_a_phase_is_measured_for_the_zoo(study: Study) -> None:
    reference = replay(PHASED, PHASED.references()["reference"])
    study.scripts[reference.candidate_id] = looks(50.0, 90.0)
    study.ledger.record(evaluate(Proposal(trial=0, candidate=reference), study.bench))
    measure_zoo(PHASED, study.bench, study.ledger, Silent())
    (network,) = (each for each in zoo_of(PHASED, TIMED, study.ledger) if each.name == "reference")
    assert network.cost is not None
    assert network.cost.latency(PREFILL) is not None


def test_a_network_that_fails_is_a_line_in_the_table_and_is_not_tried_again(study: Study) -> None:
    notes: list[str] = []
    watcher = Silent()
    watcher.note = notes.append  # type: ignore[method-assign]
    study.bench.script = lambda candidate: Script(compile_failure="no memory", failing_phase=PREFILL)
    measure_zoo(PHASED, study.bench, study.ledger, watcher)
    for network in zoo_of(PHASED, TIMED, study.ledger):
        assert (network.cost, network.failure) == (None, f"compile_failed: {PREFILL}: no memory")
    assert notes and "is not in the comparison" in notes[0]
    study.new_process()
    measure_zoo(PHASED, study.bench, study.ledger, watcher)
    assert study.bench.calls == []


def test_a_zoo_that_takes_long_is_gone_on_with_by_the_same_command(study: Study) -> None:
    notes: list[str] = []
    watcher = Silent()
    watcher.note = notes.append  # type: ignore[method-assign]
    clock = itertools.count(0.0, LIMIT_S / 3.5)
    measure_zoo(PHASED, study.bench, study.ledger, watcher, clock=lambda: next(clock))
    first = study.bench.num_calls("compile")
    assert notes == [
        f"network 'convolution_only' of the space and those after it are not measured: {LIMIT_S:.0f} s are over"
    ]
    study.new_process()
    measure_zoo(PHASED, study.bench, study.ledger, watcher)
    assert first == 2 < study.bench.num_calls("compile")
    assert [network.name for network in zoo_of(PHASED, TIMED, study.ledger)] == list(PHASED.references())


def test_without_measuring_the_zoo_has_the_networks_that_were_trials(study: Study) -> None:
    assert zoo_of(SMALL, ("infer",), study.ledger) == ()
