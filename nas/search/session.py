"""One run of `nas search` from configuration to report."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from nas.budget import Budget
from nas.config import StudyConfig
from nas.ledger import Ledger, LedgerError
from nas.phases import phase_names, study_budgets, timed_phases
from nas.report.summary import StudySummary
from nas.report.write import write_report
from nas.search.audit_run import AuditPlan, run_audit
from nas.search.controls_run import run_controls
from nas.search.fellow_workers import FellowWorkers
from nas.search.finalists import (
    front_members,
    least_violating,
    settle_front,
    test_scores,
)
from nas.search.front_notes import annotate, reference_score, train_other_seeds, without_bad_slices, without_unlearned
from nas.search.gate_results import collect_gates, failed_trials
from nas.search.gate_seconds import gate_seconds, timed_gate
from nas.search.importance import explained
from nas.search.ladder import Ladder
from nas.search.loop import enqueued_references, run_search, settle_budgets
from nas.search.path_run import EVENT as PATH_EVENT
from nas.search.path_run import settle_path
from nas.search.patience import PatientLedger
from nas.search.plain_looks import look_at_other_phases
from nas.search.progress import Watcher
from nas.search.screener import open_screener
from nas.search.screening_report import screening_report
from nas.search.smoke_run import run_smoke
from nas.search.study import (
    MANIFEST_NAME,
    command_line,
    open_folder,
    open_ledger,
    open_optuna_study,
    versions,
    write_manifest,
)
from nas.search.study_lock import StudyError
from nas.search.warm_start import take_over
from nas.search.winners import keep_winners
from nas.search.workbench import LocalWorkbench
from nas.search.zoo import measure_zoo, zoo_of, zoo_seconds
from nas.training.audit import audit_splits
from nas.training.baselines import baseline_of, baselines_beside, constant_score
from nas.training.data.sources import load_task, require_kind
from profilers.device import DeviceSpec
from search_spaces.registry import make_space, task_kind_of
from search_spaces.space import SearchSpace, replay

SCRATCH_PREFIX = ".finalists-"
"""Of the folder in the results folder where winners are exported to before they are kept."""


MakeBench = Callable[[StudyConfig, Path, Ledger, tuple[str, ...], Watcher], LocalWorkbench]
"""What makes the tools of a study; `LocalWorkbench` does, and stand-ins with its methods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """What a run of a study came to."""

    summary: StudySummary
    report: Path
    ended_because: str


