"""The search: ask the sampler, evaluate, write the ledger, tell the sampler; from any instant again."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nas.budget import Budget, resolve_budgets
from nas.config import StudyConfig
from nas.errors import NasError
from nas.gates.budget import predicted_violations, violations
from nas.ledger import Ledger
from nas.search.pipeline import Proposal, Stopped, Workbench, compile_candidate, evaluate, measure_latency
from nas.search.progress import Watcher
from nas.search.sampler import OptunaSuggest, decided_sampler, make_sampler
from nas.trial import Outcome, TrialRecord
from profilers.measurement import LatencyEstimate
from search_spaces.space import Choices, SearchSpace, replay

if TYPE_CHECKING:
    import optuna
    from optuna.samplers import BaseSampler

ENQUEUED_REFERENCES = ("reference", "convolution_only", "attention_heavy")
"""Tried first, so that any search is compared with them; the first sets a default budget."""

DEFAULT_BUDGET_HEADROOM = 0.05
"""A default budget is the reference's latency and this much more: the reference itself must be
able to meet it when it is measured again."""


class ReferenceFailedError(NasError):
    """The reference network gave no latency: the device or the compiler does not work here."""


def run_search(
    config: StudyConfig, space: SearchSpace, study: optuna.Study, ledger: Ledger, bench: Workbench, watcher: Watcher
) -> str:
    """Runs trials until the study has as many as it should; what is finished is not done again.

    Returns:
        Why it ended, for people.
    """
    num_trials = config.search.trials
    started = time.monotonic()
    enqueue_references(study, space)
    settle_unfinished(config, study, space, ledger, bench, watcher)
    while len(ledger.records()) < num_trials:
        if config.search.minutes is not None and time.monotonic() - started > 60 * config.search.minutes:
            return f"{config.search.minutes:g} minutes are over"
        number = len(study.get_trials(deepcopy=False))
        study.sampler = _sampler_of(config, number)
        num_known = len(ledger.records())
        run_trial(study.ask(), config, study, space, ledger, bench, watcher)
        assert len(ledger.records()) > num_known, "a trial ended without a record: the search would never end"
    return f"all {num_trials} trials are done"


def enqueue_references(study: optuna.Study, space: SearchSpace) -> None:
    """Puts the space's reference networks first in line, once a study, also when it was killed in between."""
    trials = study.get_trials(deepcopy=False)
    known = {trial.user_attrs.get("reference") for trial in trials}
    if len(trials) > len(known - {None}):
        return  # the search has begun: what the line lacks now is a reference that a later version brought
    references = space.references()
    for name in ENQUEUED_REFERENCES:
        if name in references and name not in known:
            study.enqueue_trial(dict(references[name]), user_attrs={"reference": name})


def settle_unfinished(
    config: StudyConfig,
    study: optuna.Study,
    space: SearchSpace,
    ledger: Ledger,
    bench: Workbench,
    watcher: Watcher,
) -> None:
    """Brings trials that a killed process left running to their end, under their own numbers."""
    from optuna.trial import Trial, TrialState

    for frozen in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        choices = proposed_choices(config, study, space, frozen.number)
        study.sampler = decided_sampler(choices, _sampler_of(config, frozen.number))
        run_trial(Trial(study, frozen._trial_id), config, study, space, ledger, bench, watcher)


def proposed_choices(config: StudyConfig, study: optuna.Study, space: SearchSpace, number: int) -> Choices:
    """What the sampler proposes as trial `number` when it knows the trials before it and nothing else.

    A sampler that is asked for the rest of a trial that was killed half asked answers something
    else than it would have: it has drawn fewer random numbers, and takes the trial itself for one
    that runs beside it. So the proposal is made again as a whole, on a copy in memory.
    """
    import optuna

    copy = optuna.create_study(directions=study.directions, sampler=_sampler_of(config, number))
    copy.add_trials(
        [trial for trial in study.get_trials(deepcopy=False) if trial.number < number and trial.state.is_finished()]
    )
    trial = copy.ask()
    space.sample(OptunaSuggest(trial))
    return trial.params


def _sampler_of(config: StudyConfig, number: int) -> BaseSampler:
    search = config.search
    return make_sampler(search.sampler, seed=search.seed, trial=number, num_trials=search.trials)


