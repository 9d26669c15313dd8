from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nas.budget import parse_budget, resolve_budgets
from nas.ledger import Ledger
from nas.search.pipeline import (
    Affordable,
    Measured,
    Proposal,
    Stopped,
    check_budget,
    evaluate,
    measure_phases,
)
from nas.search.testing import COMPILE_S, PROFILE_S, TRAIN_S, TUNE_S, FakeWorkbench, Rejected, Script, SmallSpace
from nas.search.trained_weights import trained_from_json
from nas.training.result import TrainFailure
from nas.trial import Outcome
from profilers.artifact import Artifact
from profilers.errors import ProfileFailure
from profilers.measurement import BudgetVerdict, Measurement
from search_spaces.candidate import BlockSpec
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.layers import num_macs, num_params
from search_spaces.space import replay

SPACE = SmallSpace(BlockSpec.of("image", channels=1, height=8, width=8), BlockSpec.of("classifier", classes=10))
CANDIDATE = replay(SPACE, SPACE.references()["reference"])
PROPOSAL = Proposal(trial=3, candidate=CANDIDATE)


def bench_of(folder: Path, script: Script, *budgets: str, ledger: Ledger | None = None) -> FakeWorkbench:
    resolved = resolve_budgets([parse_budget(text) for text in budgets], ["infer"])
    return FakeWorkbench(folder=folder, ledger=ledger, script=lambda candidate: script, budgets=resolved)


STOPS = [
    (Script(compile_failure="no rule for op"), Outcome.COMPILE_FAILED, "no rule for op", ["compile"]),
    (
        Script(look=ProfileFailure(kind="outputs_differ", reason="0.3 off")),
        Outcome.PARITY_FAILED,
        "outputs_differ: 0.3 off",
        ["compile", "measure"],
    ),
    (
        Script(look=ProfileFailure(kind="timeout", reason="60 s are over")),
        Outcome.PROFILE_FAILED,
        "timeout: 60 s are over",
        ["compile", "measure"],
    ),
    (
        Script(look=Rejected(reason="CPU over wall 0.5")),
        Outcome.PROFILE_FAILED,
        "rejected: CPU over wall 0.5",
        ["compile", "measure"],
    ),
    (Script(look=9.0), Outcome.OVER_BUDGET, "infer=5ms: seen", ["compile", "measure"]),
    (
        Script(train_failure=TrainFailure(kind="diverged", reason="loss is nan", duration_s=TRAIN_S)),
        Outcome.DIVERGED,
        "diverged: loss is nan",
        ["compile", "measure", "train"],
    ),
    (
        Script(train_failure=TrainFailure(kind="crashed", reason="signal 9", duration_s=TRAIN_S)),
        Outcome.TRAIN_FAILED,
        "crashed: signal 9",
        ["compile", "measure", "train"],
    ),
]


@pytest.mark.parametrize(("script", "outcome", "reason", "stages"), STOPS, ids=[stop[1].value for stop in STOPS])
def test_a_failed_stage_gives_its_outcome_and_reason_and_ends_the_trial(
    tmp_path: Path, script: Script, outcome: Outcome, reason: str, stages: list[str]
) -> None:
    bench = bench_of(tmp_path, script, "5ms")
    record = evaluate(PROPOSAL, bench)
    assert record.outcome is outcome
    assert record.error is not None
    assert reason in record.error
    assert record.score is None
    assert [stage for stage, _ in bench.calls] == stages


@pytest.mark.parametrize(("script", "outcome", "reason", "stages"), STOPS, ids=[stop[1].value for stop in STOPS])
def test_only_a_candidate_whose_latency_counts_has_a_cost(
    tmp_path: Path, script: Script, outcome: Outcome, reason: str, stages: list[str]
) -> None:
    record = evaluate(PROPOSAL, bench_of(tmp_path, script, "5ms"))
    is_timed = outcome in (Outcome.OVER_BUDGET, Outcome.DIVERGED, Outcome.TRAIN_FAILED)
    assert (record.cost is not None) is is_timed


@pytest.mark.parametrize(
    ("script", "seconds"),
    [
        (Script(compile_failure="no"), {"tune": TUNE_S, "compile": COMPILE_S}),
        (Script(look=Rejected(reason="busy")), {"tune": TUNE_S, "compile": COMPILE_S, "profile": PROFILE_S}),
        (Script(look=9.0), {"tune": TUNE_S, "compile": COMPILE_S, "profile": PROFILE_S}),
        (STOPS[5][0], {"tune": TUNE_S, "compile": COMPILE_S, "profile": PROFILE_S, "train": TRAIN_S}),
        (Script(), {"tune": TUNE_S, "compile": COMPILE_S, "profile": PROFILE_S, "train": TRAIN_S}),
    ],
    ids=["compile_failed", "rejected", "over_budget", "diverged", "scored"],
)
def test_every_stage_that_ran_has_its_seconds(tmp_path: Path, script: Script, seconds: dict[str, float]) -> None:
    assert dict(evaluate(PROPOSAL, bench_of(tmp_path, script, "5ms")).seconds) == seconds


def test_a_scored_trial_has_cost_and_val_score(tmp_path: Path) -> None:
    script = Script(look=2.0, num_right=270, tuned_coverage=0.98, peak_memory_bytes=777, model_bytes=555)
    record = evaluate(PROPOSAL, bench_of(tmp_path, script, "5ms"))
    assert (record.trial, record.candidate, record.outcome, record.error) == (3, CANDIDATE, Outcome.SCORED, None)
    assert record.score is not None
    assert (record.score.split, record.score.value) == ("val", 0.75)
    cost = record.cost
    assert cost is not None
    latency = cost.latency("infer")
    assert latency is not None
    assert latency.latency_ms == pytest.approx(2.0)
    assert (cost.num_params, cost.num_macs) == (num_params(CANDIDATE), num_macs(CANDIDATE))
    assert (cost.tuned_coverage, cost.peak_memory_bytes, cost.model_bytes) == (0.98, 777, 555)