def run_study(
    config: StudyConfig,
    *,
    fresh: bool,
    accept_failures: str | None,
    watcher: Watcher,
    audit: AuditPlan | None = None,
    make_bench: MakeBench | None = None,
    explain: bool = False,
) -> StudyResult:
    """Runs or resumes a study, settles its front, and writes its results folder.

    Args:
        config: what to run.
        fresh: move an earlier study of the same folder aside.
        accept_failures: why failures of the infrastructure may be published with.
        watcher: who is told.
        audit: train a sample of candidates longer at the end; None leaves what an earlier audit said.
        make_bench: None makes the real tools of this machine.
        explain: put into the report which choices mattered.

    Raises:
        NasError, TaskError, CandidateError, ProfilerError: something the user can mend, one line.
    """
    started_at, started = datetime.now(UTC), time.monotonic()
    if (kind := task_kind_of(config.search.space)) is not None:
        require_kind(config.task, kind, config.search.space)
    task = load_task(config.task)
    if config.training.recipe == "grpo":
        # Imported here: it brings torch, which otherwise only workers need.
        from nas.training.kinds import require_checkable

        require_checkable(task)
    space = make_space(config.search.space, task.input, task.head)
    phases = phase_names(space)
    timed = timed_phases(phases, study_budgets(config.search.parsed_budgets, space))
    with open_folder(config, fresh=fresh) as folder, open_ledger(config) as ledger:
        if isinstance(ledger, PatientLedger):
            ledger.on_wait = watcher.note
        bench = (make_bench or LocalWorkbench)(config, folder, ledger, timed, watcher)
        try:
            _claim_device(ledger, bench.device, folder)
            with timed_gate("data", ledger):
                findings = audit_splits(task)
            extra = {"data_findings": [str(finding) for finding in findings], "started_at": started_at.isoformat()}
            if not (folder / MANIFEST_NAME).exists():  # that of a finished run stays until this one has finished
                write_manifest(folder, config, task, bench.device, extra)
            _announce(config, folder, bench.device, ledger, watcher)
            take_over(config, space, task, ledger, watcher)
            run_smoke(space, bench, ledger, watcher)
            bench.recipe = settle_path(config.training, space, bench, ledger, watcher)
            bench.ladder = Ladder.of(bench.recipe)
            bench.budgets, note = settle_budgets(config, space, ledger, bench, watcher)
            if config.search.screen:
                bench.screener = open_screener(
                    space,
                    timed,
                    bench.device.fingerprint,
                    seed=config.search.seed,
                    ledger=ledger,
                    watcher=watcher,
                    trusts=config.search.measure == "unsure",
                    kernel_seconds=bench.kernel_seconds,
                )
            with open_optuna_study(config, task.direction) as study:
                ended_because = run_search(config, space, study, ledger, bench, watcher)
                importances = explained(study, config.search.seed, watcher) if explain else ()
                FellowWorkers.of(config, study, ledger, watcher).fetch_weights(bench.weights_folder)
            screening = screening_report(ledger)
            if not screening.is_empty:
                watcher.note(str(screening))
            _remove_scratch(folder)
            with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=folder) as scratch:
                Path(scratch).chmod(0o755)
                eligible, ruled_out = without_bad_slices(ledger.records(), config.search.min_slice, task.direction)
                eligible, unlearned = without_unlearned(eligible, constant_score(task), task.direction)
                ruled_out = (*ruled_out, *unlearned)
                settled = settle_front(eligible, task.direction, bench, ledger, Path(scratch), watcher)
                settled = replace(
                    settled,
                    finalists=look_at_other_phases(settled.finalists, phases, bench, ledger, watcher),
                )
                seed_scores = train_other_seeds(
                    settled.finalists, config.search.finalist_seeds, bench.recipe, config.search.seed, bench, ledger,
                    watcher,
                )  # fmt: skip
                scores = test_scores(settled.finalists, bench, ledger)
                keep_winners(settled.finalists, task, folder)
                run_controls(settled.finalists, bench, ledger, task.direction, watcher)
            if audit is not None:
                run_audit(
                    audit, ledger.records(), task.direction, bench.recipe, config.search.seed, bench, ledger, watcher
                )
            if config.search.zoo:
                measure_zoo(space, bench, ledger, watcher)
            if accept_failures is not None:
                ledger.add_event("failures_accepted", {"reason": accept_failures, "trials": failed_trials(ledger)})
            _note_run(ledger, bench, time.monotonic() - started)
            references = _references(space, ledger)
            members = annotate(
                front_members(settled.finalists, scores), seed_scores, reference_score(ledger.records(), references),
                task.direction, baseline_of(task),
            )  # fmt: skip
            summary = StudySummary(
                study=folder.name,
                out=folder,
                config=config,
                device=bench.device,
                phase=phases[0],
                budgets=bench.budgets,
                budget_note=note,
                score_metric=task.metric,
                score_direction=task.direction,
                records=ledger.records(),
                references=references,
                zoo=zoo_of(space, timed, ledger),
                front=members,
                dropped=(*settled.dropped, *ruled_out),
                infeasible=() if members else least_violating(ledger.records(), bench.budgets),
                baselines=baselines_beside(task, [member.test_score for member in members]),
                gates=collect_gates(settled, members, findings, task, bench, ledger),
                seconds_total=sum(event.detail["seconds"] for event in ledger.events("run_ended")),
                seconds_outside_trials=_seconds_outside_trials(ledger),
                kernel_reuse=_kernel_reuse(ledger),
                versions=versions(),
                seeds=(("search", config.search.seed), ("training", config.search.seed), ("split", config.task.seed)),
                command=command_line(),
                importances=tuple((each.choice, each.quality, each.latency) for each in importances),
                started_at=started_at,
                ended_at=datetime.now(UTC),
            )
            report = write_report(summary)
            write_manifest(
                folder,
                config,
                task,
                bench.device,
                extra | _closing(summary, bench.budgets, ledger, ended_because) | {"screening": asdict(screening)},
            )
        except BaseException:  # Ctrl-C included: the time was spent all the same
            with contextlib.suppress(LedgerError):
                _note_run(ledger, bench, time.monotonic() - started)
            raise
        finally:
            bench.close()
    return StudyResult(summary=summary, report=report, ended_because=ended_because)


