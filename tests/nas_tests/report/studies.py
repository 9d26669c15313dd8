"""Made-up studies that look like real ones: what the search with default settings might have found."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from nas.budget import parse_budget, resolve_budgets
from nas.config import StudyConfig, load_config
from nas.front import non_dominated
from nas.gates.result import GateResult
from nas.report.summary import DroppedWinner, FrontMember, PhaseLatency, StudySummary, ZooNetwork
from nas.training.baselines import Baseline
from nas.trial import CandidateCost, Outcome, TrialRecord
from profilers.device import DeviceSpec
from tests.nas_tests.trials import make_candidate, make_cost, make_estimate, make_record, make_score

STARTED = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
KINDS = ("inverted_residual", "inverted_residual", "convnext", "convnext", "attention")


def make_device() -> DeviceSpec:
    """A laptop-like device."""
    return DeviceSpec(
        id="local",
        target="llvm -mcpu=skylake-avx512 -num-cores 1",
        cores=(1,),
        num_threads=1,
        runtimes=(("onnxruntime", "1.23.0"), ("tvm", "0.27.0.post1")),
        facts=(("governor", "unknown"), ("kernel", "6.1.0"), ("processor", "Intel(R) Xeon(R) @ 2.20GHz")),
    )


def make_records(seed: int = 0, num_trials: int = 24, budget_ms: float = 5.0) -> tuple[TrialRecord, ...]:
    """Trials of all kinds: bigger networks are better and slower, with noise in both."""
    generator = random.Random(seed)
    records = []
    for trial in range(num_trials):
        latency_ms = round(generator.lognormvariate(1.3, 0.6), 3)
        outcome = Outcome.SCORED
        if latency_ms * 1.02 > budget_ms:
            outcome = generator.choice([Outcome.OVER_BUDGET, Outcome.OVER_BUDGET, Outcome.PREDICTED_OVER_BUDGET])
        elif generator.random() < 0.2:
            outcome = generator.choice(
                [Outcome.COMPILE_FAILED, Outcome.DIVERGED, Outcome.PROFILE_FAILED, Outcome.TRAIN_FAILED]
            )
        quality = 0.985 - 0.16 * 2.2 ** (-latency_ms) + generator.gauss(0, 0.012)
        record = make_record(trial, outcome, latency_ms, round(360 * min(quality, 1.0)))
        kinds = [generator.choice(KINDS) for _ in range(generator.randint(2, 5))]
        seconds = [("tune", 40.0 / (1 + trial)), ("compile", 3.25)]
        seconds += [("profile", 4.0)] if record.cost is not None and outcome.kind != "screening" else []
        seconds += [("train", 9.5)] if outcome is Outcome.SCORED else []
        record = replace(record, candidate=make_candidate(16 + trial, *kinds), seconds=tuple(seconds))
        records.append(record)
    return tuple(records)


def make_front(records: tuple[TrialRecord, ...]) -> tuple[FrontMember, ...]:
    """The non-dominated scored trials, measured again and tested."""
    scored = [r for r in records if r.score is not None and r.cost is not None and r.duplicate_of is None]
    values = [[r.cost.latencies[0][1].latency_ms, r.score.value] for r in scored if r.cost and r.score]
    mask = non_dominated(np.array(values).reshape(len(scored), 2), ["minimize", "maximize"])
    members = []
    for record in (r for r, chosen in zip(scored, mask, strict=True) if chosen):
        assert record.cost is not None
        assert record.score is not None
        latency_ms = record.cost.latencies[0][1].latency_ms
        members.append(
            FrontMember(
                record=record,
                latency=make_estimate(round(latency_ms * 1.004, 4), spread=0.011),
                onnxruntime=make_estimate(round(latency_ms * 0.61, 4), spread=0.014),
                test_score=make_score(round(record.score.value * 357), 360, split="test"),
            )
        )
    return tuple(sorted(members, key=lambda member: member.latency.latency_ms))


def make_summary(out: Path = Path("results/conv_attention-digits"), config: StudyConfig | None = None) -> StudySummary:
    """A study that ended well."""
    records = make_records()
    front = make_front(records)
    reference = front[len(front) // 2].record.trial
    return StudySummary(
        study="conv_attention-digits",
        out=out,
        config=config or load_config(overrides={"search.budgets": ["5ms"], "search.trials": len(records)}),
        device=make_device(),
        phase="infer",
        budgets=resolve_budgets([parse_budget("5ms")], ["infer"]),
        score_metric="accuracy",
        score_direction="maximize",
        records=records,
        references=(("reference", reference),),
        baselines=(
            Baseline(name="question only", split="val", value=0.664),
            Baseline(name="question only", split="test", value=0.67),
        ),
        front=front,
        dropped=(
            DroppedWinner(
                candidate_id="0badc0ffee12",
                trial=5,
                reason="measured again at 5.11 ms [5.03, 5.20], budget 5 ms",
            ),
        ),
        gates={
            "parity": GateResult(
                passed=True,
                reason="every measured artifact matches PyTorch",
                figures=(("largest_difference", 2.4e-06), ("tolerance", 1e-4)),
            ),
            "smoke": GateResult(passed=True, reason="a reference network compiles, runs and learns"),
            "publish": GateResult(
                passed=True,
                reason="every member meets the budget when measured again",
                figures=(("members", len(front)), ("dropped", 1)),
            ),
        },
        seconds_total=529.4,
        kernel_reuse=0.83,
        versions=(("nas", "0.1.0"), ("optuna", "5.0.0"), ("python", "3.11.2"), ("torch", "2.13.0"), ("tvm", "0.27.0")),
        seeds=(("search", 0), ("split", 0), ("training", 0)),
        command="nas search study.toml --budget 5ms",
        started_at=STARTED,
        ended_at=STARTED + timedelta(seconds=530),
    )


def make_phased_summary() -> StudySummary:
    """A study with budgets on two phases and plain looks at two more, beside two networks of the zoo."""
    summary = make_summary()
    records = tuple(replace(record, cost=record.cost and _phased_cost(record.cost)) for record in summary.records)
    by_trial = {record.trial: record for record in records}
    front = tuple(
        replace(
            member,
            record=by_trial[member.record.trial],
            other_phases=(
                PhaseLatency(
                    phase="prefill@512", latency=make_estimate(member.latency.latency_ms * 16),
                    onnxruntime=make_estimate(member.latency.latency_ms * 14), tuned_coverage=0.96,
                ),
                PhaseLatency(
                    phase="decode@256", latency=make_estimate(member.latency.latency_ms * 0.8), is_plain_look=True
                ),
                PhaseLatency(
                    phase="prefill@256", latency=make_estimate(member.latency.latency_ms * 7), is_plain_look=True
                ),
            ),
        )
        for member in summary.front
    )  # fmt: skip
    zoo = (
        ZooNetwork(
            name="attention_only", candidate_id="0123456789ab", cost=_phased_cost(make_cost(4.0)),
            val_score=make_score(301),
        ),
        ZooNetwork(name="largest", candidate_id="ba9876543210", cost=None, failure="compile_failed: no memory"),
    )  # fmt: skip
    phases = ["decode@512", "prefill@512", "decode@256", "prefill@256"]
    budgets = resolve_budgets([parse_budget("prefill@512=120ms"), parse_budget("5ms")], phases)
    return replace(summary, phase="decode@512", budgets=budgets, records=records, front=front, zoo=zoo)


def _phased_cost(cost: CandidateCost) -> CandidateCost:
    ((_, seen),) = cost.latencies
    is_predicted = seen.source == "predicted"
    prefill = make_estimate(seen.latency_ms * 16, predicted=is_predicted)
    return replace(cost, latencies=(("decode@512", seen), ("prefill@512", prefill)), state_bytes=1 << 16)


def make_blocked_summary() -> StudySummary:
    """A study in which nothing met the budget."""
    summary = make_summary()
    records = tuple(make_record(trial, Outcome.OVER_BUDGET, 0.9 + trial * 0.4) for trial in range(6))
    return replace(
        summary,
        budgets=resolve_budgets([parse_budget("500us"), parse_budget("memory=64MiB")], ["infer"]),
        records=records,
        references=(),
        front=(),
        dropped=(),
        infeasible=records[:3],
        gates={"publish": GateResult(passed=False, reason="no network met the budget")},
    )


def make_hostile_summary() -> StudySummary:
    """A study whose every text would break a page that does not escape."""
    attack = "<script>alert('x')</script>&\"'$_{$"
    summary = make_summary()
    broken = replace(make_record(24, Outcome.COMPILE_FAILED), error=attack)
    front = (replace(summary.front[0], notes=(attack,)), *summary.front[1:])
    return replace(
        summary,
        study=attack,
        out=Path(attack),
        records=(*summary.records, broken),
        references=((attack, front[0].record.trial),),
        front=front,
        baselines=(Baseline(name=attack, split="val", value=0.5),),
        budget_note=attack,
        dropped=(DroppedWinner(candidate_id=attack, trial=1, reason=attack),),
        infeasible=(broken, make_record(25, Outcome.OVER_BUDGET)),
        gates={attack: GateResult(passed=False, reason=attack, figures=((attack, attack),))},
        device=replace(summary.device, id=attack, target=attack, facts=((attack, attack),)),
        versions=((attack, attack),),
        seeds=((attack, 1),),
        command=attack,
        score_metric=attack,
        config=load_config(overrides={"output.out": attack}),
    )