def run_trial(
    trial: optuna.Trial,
    config: StudyConfig,
    study: optuna.Study,
    space: SearchSpace,
    ledger: Ledger,
    bench: Workbench,
    watcher: Watcher,
) -> None:
    """One trial: the ledger first, then Optuna, so that a kill in between loses nothing."""
    records = ledger.records()
    record = next((known for known in records if known.trial == trial.number), None)
    if record is None:
        watcher.stage("propose")
        proposal = Proposal(trial=trial.number, candidate=space.sample(OptunaSuggest(trial)))
        record = known_result(proposal, records) or evaluate(proposal, bench)
        ledger.record(record)
    tell(study, trial, record, bench.budgets, bench.phase)
    watcher.trial_ended(record, len(ledger.records()), config.search.trials)


def known_result(proposal: Proposal, records: tuple[TrialRecord, ...]) -> TrialRecord | None:
    """The result of an earlier trial of the same candidate, at no cost; failures and predictions are made anew."""
    for known in records:
        same = known.candidate.candidate_id == proposal.candidate.candidate_id
        if same and known.duplicate_of is None and known.outcome.kind == "quality":
            return replace(known, trial=proposal.trial, duplicate_of=known.trial, seconds=())
    return None


def tell(
    study: optuna.Study, trial: optuna.Trial, record: TrialRecord, budgets: tuple[Budget, ...], phase: str
) -> None:
    """What the sampler learns: objectives of scored trials, violations of measured and screened ones, else nothing.

    A candidate over budget is told as pruned with its violations: TPE counts it as infeasible.
    NSGA-II and GP learn from complete trials only, and a made-up quality would be needed to teach
    them; for them it is as if the candidate had not been proposed.
    """
    from optuna.trial import TrialState

    if record.cost is not None and not record.outcome.is_infrastructure:
        told = trial.constraints
        is_predicted = record.outcome is Outcome.PREDICTED_OVER_BUDGET
        for name, excess in (predicted_violations if is_predicted else violations)(budgets, record.cost):
            if name not in told:
                trial.set_constraint(name, excess)
    if record.outcome is Outcome.SCORED:
        assert record.score is not None
        assert record.cost is not None
        study.tell(trial, [record.score.value, _latency(record, phase).latency_ms])
    elif record.outcome.is_infrastructure:
        study.tell(trial, state=TrialState.FAIL)
    else:
        study.tell(trial, state=TrialState.PRUNED)


def settle_budgets(
    config: StudyConfig, space: SearchSpace, ledger: Ledger, bench: Workbench, watcher: Watcher
) -> tuple[tuple[Budget, ...], str | None]:
    """The study's budgets, and where they come from when not from the user.

    Without a budget it is the latency of the space's reference network, measured once and kept in
    the ledger, so that a resumed study has the same one.

    Raises:
        ReferenceFailedError: the reference gave no latency, so there is nothing to search against.
    """
    names = (bench.phase,)
    if config.search.budgets:
        return resolve_budgets(config.search.parsed_budgets, names), None
    known = ledger.events("default_budget")
    if not known:
        watcher.note("no budget was given: tuning and measuring the reference network first, a minute or two")
        ledger.add_event("default_budget", _measure_reference(space, bench))
        known = ledger.events("default_budget")
    detail = known[0].detail
    budget = Budget(metric="latency_ms", phase=bench.phase, maximum=detail["maximum_ms"])
    note = (
        f"no budget was given: {budget} is the latency of the reference network"
        f" ({detail['latency_ms']:.3g} ms) and {DEFAULT_BUDGET_HEADROOM:.0%} more"
    )
    return (budget,), note


def _measure_reference(space: SearchSpace, bench: Workbench) -> Mapping[str, Any]:
    name, choices = next(iter(space.references().items()))
    proposal = Proposal(trial=0, candidate=replay(space, choices))
    runnable = compile_candidate(proposal, bench)
    measured = runnable if isinstance(runnable, Stopped) else measure_latency(runnable, bench)
    if isinstance(measured, Stopped):
        raise ReferenceFailedError(
            f"reference network {name!r}: {measured.outcome}: {measured.reason};"
            " give a budget with --budget, or mend the cause (nothing can be measured without it)"
        )
    estimate = dict(measured.cost.latencies)[bench.phase]
    maximum_ms = float(f"{max(estimate.latency_ms * (1 + DEFAULT_BUDGET_HEADROOM), estimate.upper_ms):.3g}")
    return {"candidate": json.loads(proposal.candidate.canonical_json()), "latency_ms": estimate.latency_ms,
            "maximum_ms": max(maximum_ms, estimate.upper_ms),
            "seconds": [list(pair) for pair in measured.seconds]}  # fmt: skip


def _latency(record: TrialRecord, phase: str) -> LatencyEstimate:
    assert record.cost is not None
    estimate = record.cost.latency(phase)
    assert estimate is not None, "a measured trial has a latency of the study's phase"
    return estimate