def _announce(config: StudyConfig, folder: Path, device: DeviceSpec, ledger: Ledger, watcher: Watcher) -> None:
    """Says what begins, so that nobody waits minutes for the first trial to learn it."""
    done = len(ledger.records())
    budgets = ", ".join(config.search.budgets) or "from the reference network"
    threads = f"{device.num_threads} thread{'s' if device.num_threads > 1 else ''}"
    watcher.note(
        f"{config.search.space} on {config.task.name}, device {device.id} ({threads}), budget {budgets},"
        f" {config.search.trials} trials, results in {folder}" + (f"; going on, {done} trials are done" if done else "")
    )


def _note_run(ledger: Ledger, bench: LocalWorkbench, seconds: float) -> None:
    """Remembers what a run took, however it ended; a run that is killed outright is not counted."""
    detail = {"seconds": seconds, "kernels": bench.num_kernels, "known_kernels": bench.num_known_kernels}
    ledger.add_event("run_ended", detail)


def _seconds_outside_trials(ledger: Ledger) -> tuple[tuple[str, float], ...]:
    reference = (
        (stage, seconds)
        for event in ledger.events("default_budget")
        for stage, seconds in event.detail.get("seconds", ())
    )
    return (*reference, *zoo_seconds(ledger), *(("gates", seconds) for seconds in gate_seconds(ledger).values()))


def _remove_scratch(folder: Path) -> None:
    """What a run left that was killed while it measured winners."""
    for left in folder.glob(f"{SCRATCH_PREFIX}*"):
        shutil.rmtree(left)


def _claim_device(ledger: Ledger, device: DeviceSpec, folder: Path) -> None:
    """A study's latencies are all of one device: another fingerprint is refused."""
    known = ledger.events("device")
    facts = {
        "target": device.target,
        "num_threads": str(device.num_threads),
        "cores": str(list(device.cores)),
        **dict(device.runtimes),
        **dict(device.facts),
    }
    if not known:
        ledger.add_event("device", {"fingerprint": device.fingerprint, "facts": facts})
        return
    stored = known[0].detail
    if stored["fingerprint"] != device.fingerprint:
        changed = [
            f"{name}: {stored['facts'].get(name)} then, {facts.get(name)} now"
            for name in sorted({*stored["facts"], *facts})
            if stored["facts"].get(name) != facts.get(name)
        ]
        raise StudyError(
            f"results folder {folder} was measured on another device or with other runtimes: {'; '.join(changed)}."
            " Its latencies mean nothing here; use --out for another folder, or --fresh to start anew"
        )


def _references(space: SearchSpace, ledger: Ledger) -> tuple[tuple[str, int], ...]:
    ids = {replay(space, choices).candidate_id: name for name, choices in enqueued_references(space)}
    first: dict[str, int] = {}
    for record in ledger.records():
        name = ids.get(record.candidate.candidate_id)
        if name is not None and name not in first:
            first[name] = record.trial
    return tuple(first.items())


def _kernel_reuse(ledger: Ledger) -> float | None:
    """Share of the kernels of all compilations that the tuning database already had, over all runs."""
    runs = [event.detail for event in ledger.events("run_ended")]
    needed = sum(run.get("kernels", 0) for run in runs)
    return sum(run.get("known_kernels", 0) for run in runs) / needed if needed else None


def _closing(
    summary: StudySummary, budgets: tuple[Budget, ...], ledger: Ledger, ended_because: str
) -> dict[str, object]:
    opened = ledger.events("test_opened")
    return {
        "budgets": [str(budget) for budget in budgets],
        "budget_note": summary.budget_note,
        "ended_at": summary.ended_at.isoformat(),
        "ended_because": ended_because,
        "published": summary.blocked_because is None,
        "blocked_because": summary.blocked_because,
        "test_opened_at": opened[0].at if opened else None,
        "fast_path": next((dict(event.detail) for event in ledger.events(PATH_EVENT)), None),
        "failures_accepted": [event.detail["reason"] for event in ledger.events("failures_accepted")],
        "seeds": dict(summary.seeds),
        "front": [member.candidate_id for member in summary.front],
    }