def test_in_doubt_about_the_budget_is_over_budget_and_says_undecided(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Script(look=5.0, spread=0.05), "5ms")
    record = evaluate(PROPOSAL, bench)
    assert record.outcome is Outcome.OVER_BUDGET
    assert "undecided" in str(record.error)
    assert bench.num_calls("train") == 0


def test_a_clear_miss_is_not_called_undecided(tmp_path: Path) -> None:
    assert "undecided" not in str(evaluate(PROPOSAL, bench_of(tmp_path, Script(look=9.0), "5ms")).error)


@pytest.mark.parametrize(
    ("budget", "seen"),
    [
        ("2ms", "infer=2ms: seen"),
        ("params=1k", "params=1k: seen"),
        ("model=1MB", "model=1MB: seen 1MiB"),
        ("memory=1MiB", "memory=1MiB: seen 32MiB"),
    ],
)
def test_each_of_several_budgets_can_be_the_one_that_is_missed(tmp_path: Path, budget: str, seen: str) -> None:
    generous = {"latency": "9ms", "params": "params=9M", "model": "model=9MB", "memory": "memory=9GiB"}
    generous["latency" if budget == "2ms" else budget.split("=")[0]] = budget
    record = evaluate(PROPOSAL, bench_of(tmp_path, Script(look=5.0), *generous.values()))
    assert record.outcome is Outcome.OVER_BUDGET
    assert str(record.error).startswith(seen)
    assert ";" not in str(record.error), "budgets that are met are not in the reason"


def test_a_number_of_parameters_that_is_not_round_can_miss_its_budget(tmp_path: Path) -> None:
    space = ConvAttentionSpace(SPACE.input, SPACE.head)
    large = replay(space, space.references()["largest"])
    assert num_params(large) > 1e6
    record = evaluate(Proposal(trial=0, candidate=large), bench_of(tmp_path, Script(), "params=600k"))
    assert record.error == f"params=600k: seen {num_params(large)}"


def test_every_missed_budget_is_in_the_reason(tmp_path: Path) -> None:
    record = evaluate(PROPOSAL, bench_of(tmp_path, Script(look=5.0), "2ms", "memory=1MiB", "params=9M"))
    assert [part.split(":")[0] for part in str(record.error).split("; ")] == ["infer=2ms", "memory=1MiB"]


def test_a_budget_whose_metric_was_not_measured_is_not_met(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Script(look=1.0), "5ms", "memory=9GiB")
    measured = measure_phases(PROPOSAL, bench)
    assert isinstance(measured, Measured)
    assert isinstance(check_budget(measured, bench.budgets), Affordable)
    unknown = replace(measured, cost=replace(measured.cost, peak_memory_bytes=None))
    stopped = check_budget(unknown, bench.budgets)
    assert isinstance(stopped, Stopped)
    assert (stopped.outcome, stopped.reason) == (
        Outcome.OVER_BUDGET,
        "memory=9GiB: peak_memory_bytes was not measured",
    )


def test_a_remembered_training_is_not_repeated(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/study.db") as ledger:
        first_bench = bench_of(tmp_path, Script(), "5ms", ledger=ledger)
        first = evaluate(PROPOSAL, first_bench)
        again_bench = bench_of(tmp_path, Script(num_right=1), "5ms", ledger=ledger)
        again = evaluate(PROPOSAL, again_bench)
        other = evaluate(replace(PROPOSAL, trial=4), again_bench)
    assert again == first
    assert (first_bench.num_calls("train"), again_bench.num_calls("train")) == (1, 1)
    assert other.score != first.score, "another trial is trained on its own"


def test_a_failed_training_is_not_remembered(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/study.db") as ledger:
        failed = Script(train_failure=TrainFailure(kind="crashed", reason="killed"))
        assert evaluate(PROPOSAL, bench_of(tmp_path, failed, ledger=ledger)).outcome is Outcome.TRAIN_FAILED
        assert evaluate(PROPOSAL, bench_of(tmp_path, Script(), ledger=ledger)).outcome is Outcome.SCORED


def test_the_weights_of_a_remembered_training_are_found_where_the_study_is_now(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/study.db") as ledger:
        evaluate(PROPOSAL, bench_of(tmp_path, Script(), ledger=ledger))
        (stage,) = ledger.stages(3)
    weights = trained_from_json(stage.payload, Path("moved/here"))
    assert weights.path == Path("moved/here/weights.pt")
    assert len(weights.sha256) == 64
    assert weights.untrained_score.value == pytest.approx(0.1)


def test_a_latency_of_another_device_is_a_failure_of_the_infrastructure_and_never_counts(tmp_path: Path) -> None:
    class Elsewhere(FakeWorkbench):
        def measure(self, artifact: Artifact) -> tuple[Measurement | ProfileFailure, BudgetVerdict]:
            seen, answer = FakeWorkbench.measure(self, artifact)
            assert isinstance(seen, Measurement)
            return replace(seen, fingerprint="another"), answer

    bench = Elsewhere(folder=tmp_path, ledger=None, script=lambda candidate: Script(), budgets=())
    record = evaluate(PROPOSAL, bench)
    assert record.outcome is Outcome.PROFILE_FAILED and record.cost is None and record.score is None
    assert record.error is not None and "another device: fingerprint another" in record.error
    assert bench.num_calls("train") == 0
