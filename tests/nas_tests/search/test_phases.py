"""Studies of networks with several phases: each is timed, each budget counts, and none stands in for another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from nas.budget import Budget, parse_budget
from nas.gates.budget import budget_verdict, violations
from nas.ledger import Ledger
from nas.phases import study_budgets
from nas.search.audit_run import latency_audit
from nas.search.loop import run_search
from nas.search.pipeline import Measured, Proposal, Stopped, check_budget, evaluate, measure_phases
from nas.search.progress import Silent
from nas.search.sampler import LATENCY_ATTRIBUTE, costs_of, make_sampler
from nas.search.screener import encoder_of, random_candidates
from nas.search.screening import AUDIT_EVENT, PhaseModel, Screener, is_audited
from nas.search.smoke_run import SmokeFailedError, run_smoke
from nas.search.study import open_optuna_study
from nas.search.testing import COMPILE_S, PROFILE_S, TRAIN_S, TUNE_S, FakeWorkbench, Rejected, Script
from nas.trial import CandidateCost, Outcome
from profilers.errors import ProfileFailure
from search_spaces import layers
from search_spaces.candidate import Candidate
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.layers import layers_of, num_macs
from search_spaces.space import Phase, replay
from tests.nas_tests.search.small_studies import (
    CLASSES,
    DECODE,
    IMAGE,
    PHASED,
    PREFILL,
    SHORT,
    Killer,
    configure,
    run,
)
from tests.nas_tests.trials import make_cost, make_estimate, make_record

TIMED = (DECODE, PREFILL)
BUDGETS = study_budgets([parse_budget(f"{DECODE}=8ms"), parse_budget(f"{PREFILL}=120ms")], PHASED)
CANDIDATE = replay(PHASED, PHASED.references()["reference"])
PROPOSAL = Proposal(trial=3, candidate=CANDIDATE)
BOTH_FAIL = Script(looks=((DECODE, 9.0), (PREFILL, 200.0)))


def looks(decode: Any, prefill: Any, **fields: Any) -> Script:
    return Script(looks=((DECODE, decode), (PREFILL, prefill)), **fields)


def bench_of(folder: Path, script: Script, budgets: tuple[Budget, ...] = BUDGETS) -> FakeWorkbench:
    return FakeWorkbench(folder=folder, script=lambda candidate: script, phases=TIMED, budgets=budgets)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(f"sqlite:///{tmp_path}/study.db") as opened:
        yield opened


# The pipeline


def test_a_candidate_within_every_budget_has_a_latency_in_each_phase_and_is_trained(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, looks(5.0, 90.0))
    record = evaluate(PROPOSAL, bench)
    assert record.outcome is Outcome.SCORED
    assert record.cost is not None
    assert [(phase, round(seen.latency_ms, 6)) for phase, seen in record.cost.latencies] == [
        (DECODE, 5.0),
        (PREFILL, 90.0),
    ]
    assert bench.phase_calls == [("compile", DECODE), ("measure", DECODE), ("compile", PREFILL), ("measure", PREFILL)]
    assert dict(record.seconds) == {
        "tune": 2 * TUNE_S, "compile": 2 * COMPILE_S, "profile": 2 * PROFILE_S, "train": TRAIN_S,
    }  # fmt: skip


def test_a_candidate_that_meets_one_budget_and_misses_the_other_is_over_budget(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, looks(5.0, 130.0))
    record = evaluate(PROPOSAL, bench)
    assert record.outcome is Outcome.OVER_BUDGET
    assert str(record.error).startswith(f"{PREFILL}=120ms: seen ")
    assert DECODE not in str(record.error), "the budget that is met is not in the reason"
    assert bench.num_calls("train") == 0


def test_in_doubt_about_one_phase_is_over_budget(tmp_path: Path) -> None:
    record = evaluate(PROPOSAL, bench_of(tmp_path, looks(5.0, 120.0)))
    assert record.outcome is Outcome.OVER_BUDGET
    assert "undecided" in str(record.error)


def test_when_the_first_phase_misses_the_others_are_neither_compiled_nor_measured(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, looks(9.0, 90.0))
    record = evaluate(PROPOSAL, bench)
    assert record.outcome is Outcome.OVER_BUDGET
    assert bench.phase_calls == [("compile", DECODE), ("measure", DECODE)]
    assert record.cost is not None
    assert record.cost.latency(DECODE) is not None, "which the sampler needs"
    assert record.cost.latency(PREFILL) is None
    assert dict(violations(BUDGETS, record.cost))[f"{DECODE}=8ms"] > 0


def test_a_phase_without_a_latency_is_never_within_its_budget(tmp_path: Path) -> None:
    measured = measure_phases(PROPOSAL, bench_of(tmp_path, looks(5.0, 90.0)), BUDGETS)
    assert isinstance(measured, Measured)
    lost = replace(measured, cost=replace(measured.cost, latencies=measured.cost.latencies[:1]))
    assert budget_verdict(BUDGETS, lost.cost) is None
    stopped = check_budget(lost, BUDGETS)
    assert isinstance(stopped, Stopped)
    assert (stopped.outcome, stopped.reason) == (
        Outcome.OVER_BUDGET,
        f"{PREFILL}=120ms: latency_ms was not measured",
    )
    with pytest.raises(ValueError, match="was never measured"):
        violations(BUDGETS, lost.cost)


@pytest.mark.parametrize(
    ("script", "outcome", "reason"),
    [
        (
            looks(5.0, 90.0, compile_failure="no rule", failing_phase=PREFILL),
            Outcome.COMPILE_FAILED,
            f"{PREFILL}: no rule",
        ),
        (
            looks(5.0, ProfileFailure(kind="outputs_differ", reason="0.3 off")),
            Outcome.PARITY_FAILED,
            f"{PREFILL}: outputs_differ: 0.3 off",
        ),
        (looks(5.0, Rejected(reason="busy")), Outcome.PROFILE_FAILED, f"{PREFILL}: rejected: busy"),
        (looks(Rejected(reason="busy"), 90.0), Outcome.PROFILE_FAILED, f"{DECODE}: rejected: busy"),
    ],
)
def test_a_failure_in_one_phase_is_the_candidates_and_names_the_phase(
    tmp_path: Path, script: Script, outcome: Outcome, reason: str
) -> None:
    bench = bench_of(tmp_path, script)
    record = evaluate(PROPOSAL, bench)
    assert (record.outcome, record.error, record.cost) == (outcome, reason, None)
    assert bench.num_calls("train") == 0
    num_compiled = bench.num_calls("compile")
    assert dict(record.seconds)["compile"] == num_compiled * COMPILE_S


def test_of_everything_but_the_latencies_the_worst_phase_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(layers.STATES, "classifier", lambda candidate, phase: {DECODE: 4096}[phase])
    bench = bench_of(tmp_path, looks(5.0, 90.0, tuned_coverages=((PREFILL, 0.91), (DECODE, 0.99))))
    record = evaluate(PROPOSAL, bench)
    assert record.cost is not None
    assert record.cost.tuned_coverage == 0.91
    assert record.cost.state_bytes == 4096, "of the primary phase"


def test_a_budget_on_the_state_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(layers.STATES, "classifier", lambda candidate, phase: 4096)
    for text, outcome in (("state=4KiB", Outcome.SCORED), ("state=4095B", Outcome.OVER_BUDGET)):
        budgets = study_budgets([parse_budget(text)], PHASED)
        assert evaluate(PROPOSAL, bench_of(tmp_path, Script(), budgets)).outcome is outcome
    assert evaluate(PROPOSAL, bench_of(tmp_path, Script(), budgets)).error == "state=4095B: seen 4KiB"


def test_a_cost_of_before_there_was_a_state_still_loads() -> None:
    old = {key: value for key, value in make_cost(2.0).to_json().items() if key != "state_bytes"}
    assert CandidateCost.from_json(old) == make_cost(2.0)


def test_the_smoke_gate_takes_the_reference_through_every_timed_phase(tmp_path: Path, ledger: Ledger) -> None:
    run_smoke(PHASED, bench_of(tmp_path, BOTH_FAIL, ()), ledger, Silent())
    with Ledger(f"sqlite:///{tmp_path}/other.db") as other:
        bench = bench_of(tmp_path, looks(9.0, 1.0, compile_failure="no rule", failing_phase=PREFILL), ())
        with pytest.raises(SmokeFailedError, match="prefill@512: no rule"):
            run_smoke(PHASED, bench, other, Silent())


# The search


def by_work(candidate: Candidate) -> Script:
    """Decode follows the work; prefill is slow for networks with attention, whatever their work."""
    has_attention = any(block.kind == "attention" for block in candidate.blocks)
    return looks(num_macs(candidate) / 1e5, 150.0 if has_attention else 60.0, num_right=300)


@pytest.mark.parametrize("sampler", ["budget", "random", "tpe", "nsga2", pytest.param("gp", marks=pytest.mark.slow)])
def test_a_search_under_two_budgets_trains_only_what_meets_both(tmp_path: Path, sampler: str) -> None:
    budgets = [f"{DECODE}=8ms", f"{PREFILL}=120ms"]
    config = configure(tmp_path / "study", trials=20, sampler=sampler, budgets=budgets)
    done = run(config, space=PHASED, script=by_work, phases=TIMED)
    outcomes = {record.outcome for record in done.records}
    assert {Outcome.SCORED, Outcome.OVER_BUDGET} <= outcomes
    for record, told in zip(done.records, done.study.get_trials(deepcopy=False), strict=True):
        assert record.cost is not None
        decode, prefill = (record.cost.latency(phase) for phase in TIMED)
        assert decode is not None
        is_within = decode.upper_ms <= 8 and prefill is not None and prefill.upper_ms <= 120
        assert (record.outcome is Outcome.SCORED) is is_within
        assert told.constraints[budgets[0]] == pytest.approx(decode.upper_ms / 8 - 1)
        assert (budgets[1] in told.constraints) is (prefill is not None)
        assert (max(told.constraints.values()) > 0) is not is_within
        assert (told.values or [None, told.user_attrs.get(LATENCY_ATTRIBUTE)])[1] == decode.latency_ms


def test_without_a_budget_the_reference_gives_one_for_the_primary_phase_alone(tmp_path: Path) -> None:
    config = configure(tmp_path / "study", trials=3, budgets=[])
    done = run(config, space=PHASED, script=lambda candidate: looks(2.0, 1e6), phases=(DECODE,))
    assert [(budget.phase, budget.maximum) for budget in done.budgets] == [(DECODE, pytest.approx(2.1))]
    assert {phase for _, phase in done.bench.phase_calls} == {DECODE}
    assert all(record.outcome is Outcome.SCORED for record in done.records), "prefill rules nothing out"


def test_a_search_killed_between_two_phases_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    budgets = [f"{DECODE}=8ms", f"{PREFILL}=120ms"]

    def search(folder: str, point: Callable[[str], None]) -> Any:
        config = configure(tmp_path / folder, trials=8, sampler="budget", budgets=budgets)
        return run(config, space=PHASED, script=by_work, phases=TIMED, point=point)

    whole = search("whole", lambda point: None)
    assert search("killed", Killer(2, "measure")).ended_because is None
    killed = search("killed", lambda point: None)
    assert killed.records == whole.records


# Samplers


class Fixed:
    """A forecaster that a test can tell from others."""


def test_every_budget_is_a_constraint_with_the_forecaster_of_its_own_phase() -> None:
    decode, prefill = Fixed(), Fixed()
    budgets = (*BUDGETS, Budget(metric="latency_ms", phase=SHORT, maximum=4.0), parse_budget("params=1M"))
    costs = costs_of(
        budgets,
        DECODE,
        {("latency_ms", DECODE): decode, ("latency_ms", PREFILL): prefill},  # type: ignore[dict-item]
    )
    assert [cost.constraint for cost in costs] == [f"{DECODE}=8ms", f"{PREFILL}=120ms", f"{SHORT}=4ms", "params=1M"]
    assert [cost.objective for cost in costs] == [1, None, None, None]
    assert [cost.forecaster for cost in costs[:3]] == [decode, prefill, None], "none stands in for another phase"
    assert costs[3].forecaster is not None


def test_the_state_is_counted_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(layers.STATES, "classifier", lambda candidate, phase: 4096)
    (_, cost) = costs_of((parse_budget("state=64KiB"),), DECODE, {})
    assert cost.forecaster is not None
    seen = cost.forecaster.forecast([CANDIDATE])
    assert seen is not None
    assert (seen.values.tolist(), seen.deviations.tolist()) == ([4096.0], [0.0])


def test_a_sampler_that_wants_the_same_constraints_of_every_trial_gets_the_typical_one_for_a_phase_left_out() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"])
    for number in range(14):
        study.sampler = make_sampler("gp", seed=0, trial=number, num_trials=14)
        trial = study.ask()
        x = trial.suggest_categorical("x", list(range(8)))
        trial.set_constraint("decode", (1 + x) / 6 - 1)
        if x < 5:
            trial.set_constraint("prefill", -0.5)
            study.tell(trial, [0.5 + 0.02 * x, 1.0 + x])
        else:
            trial.set_user_attr(LATENCY_ATTRIBUTE, 1.0 + x)
            study.tell(trial, state=TrialState.PRUNED)
    over = [trial for trial in study.trials if trial.state is TrialState.PRUNED]
    assert over and all(set(trial.constraints) == {"decode"} for trial in over), "nothing made up is kept"


# Screening


class PhasedLarge(ConvAttentionSpace):
    """The vision space with two entry points."""

    def phases(self, candidate: Candidate) -> tuple[Phase, ...]:
        """As a language space has them."""
        (infer,) = super().phases(candidate)
        return tuple(Phase(name=name, inputs=infer.inputs) for name in TIMED)


LARGE = PhasedLarge(IMAGE, CLASSES)
POOL = random_candidates(LARGE, 60, seed=1)


def decode_ms(candidate: Candidate) -> float:
    return 0.2 + num_macs(candidate) / 2e6


def prefill_ms(candidate: Candidate) -> float:
    """By the number of kernels: another order than that of decoding."""
    return 20.0 + 10.0 * len(layers_of(candidate))


def screener_of(ledger: Ledger, calibrated: dict[str, Callable[[Candidate], float]]) -> Screener:
    models = [
        PhaseModel(
            encoder=encoder_of(LARGE, phase), phase=phase, ledger=ledger,
            calibrated=[(each, calibrated[phase](each)) for each in POOL] if phase in calibrated else (),
        )
        for phase in TIMED
    ]  # fmt: skip
    return Screener(models, seed=0, ledger=ledger)


BY_PREFILL = sorted(POOL, key=prefill_ms)
WIDE_DECODE_MS, TIGHT_PREFILL_MS = 2 * max(map(decode_ms, POOL)), prefill_ms(BY_PREFILL[20])
NOT_AUDITED = next(trial for trial in range(100) if not is_audited(0, trial))
AUDITED = next(trial for trial in range(100) if is_audited(0, trial))


def budgets_at(decode: float, prefill: float) -> tuple[Budget, ...]:
    return study_budgets([parse_budget(f"{DECODE}={decode:.6f}ms"), parse_budget(f"{PREFILL}={prefill:.6f}ms")], LARGE)


def test_a_candidate_that_is_surely_over_one_budget_is_ruled_out_whatever_the_other_phase_says(
    tmp_path: Path, ledger: Ledger
) -> None:
    deep = BY_PREFILL[-1]
    bench = FakeWorkbench(folder=tmp_path, ledger=ledger, phases=TIMED)
    bench.budgets = budgets_at(WIDE_DECODE_MS, TIGHT_PREFILL_MS)
    bench.screener = screener_of(ledger, {DECODE: decode_ms, PREFILL: prefill_ms})
    screened = bench.screen(NOT_AUDITED, deep)
    assert screened.budget is not None
    assert (screened.answer, screened.budget.phase) == ("ruled_out", PREFILL)
    record = evaluate(Proposal(trial=NOT_AUDITED, candidate=deep), bench)
    assert record.outcome is Outcome.PREDICTED_OVER_BUDGET
    assert f"{PREFILL}=" in str(record.error)
    assert bench.calls == []
    assert record.cost is not None
    assert [(phase, seen.source) for phase, seen in record.cost.latencies] == [
        (DECODE, "predicted"), (PREFILL, "predicted"),
    ]  # fmt: skip


def test_a_phase_that_was_never_measured_rules_nothing_out_and_the_other_still_does(ledger: Ledger) -> None:
    screener = screener_of(ledger, {PREFILL: prefill_ms})
    budgets = budgets_at(1e-3, TIGHT_PREFILL_MS)
    assert screener.judge(NOT_AUDITED, BY_PREFILL[-1], budgets).answer == "ruled_out"
    assert screener.judge(NOT_AUDITED, BY_PREFILL[0], budgets).answer == "pass"
    assert screener_of(ledger, {}).judge(NOT_AUDITED, BY_PREFILL[-1], budgets).answer == "unknown"


def test_a_search_with_a_model_of_the_second_phase_alone_tells_what_it_knows(tmp_path: Path) -> None:
    budgets = budgets_at(1e6, TIGHT_PREFILL_MS)
    config = configure(tmp_path / "s", trials=16, sampler="random", budgets=[str(budget) for budget in budgets])
    with Ledger(config.storage_url) as ledger, open_optuna_study(config, "maximize") as study:
        bench = FakeWorkbench(
            folder=config.results_dir, ledger=ledger, phases=TIMED, budgets=budgets,
            script=lambda each: looks(decode_ms(each), prefill_ms(each)),
        )  # fmt: skip
        bench.screener = screener_of(ledger, {PREFILL: prefill_ms})
        run_search(config, LARGE, study, ledger, bench, Silent())
        predicted = {r.trial for r in ledger.records() if r.outcome is Outcome.PREDICTED_OVER_BUDGET}
        assert predicted
        for trial in study.get_trials():
            if trial.number in predicted:
                assert trial.constraints[str(budgets[1])] > 0


def test_predicted_and_measured_order_are_compared_within_one_phase(ledger: Ledger) -> None:
    for number in range(6):
        cost = replace(
            make_cost(10.0),
            latencies=((DECODE, make_estimate(10.0 - number)), (PREFILL, make_estimate(100.0 + number))),
        )
        ledger.record(replace(make_record(number), cost=cost))
        phase = PREFILL if number % 2 else DECODE
        predicted = 100.0 + number if number % 2 else 10.0 - number
        ledger.add_event(AUDIT_EVENT, {"trial": number, "phase": phase, "predicted_ms": predicted, "probability": 0.0})
    for phase in TIMED:
        audit = latency_audit(ledger, phase, DECODE)
        assert audit is not None
        assert len(audit.candidates) == 3
        assert audit.tau == pytest.approx(1.0)
    assert latency_audit(ledger, SHORT, DECODE) is None


def test_an_audit_names_the_phase_it_is_of(tmp_path: Path, ledger: Ledger) -> None:
    screener = screener_of(ledger, {DECODE: decode_ms, PREFILL: prefill_ms})
    assert screener.judge(AUDITED, BY_PREFILL[-1], budgets_at(WIDE_DECODE_MS, TIGHT_PREFILL_MS)).answer == "audited"
    (event,) = ledger.events(AUDIT_EVENT)
    assert event.detail["phase"] == PREFILL
