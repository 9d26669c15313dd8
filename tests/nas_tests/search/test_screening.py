"""Screening: what is ruled out is not compiled, some of it is audited, and nothing predicted is taken for measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nas.budget import parse_budget, resolve_budgets
from nas.gates.budget import predicted_violations
from nas.ledger import Ledger
from nas.search import screening
from nas.search.finalists import least_violating
from nas.search.loop import known_result, run_search
from nas.search.pipeline import Proposal, evaluate
from nas.search.progress import Silent
from nas.search.screener import encoder_of, random_candidates
from nas.search.screening import AUDIT_EVENT, LEAST_MEASURED, PhaseModel, Screener, is_audited, screening_report
from nas.search.study import open_optuna_study
from nas.search.testing import FakeWorkbench, Script
from nas.trial import Outcome, TrialRecord
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.layers import num_macs
from tests.nas_tests.search.small_studies import configure

SPACE = ConvAttentionSpace(BlockSpec.of("image", channels=1, height=8, width=8), BlockSpec.of("classifier", classes=10))
CANDIDATES = random_candidates(SPACE, 80, seed=1)
ENCODER = encoder_of(SPACE, "infer")


def latency_ms(candidate: Candidate) -> float:
    return 0.2 + num_macs(candidate) / 2e6


BY_LATENCY = sorted(CANDIDATES, key=latency_ms)
BUDGETS = resolve_budgets(
    [parse_budget(f"infer={latency_ms(BY_LATENCY[20]):.4f}ms"), parse_budget("params=9M")], ["infer"]
)
TRIAL = next(trial for trial in range(100) if not is_audited(0, trial))
AUDITED_TRIAL = next(trial for trial in range(100) if is_audited(0, trial))


def bench_with(
    folder: Path, ledger: Ledger, num_calibrated: int = 40, latency: Callable[[Candidate], float] = latency_ms
) -> FakeWorkbench:
    bench = FakeWorkbench(
        folder=folder, ledger=ledger, budgets=BUDGETS, script=lambda candidate: Script(look=latency(candidate))
    )
    calibrated = [(candidate, latency_ms(candidate)) for candidate in CANDIDATES[:num_calibrated]]
    model = PhaseModel(encoder=ENCODER, phase="infer", fingerprint="f", ledger=ledger, calibrated=calibrated)
    bench.screener = Screener([model], seed=0, ledger=ledger)
    return bench


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(f"sqlite:///{tmp_path}/study.db")


def test_a_candidate_surely_over_budget_is_not_compiled(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_with(tmp_path, ledger)
    record = evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[-1]), bench)
    assert record.outcome is Outcome.PREDICTED_OVER_BUDGET
    assert bench.calls == []
    assert record.cost is not None
    estimate = record.cost.latency("infer")
    assert estimate is not None
    assert estimate.source == "predicted"
    assert record.error is not None
    assert record.error.endswith("ms allowed; not measured")
    assert TrialRecord.from_json(record.to_json()) == record


def test_a_candidate_that_may_meet_the_budget_is_measured(tmp_path: Path, ledger: Ledger) -> None:
    record = evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[5]), bench_with(tmp_path, ledger))
    assert record.outcome is Outcome.SCORED
    assert record.cost is not None
    assert record.cost.latencies[0][1].source == "measured"


def test_nothing_is_ruled_out_on_few_measurements(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_with(tmp_path, ledger, num_calibrated=LEAST_MEASURED - 1)
    assert evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[-1]), bench).outcome is Outcome.OVER_BUDGET


def test_measurements_of_the_study_are_learned_from(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_with(tmp_path, ledger, num_calibrated=0)
    for trial, candidate in enumerate(CANDIDATES[:LEAST_MEASURED]):
        assert bench.screen(TRIAL, BY_LATENCY[-1]).answer == "unknown"
        ledger.record(evaluate(Proposal(trial=trial, candidate=candidate), bench))
    assert bench.screen(TRIAL, BY_LATENCY[-1]).answer == "ruled_out"


def test_without_a_latency_budget_nothing_is_ruled_out(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_with(tmp_path, ledger)
    bench.budgets = resolve_budgets([parse_budget("params=9M")], ["infer"])
    assert bench.screen(TRIAL, BY_LATENCY[-1]).answer == "unknown"


def test_an_audited_candidate_is_measured_and_noted_once(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_with(tmp_path, ledger)
    proposal = Proposal(trial=AUDITED_TRIAL, candidate=BY_LATENCY[-1])
    bench.screen(proposal.trial, proposal.candidate)  # as when the process was killed just after
    ledger.record(evaluate(proposal, bench))
    assert [event.detail["trial"] for event in ledger.events(AUDIT_EVENT)] == [AUDITED_TRIAL]
    report = screening_report(ledger)
    assert (report.num_audited, report.num_wrong) == (1, 0)


def test_the_audit_counts_what_was_wrongly_ruled_out(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_with(tmp_path, ledger, latency=lambda candidate: 0.01)  # all are fast, whatever the model learned
    ledger.record(evaluate(Proposal(trial=AUDITED_TRIAL, candidate=BY_LATENCY[-1]), bench))
    assert screening_report(ledger).num_wrong == 1


def test_about_the_intended_share_is_audited() -> None:
    share = sum(is_audited(3, trial) for trial in range(4000)) / 4000
    assert abs(share - screening.AUDIT_SHARE) < 0.02


def test_predictions_are_never_learned_from_or_reused(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_with(tmp_path, ledger)
    record = evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[-1]), bench)
    assert screening.measured_samples([record], "infer") == []
    assert known_result(Proposal(trial=TRIAL + 1, candidate=record.candidate), (record,)) is None
    assert least_violating((record,), BUDGETS) == ()


def test_the_sampler_is_taught_only_what_is_known(tmp_path: Path, ledger: Ledger) -> None:
    record = evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[-1]), bench_with(tmp_path, ledger))
    assert record.cost is not None
    budgets = (*BUDGETS, *resolve_budgets([parse_budget("memory=1MiB")], ["infer"]))
    taught = dict(predicted_violations(budgets, record.cost))
    assert set(taught) == {str(budget) for budget in BUDGETS}
    assert taught[str(BUDGETS[0])] > 0


def test_a_search_screens_and_its_front_is_measured(tmp_path: Path) -> None:
    config = configure(tmp_path / "study", trials=30, sampler="random", budgets=[str(budget) for budget in BUDGETS])
    with Ledger(config.storage_url) as ledger, open_optuna_study(config, "maximize") as study:
        bench = bench_with(config.results_dir, ledger)
        run_search(config, SPACE, study, ledger, bench, Silent())
        counts = ledger.counts()
        assert counts[Outcome.PREDICTED_OVER_BUDGET] > 5
        assert bench.num_calls("compile") == 30 - counts[Outcome.PREDICTED_OVER_BUDGET]
        for record in ledger.records():
            if record.outcome is Outcome.SCORED:
                assert record.cost is not None
                assert record.cost.latencies[0][1].source == "measured"
        for trial in study.get_trials():
            if trial.number in {r.trial for r in ledger.records() if r.outcome is Outcome.PREDICTED_OVER_BUDGET}:
                assert trial.constraints[str(BUDGETS[0])] > 0
        report = screening_report(ledger)
        assert report.num_ruled_out == counts[Outcome.PREDICTED_OVER_BUDGET]
        assert report.seconds_saved > 0
