"""What a study of thousands of finished trials costs: to go on with, to propose for, and to report."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from nas.bench.result import BenchResult
from nas.budget import parse_budget, resolve_budgets
from nas.config import StudyConfig, load_config
from nas.ledger import Ledger
from nas.report.summary import StudySummary
from nas.report.write import write_report
from nas.search.loop import tell
from nas.search.pipeline import Proposal, evaluate
from nas.search.sampler import OptunaSuggest, Samplers
from nas.search.study import open_ledger, open_optuna_study
from nas.search.testing import FakeWorkbench
from nas.trial import TrialRecord
from search_spaces.candidate import BlockSpec
from search_spaces.conv_attention import ConvAttentionSpace

BUDGET = "infer=12ms"


def bench_study_scale(folder: Path, num_trials: int, *, is_quick: bool, report: Callable[[str], None]) -> BenchResult:
    """Makes a study of random candidates with made-up results, and times what a search does with it.

    Args:
        folder: an empty one, for the study.
        num_trials: finished trials.
        is_quick: whether this was asked for as a coarse run.
        report: is told what goes on.
    """
    space = ConvAttentionSpace(
        BlockSpec.of("image", channels=1, height=8, width=8), BlockSpec.of("classifier", classes=10)
    )
    config = load_config(overrides={"output.out": folder, "search.trials": num_trials + 5, "search.budgets": [BUDGET]})
    folder.mkdir(parents=True, exist_ok=True)
    fill_s = _timed(lambda: _fill(config, space, num_trials, report))
    budgets = resolve_budgets([parse_budget(BUDGET)], ("infer",))
    proposals_s: list[float] = []
    proposals_cpu_s: list[float] = []
    started = time.perf_counter()
    with open_ledger(config) as ledger, open_optuna_study(config, "maximize") as study:
        study.get_trials(deepcopy=False)
        ledger.num_tried()
        resume_s = time.perf_counter() - started
        report(f"resumed in {resume_s:.2f} s")
        samplers = Samplers(
            name="budget", seed=0, num_trials=num_trials + 5, space=space, budgets=budgets, phase="infer"
        )
        for _ in range(3):
            started, started_cpu = time.perf_counter(), time.process_time()
            study.sampler = samplers.of(num_trials)
            trial = study.ask()
            candidate = space.sample(OptunaSuggest(trial))
            proposals_s.append(time.perf_counter() - started)
            proposals_cpu_s.append(time.process_time() - started_cpu)
            report(f"proposed in {proposals_s[-1]:.2f} s, {proposals_cpu_s[-1]:.2f} s of them computing")
            bench = FakeWorkbench(folder=folder, ledger=None)
            bench.budgets = budgets
            record = evaluate(Proposal(trial=trial.number, candidate=candidate), bench)
            ledger.record(record)
            tell(study, trial, record, budgets, "infer")
        records = ledger.records()
    report_s = _timed(lambda: _report(config, folder, records))
    figures = {
        "num_trials": float(num_trials),
        "fill_s": fill_s,
        "resume_s": resume_s,
        "first_proposal_s": proposals_s[0],
        "next_proposal_s": max(proposals_s[1:]),
        "first_proposal_cpu_s": proposals_cpu_s[0],  # of a busy machine the one figure that can be compared
        "next_proposal_cpu_s": max(proposals_cpu_s[1:]),
        "report_s": report_s,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    return BenchResult(bench="study-scale", device=None, figures=figures, rows=[dict(figures)], is_quick=is_quick)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _fill(config: StudyConfig, space: ConvAttentionSpace, num_trials: int, report: Callable[[str], None]) -> None:
    """Trials as a search leaves them, written in bulk: one by one it would take longer than all that is timed."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    budgets = resolve_budgets([parse_budget(BUDGET)], ("infer",))
    memory = optuna.create_study(directions=["maximize", "minimize"], sampler=optuna.samplers.RandomSampler(seed=0))
    bench = FakeWorkbench(folder=config.results_dir, ledger=None)
    bench.budgets = budgets
    records: list[TrialRecord] = []
    for number in range(num_trials):
        trial = memory.ask()
        candidate = space.sample(OptunaSuggest(trial))
        record = evaluate(Proposal(trial=number, candidate=candidate), bench)
        records.append(replace(record, trial=number))
        tell(memory, trial, record, budgets, "infer")
    report(f"{num_trials} trials made up")
    with open_ledger(config) as ledger, open_optuna_study(config, "maximize") as study:
        _record_all(ledger, records)
        study.add_trials(memory.get_trials(deepcopy=False))
    report("written")


def _record_all(ledger: Ledger, records: list[TrialRecord]) -> None:
    for record in records:
        ledger.record(record)


def _report(config: StudyConfig, folder: Path, records: tuple[TrialRecord, ...]) -> None:
    from profilers.testing import FAKE_DEVICE

    now = datetime.now(UTC)
    write_report(
        StudySummary(
            study=folder.name,
            out=folder,
            config=config,
            device=FAKE_DEVICE,
            phase="infer",
            budgets=resolve_budgets([parse_budget(BUDGET)], ("infer",)),
            score_metric="accuracy",
            score_direction="maximize",
            records=records,
            front=(),
            gates={},
            seconds_total=0.0,
            versions=(),
            seeds=(),
            command="nas bench study-scale",
            started_at=now,
            ended_at=now,
        )
    )
