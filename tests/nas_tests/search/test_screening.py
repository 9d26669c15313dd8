"""Screening: what is ruled out is not compiled, some of it is audited, and nothing predicted is taken for measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from nas.budget import parse_budget, resolve_budgets
from nas.gates.budget import predicted_violations, violations
from nas.ledger import Ledger
from nas.search import screening
from nas.search.audit_run import latency_audit
from nas.search.candidate_source import SpaceSource
from nas.search.cost import Cost
from nas.search.finalists import front_members, front_of, least_violating, settle_front
from nas.search.history import read_history
from nas.search.loop import known_result, run_search
from nas.search.pipeline import Proposal, evaluate
from nas.search.progress import Silent
from nas.search.screener import encoder_of, open_screener, random_candidates
from nas.search.screening import AUDIT_EVENT, LEAST_MEASURED, PhaseModel, Screener, is_audited, measured_amounts
from nas.search.screening_report import screening_report
from nas.search.study import open_optuna_study
from nas.search.testing import FakeWorkbench, Script
from nas.trial import Outcome, TrialRecord
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.layers import layers_of, num_macs
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
    folder: Path,
    ledger: Ledger,
    num_calibrated: int = 40,
    latency: Callable[[Candidate], float] = latency_ms,
    *,
    trusts: bool = False,
    noise: float = 0.0,
) -> FakeWorkbench:
    bench = FakeWorkbench(
        folder=folder, ledger=ledger, budgets=BUDGETS, script=lambda candidate: Script(look=latency(candidate))
    )
    drawn = np.random.default_rng(0).normal(1.0, noise, num_calibrated)
    calibrated = [(each, latency_ms(each) * float(by)) for each, by in zip(CANDIDATES, drawn, strict=False)]
    model = PhaseModel(encoder=ENCODER, phase="infer", ledger=ledger, calibrated=calibrated)
    bench.screener = Screener([model], seed=0, ledger=ledger, trusts=trusts)
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


# What is surely within the budgets


def test_a_candidate_surely_within_the_budgets_is_trained_unmeasured_where_that_was_asked_for(
    tmp_path: Path, ledger: Ledger
) -> None:
    bench = bench_with(tmp_path, ledger, trusts=True)
    record = evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[0]), bench)
    assert record.outcome is Outcome.SCORED
    assert [stage for stage, _ in bench.calls] == ["train"]
    assert record.cost is not None
    assert not record.cost.is_measured
    assert record.cost.latencies[0][1].source == "predicted"
    assert TrialRecord.from_json(record.to_json()) == record
    assert screening_report(ledger).is_empty, "it is not in the ledger yet"
    ledger.record(record)
    report = screening_report(ledger)
    assert (report.num_trusted, report.num_ruled_out, report.num_trusted_audited) == (1, 0, 0)


def test_by_default_everything_is_measured_before_it_is_trained(tmp_path: Path, ledger: Ledger) -> None:
    assert bench_with(tmp_path, ledger).screen(TRIAL, BY_LATENCY[0]).answer == "pass"


def test_near_the_budget_nothing_is_trusted(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_with(tmp_path, ledger, trusts=True, noise=0.05)
    maximum_ms = BUDGETS[0].maximum
    near = [each for each in CANDIDATES if 0.98 * maximum_ms < latency_ms(each) < 1.02 * maximum_ms]
    assert near
    assert {bench.screen(TRIAL, each).answer for each in near} == {"pass"}


def test_a_budget_on_what_no_model_predicts_is_met_by_measurement_alone(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_with(tmp_path, ledger, trusts=True)
    bench.budgets = (*BUDGETS, *resolve_budgets([parse_budget("memory=64GiB")], ["infer"]))
    record = evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[0]), bench)
    assert bench.num_calls("compile") == 1
    assert record.cost is not None
    assert record.cost.is_measured


def test_a_trusted_candidate_over_a_budget_that_is_counted_is_measured_and_stopped(
    tmp_path: Path, ledger: Ledger
) -> None:
    bench = bench_with(tmp_path, ledger, trusts=True)
    bench.budgets = (BUDGETS[0], *resolve_budgets([parse_budget("params=1")], ["infer"]))
    record = evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[0]), bench)
    assert record.outcome is Outcome.OVER_BUDGET
    assert record.cost is not None
    assert record.cost.is_measured


@pytest.mark.parametrize(("is_slow", "num_wrong"), [(False, 0), (True, 1)])
def test_the_audit_counts_what_was_wrongly_trusted(
    tmp_path: Path, ledger: Ledger, *, is_slow: bool, num_wrong: int
) -> None:
    factor = 50.0 if is_slow else 1.0
    bench = bench_with(tmp_path, ledger, latency=lambda candidate: factor * latency_ms(candidate), trusts=True)
    ledger.record(evaluate(Proposal(trial=AUDITED_TRIAL, candidate=BY_LATENCY[0]), bench))
    report = screening_report(ledger)
    assert (report.num_trusted_audited, report.num_trusted_wrong, report.num_audited) == (1, num_wrong, 0)
    assert [event.detail["answer"] for event in ledger.events(AUDIT_EVENT)] == ["trusted"]


def test_a_trusted_network_on_the_front_is_measured_before_it_is_published(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/study.db") as ledger:
        bench = bench_with(tmp_path, ledger, trusts=True)
        for trial, candidate in enumerate(BY_LATENCY[:3]):
            ledger.record(evaluate(Proposal(trial=TRIAL + 1000 * trial, candidate=candidate), bench))
        records = [record for record in ledger.records() if record.cost is not None and not record.cost.is_measured]
        assert records, "some are trusted"
        settled = settle_front(ledger.records(), "maximize", bench, ledger, tmp_path / "scratch", Silent())
        assert settled.finalists
        members = front_members(settled.finalists, {})
        assert all(member.latency.source == "measured" for member in members)
        assert all(member.search_latency("infer") is None for member in members if not member.record.cost.is_measured)


def test_a_trusted_network_that_misses_when_it_is_measured_is_not_published(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/study.db") as ledger:
        bench = bench_with(tmp_path, ledger, latency=lambda candidate: 50 * latency_ms(candidate), trusts=True)
        ledger.record(evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[0]), bench))
        settled = settle_front(ledger.records(), "maximize", bench, ledger, tmp_path / "scratch", Silent())
        assert settled.finalists == ()
        assert "misses" in settled.dropped[0].reason


def test_an_unmeasured_network_that_may_be_on_the_front_hides_none_that_is(tmp_path: Path, ledger: Ledger) -> None:
    """Its optimistic latency puts it in front; measured, it is slower, and the measured one has its place again."""
    slower = {BY_LATENCY[0].candidate_id: 1.05 * latency_ms(BY_LATENCY[1])}
    bench = bench_with(
        tmp_path, ledger, latency=lambda each: slower.get(each.candidate_id, latency_ms(each)), trusts=True
    )
    bench.script = lambda each: Script(
        look=slower.get(each.candidate_id, latency_ms(each)),
        num_right=340 if each is BY_LATENCY[0] else 330,
    )
    ledger.record(evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[0]), bench))
    ledger.record(evaluate(Proposal(trial=AUDITED_TRIAL, candidate=BY_LATENCY[1]), bench))
    first, second = (ledger.by_trial(trial) for trial in (TRIAL, AUDITED_TRIAL))
    assert first is not None and second is not None
    assert front_of((first, second), "maximize", "infer") == (first,)
    settled = settle_front(ledger.records(), "maximize", bench, ledger, tmp_path / "scratch", Silent())
    assert {finalist.record.trial for finalist in settled.finalists} == {TRIAL, AUDITED_TRIAL}


def test_an_unmeasured_network_counts_for_the_front_at_the_lower_end_of_its_prediction(
    tmp_path: Path, ledger: Ledger
) -> None:
    bench = bench_with(tmp_path, ledger, trusts=True)
    bench.script = lambda each: Script(look=latency_ms(each), num_right=300 if each is BY_LATENCY[0] else 340)
    unmeasured = evaluate(Proposal(trial=TRIAL, candidate=BY_LATENCY[0]), bench)
    measured = evaluate(Proposal(trial=AUDITED_TRIAL, candidate=BY_LATENCY[1]), bench)
    assert unmeasured.cost is not None and measured.cost is not None
    rival_ms = measured.cost.latencies[0][1].latency_ms
    for lower_ms, is_there in ((0.9 * rival_ms, True), (1.05 * rival_ms, False)):
        estimate = replace(
            unmeasured.cost.latencies[0][1], latency_ms=1.1 * rival_ms, lower_ms=lower_ms, upper_ms=1.2 * rival_ms
        )
        slower = replace(unmeasured, cost=replace(unmeasured.cost, latencies=(("infer", estimate),)))
        assert (slower in front_of((slower, measured), "maximize", "infer")) is is_there


def test_the_sampler_takes_a_trusted_latency_for_the_point_and_learns_no_cost_from_it(tmp_path: Path) -> None:
    config = configure(tmp_path / "study", trials=20, sampler="random", budgets=[str(budget) for budget in BUDGETS])
    with Ledger(config.storage_url) as ledger, open_optuna_study(config, "maximize") as study:
        bench = bench_with(config.results_dir, ledger, trusts=True)
        run_search(config, SPACE, study, ledger, bench, Silent())
        trusted = {
            record.trial: record
            for record in ledger.records()
            if record.outcome is Outcome.SCORED and record.cost is not None and not record.cost.is_measured
        }
        assert trusted
        cost = Cost(name="latency", maximum=BUDGETS[0].maximum, objective=1, constraint=str(BUDGETS[0]))
        trials = [trial for trial in study.get_trials() if trial.number in trusted]
        history = read_history(trials, SpaceSource(SPACE, seed=0), [cost], (), sign=1.0, rng=np.random.default_rng(0))
        assert not history.is_measured.any()
        assert not np.isnan(history.costs).any()
        assert all(excess <= 0 for trial in trials for excess in trial.constraints.values())
        assert bench.num_calls("compile") < 20


# Budgets on memory and model size


def memory_bytes(candidate: Candidate) -> int:
    return 2_000_000 + 3 * sum(layer.weight_bytes for layer in layers_of(candidate))


BY_MEMORY = sorted(CANDIDATES, key=memory_bytes)
MIDDLE = memory_bytes(BY_MEMORY[40])


def bench_of_memory(
    folder: Path,
    ledger: Ledger,
    *budgets: str,
    metric: Literal["model_bytes", "peak_memory_bytes"] = "peak_memory_bytes",
    factor: float = 1.0,
    trusts: bool = False,
    num_calibrated: int = 40,
) -> FakeWorkbench:
    """Latencies of everybody are within their budget; `factor` is how far the models are off in the other cost."""
    bench = bench_with(folder, ledger, trusts=trusts)
    bench.budgets = resolve_budgets(map(parse_budget, ("infer=1000ms", *budgets)), ["infer"])

    def script(candidate: Candidate) -> Script:
        amount = int(factor * memory_bytes(candidate))
        return Script(look=latency_ms(candidate), model_bytes=amount, peak_memory_bytes=amount)

    bench.script = script
    calibrated = [(each, float(memory_bytes(each))) for each in CANDIDATES[:num_calibrated]]
    assert bench.screener is not None
    bench.screener = Screener(
        list(bench.screener.models.values()), seed=0, ledger=ledger, trusts=trusts,
        amounts=[
            PhaseModel(encoder=ENCODER, phase="infer", ledger=ledger, calibrated=calibrated, target=metric)
        ],
    )  # fmt: skip
    return bench


@pytest.mark.parametrize(
    ("name", "metric"), [("memory", "peak_memory_bytes"), ("model", "model_bytes")]
)  # fmt: skip
def test_a_candidate_surely_over_a_budget_on_bytes_is_not_compiled_and_its_prediction_is_marked_as_one(
    tmp_path: Path, ledger: Ledger, name: str, metric: Literal["model_bytes", "peak_memory_bytes"]
) -> None:
    bench = bench_of_memory(tmp_path, ledger, f"{name}={MIDDLE}B", metric=metric)
    record = evaluate(Proposal(trial=TRIAL, candidate=BY_MEMORY[-1]), bench)
    assert record.outcome is Outcome.PREDICTED_OVER_BUDGET
    assert bench.calls == []
    assert record.cost is not None and record.error is not None
    assert f"{name}=" in record.error and record.error.endswith("allowed; not measured")
    assert (record.cost.model_bytes, record.cost.peak_memory_bytes) == (None, None)
    guess = record.cost.predicted(metric)
    assert guess is not None
    assert guess.lower > MIDDLE
    assert guess.value == pytest.approx(memory_bytes(BY_MEMORY[-1]), rel=0.1)
    assert not record.cost.is_measured
    assert TrialRecord.from_json(record.to_json()) == record
    taught = dict(predicted_violations(bench.budgets, record.cost))
    assert taught[str(bench.budgets[1])] > 0
    assert measured_amounts([record], metric) == []


def test_a_candidate_that_may_meet_a_memory_budget_is_measured(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_of_memory(tmp_path, ledger, f"memory={MIDDLE}B")
    assert evaluate(Proposal(trial=TRIAL, candidate=BY_MEMORY[5]), bench).outcome is Outcome.SCORED
    assert bench.num_calls("compile") == 1


def test_what_is_ruled_out_for_its_memory_is_audited_as_for_its_latency(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_of_memory(tmp_path, ledger, f"memory={MIDDLE}B", factor=0.01)
    ledger.record(evaluate(Proposal(trial=AUDITED_TRIAL, candidate=BY_MEMORY[-1]), bench))
    (event,) = ledger.events(AUDIT_EVENT)
    assert (event.detail["metric"], event.detail["answer"]) == ("peak_memory_bytes", "ruled_out")
    report = screening_report(ledger)
    assert (report.num_audited, report.num_wrong) == (1, 1)
    assert latency_audit(ledger, "infer") is None, "bytes are not compared with latencies"


def test_memory_measured_in_the_study_is_learned_from(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_of_memory(tmp_path, ledger, f"memory={MIDDLE}B", num_calibrated=0)
    for trial, candidate in enumerate(CANDIDATES[:LEAST_MEASURED]):
        assert bench.screen(TRIAL, BY_MEMORY[-1]).answer == "pass"
        ledger.record(evaluate(Proposal(trial=trial, candidate=candidate), bench))
    assert bench.screen(TRIAL, BY_MEMORY[-1]).answer == "ruled_out"


def test_a_memory_budget_that_is_surely_met_is_trusted_where_there_is_a_model(tmp_path: Path, ledger: Ledger) -> None:
    bench = bench_of_memory(tmp_path, ledger, f"memory={10 * MIDDLE}B", trusts=True)
    record = evaluate(Proposal(trial=TRIAL, candidate=BY_MEMORY[0]), bench)
    assert record.outcome is Outcome.SCORED
    assert [stage for stage, _ in bench.calls] == ["train"]
    assert record.cost is not None
    assert record.cost.peak_memory_bytes is None
    assert all(excess < 0 for _, excess in violations(bench.budgets, record.cost))


def test_near_a_memory_budget_and_without_a_model_of_another_budget_nothing_is_trusted(
    tmp_path: Path, ledger: Ledger
) -> None:
    far = bench_of_memory(tmp_path, ledger, f"memory={10 * MIDDLE}B", trusts=True)
    (guess,) = far.screen(TRIAL, BY_MEMORY[10]).amounts
    near = bench_of_memory(tmp_path, ledger, f"memory={round(guess.value)}B", trusts=True)
    assert near.screen(TRIAL, BY_MEMORY[10]).answer == "pass"
    other = bench_of_memory(tmp_path, ledger, f"memory={10 * MIDDLE}B", "model=1GB", trusts=True)
    assert other.screen(TRIAL, BY_MEMORY[0]).answer == "pass"


def test_a_trusted_network_whose_measured_memory_misses_is_not_published(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/study.db") as ledger:
        bench = bench_of_memory(tmp_path, ledger, f"memory={10 * MIDDLE}B", factor=50.0, trusts=True)
        ledger.record(evaluate(Proposal(trial=TRIAL, candidate=BY_MEMORY[0]), bench))
        settled = settle_front(ledger.records(), "maximize", bench, ledger, tmp_path / "scratch", Silent())
        assert settled.finalists == ()
        assert "misses: memory=" in settled.dropped[0].reason


def test_what_a_study_of_several_phases_keeps_is_of_no_one_phase_and_is_not_learned(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path / "cache"))
    bench = bench_of_memory(tmp_path, ledger, f"memory={MIDDLE}B", num_calibrated=0)
    for trial, candidate in enumerate(CANDIDATES[:LEAST_MEASURED]):
        ledger.record(evaluate(Proposal(trial=trial, candidate=candidate), bench))
    for phases, answer in ((("infer",), "ruled_out"), (("infer", "infer2"), "pass")):
        screener = open_screener(SPACE, phases, "abc", seed=0, ledger=ledger, watcher=Silent())
        assert screener.judge(TRIAL, BY_MEMORY[-1], bench.budgets).answer == answer


def test_a_search_screens_by_memory_and_its_sampler_learns_why(tmp_path: Path) -> None:
    budget = f"memory={memory_bytes(BY_MEMORY[20])}B"
    config = configure(tmp_path / "study", trials=25, sampler="random", budgets=["infer=1000ms", budget])
    with Ledger(config.storage_url) as ledger, open_optuna_study(config, "maximize") as study:
        bench = bench_of_memory(config.results_dir, ledger, budget)
        run_search(config, SPACE, study, ledger, bench, Silent())
        screened = [each for each in ledger.records() if each.outcome is Outcome.PREDICTED_OVER_BUDGET]
        assert len(screened) > 3
        trials = {trial.number: trial for trial in study.get_trials()}
        for record in screened:
            assert trials[record.trial].constraints[str(bench.budgets[1])] > 0
        for record in ledger.records():
            if record.outcome is Outcome.SCORED:
                assert record.cost is not None and record.cost.is_measured
