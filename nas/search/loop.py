"""The search: ask the sampler, evaluate, write the ledger, tell the sampler; from any instant again."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nas.budget import Budget
from nas.config import StudyConfig
from nas.errors import NasError
from nas.gates.budget import predicted_violations, violations
from nas.ledger import Ledger
from nas.phases import reference_of, study_budgets
from nas.search.fellow_workers import FellowWorkers
from nas.search.pipeline import Proposal, Stopped, Workbench, evaluate, measure_phases
from nas.search.progress import Watcher
from nas.search.sampler import (
    BUDGET_SAMPLER,
    LATENCY_ATTRIBUTE,
    PREDICTED_ATTRIBUTE,
    RUNG_ATTRIBUTE,
    Bounded,
    OptunaSuggest,
    Samplers,
    decided_sampler,
)
from nas.search.warm_start import earlier_scores
from nas.trial import Outcome, TrialRecord
from profilers.measurement import LatencyEstimate
from search_spaces.space import Choices, SearchSpace

if TYPE_CHECKING:
    import optuna

    from nas.search.cost import Forecaster

NUM_ENQUEUED = 3
"""References of a space that are tried first, in its order, so that any search is compared with them; the first one
sets a default budget."""

DEFAULT_BUDGET_HEADROOM = 0.05
"""A default budget is the reference's latency and this much more: the reference itself must be
able to meet it when it is measured again."""

MAX_REPEATS = 100
"""Proposals in a row that were known already: then there is nothing new to propose."""

GAIN_PATIENCE = 3
"""Proposals in a row whose expected gain is below the threshold before a search ends."""


class ReferenceFailedError(NasError):
    """The reference network gave no latency: the device or the compiler does not work here."""


@dataclass(slots=True)
class Search:
    """One process at work on a study.

    Attributes:
        config, space, study, ledger, bench, watcher: what it works with.
        fellows: the other processes, where the database allows for any.
        samplers: one for each trial.
        num_repeats: proposals since the last one that was new.
        num_low_gains: proposals since the last one that was worth it.
    """

    config: StudyConfig
    space: SearchSpace
    study: optuna.Study
    ledger: Ledger
    bench: Workbench
    watcher: Watcher
    fellows: FellowWorkers
    samplers: Samplers = field(init=False)
    num_repeats: int = 0
    num_low_gains: int = 0

    def __post_init__(self) -> None:
        search = self.config.search
        self.samplers = Samplers(
            name=search.sampler,
            seed=search.seed,
            num_trials=search.trials,
            space=self.space,
            budgets=self.bench.budgets,
            phase=self.bench.phases[0],
            forecasters=self._forecasters(),
            settings={"earlier": earlier_scores(self.ledger)},
        )

    def _forecasters(self) -> dict[Bounded, Forecaster]:
        from nas.search.cost_forecast import LatencyForecast

        screener = getattr(self.bench, "screener", None)
        models = {} if screener is None else screener.models
        return {("latency_ms", phase): LatencyForecast(model) for phase, model in models.items()}


def run_search(
    config: StudyConfig, space: SearchSpace, study: optuna.Study, ledger: Ledger, bench: Workbench, watcher: Watcher
) -> str:
    """Runs trials until the study has as many as it should; what is finished is not done again.

    Returns:
        Why it ended, for people.
    """
    started = time.monotonic()
    fellows = FellowWorkers.of(config, study, ledger, watcher)
    search = Search(config, space, study, ledger, bench, watcher, fellows)
    fellows.patiently(lambda: enqueue_references(study, space))
    if not fellows.are_possible:
        settle_unfinished(search)
    while (reason := why_stop(search, started)) is None:
        if fellows.wait_for_room(config.search.trials):
            run_next(search)
    return reason


def why_stop(search: Search, started: float) -> str | None:
    """The reason to start no further trial; None while there is none.

    Args:
        search: what is running.
        started: `time.monotonic()` when this process began.
    """
    settings = search.config.search
    if search.fellows.patiently(search.ledger.num_tried) >= settings.trials:
        return f"all {settings.trials} trials are done"
    if settings.minutes is not None and time.monotonic() - started > 60 * settings.minutes:
        return f"{settings.minutes:g} minutes are over"
    if settings.min_gain is not None and search.num_low_gains >= GAIN_PATIENCE:
        return f"the expected gain was below {settings.min_gain:g} of the hypervolume {GAIN_PATIENCE} times in a row"
    if search.num_repeats >= MAX_REPEATS:
        return f"the last {MAX_REPEATS} proposals were known already: the space has nothing new within reach"
    return None


def run_next(search: Search) -> None:
    """Asks for one trial and brings it to its end."""
    fellows, study = search.fellows, search.study
    fellows.patiently(fellows.retry_lost)
    number = fellows.patiently(lambda: len(study.get_trials(deepcopy=False)))
    study.sampler = search.samplers.of(number)
    trial = fellows.ask()
    with fellows.heartbeat(trial):
        run_trial(trial, search)
    if search.config.search.sampler == BUDGET_SAMPLER and search.config.search.min_gain is not None:
        gain = search.samplers.budget_sampler.gain_of(trial.number)
        if gain is not None:
            search.num_low_gains = search.num_low_gains + 1 if gain < search.config.search.min_gain else 0


def enqueue_references(study: optuna.Study, space: SearchSpace) -> None:
    """Puts the space's reference networks first in line, once a study, also when it was killed in between."""
    trials = study.get_trials(deepcopy=False)
    known = {trial.user_attrs.get("reference") for trial in trials}
    if len(trials) > len(known - {None}):
        return  # the search has begun: what the line lacks now is a reference that a later version brought
    for name, choices in enqueued_references(space):
        if name not in known:
            study.enqueue_trial(dict(choices), user_attrs={"reference": name})


def enqueued_references(space: SearchSpace) -> tuple[tuple[str, Choices], ...]:
    """(name, choices) of the references that a search tries first."""
    return tuple(itertools.islice(space.references().items(), NUM_ENQUEUED))


def settle_unfinished(search: Search) -> None:
    """Brings trials that a killed process left running to their end, under their own numbers."""
    from optuna.trial import Trial, TrialState

    study = search.study
    for frozen in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        choices = proposed_choices(search, frozen.number)
        study.sampler = decided_sampler(choices, search.samplers.of(frozen.number))
        run_trial(Trial(study, frozen._trial_id), search)


def proposed_choices(search: Search, number: int) -> Choices:
    """What the sampler proposes as trial `number` when it knows the trials before it and nothing else.

    A sampler that is asked for the rest of a trial that was killed half asked answers something
    else than it would have: it has drawn fewer random numbers, and takes the trial itself for one
    that runs beside it. So the proposal is made again as a whole, on a copy in memory.
    """
    import optuna

    study = search.study
    copy = optuna.create_study(directions=study.directions, sampler=search.samplers.of(number))
    copy.add_trials(
        [trial for trial in study.get_trials(deepcopy=False) if trial.number < number and trial.state.is_finished()]
    )
    trial = copy.ask()
    search.space.sample(OptunaSuggest(trial))
    return trial.params


def run_trial(trial: optuna.Trial, search: Search) -> None:
    """One trial: the ledger first, then Optuna, so that a kill in between loses nothing."""
    fellows, ledger, bench = search.fellows, search.ledger, search.bench
    record = fellows.patiently(lambda: ledger.by_trial(trial.number))
    if record is None:
        search.watcher.stage("propose")
        candidate = fellows.patiently(lambda: search.space.sample(OptunaSuggest(trial)))
        proposal = Proposal(trial=trial.number, candidate=candidate)
        known = fellows.patiently(lambda: known_result(proposal, ledger.by_candidate(candidate.candidate_id)))
        if known is None and not fellows.claim(trial, candidate.candidate_id):
            search.num_repeats += 1
            return
        record = known or evaluate(proposal, bench)
        fellows.share_weights(record, bench.weights_folder(trial.number))
        fellows.patiently(lambda: ledger.record(record))
    search.num_repeats = 0 if record.duplicate_of is None else search.num_repeats + 1
    fellows.patiently(lambda: tell(search.study, trial, record, bench.budgets, bench.phases[0]))
    num_done = fellows.patiently(ledger.num_tried)
    search.watcher.trial_ended(record, num_done, search.config.search.trials)


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

    A candidate that a rung stopped is told as pruned, for it has no score. In a study with a ladder every trained trial
    brings what it scored at the lowest rung as an attribute, and samplers that model qualities learn from that alone:
    scores of one length of training, of all candidates and not only of those that were promoted.

    A candidate over budget is told as pruned with its violations, as far as they are known, and its latency in
    `phase`, the primary one. TPE counts it as infeasible; `nas.search.sampler.taught` says what NSGA-II and GP
    make of it.
    """
    from optuna.trial import TrialState

    if study._storage.get_trial(trial._trial_id).state.is_finished():
        return  # told before a connection broke, or declared lost while this worker was slow: the ledger has it
    if record.cost is not None and not record.outcome.is_infrastructure:
        told = trial.constraints
        is_ruled_out = record.outcome is Outcome.PREDICTED_OVER_BUDGET
        for name, excess in (predicted_violations if is_ruled_out else violations)(budgets, record.cost):
            if name not in told:
                trial.set_constraint(name, excess)
        if not record.cost.is_measured:
            trial.set_user_attr(PREDICTED_ATTRIBUTE, True)
        estimate = record.cost.latency(phase)
        if record.outcome is not Outcome.SCORED and estimate is not None:
            trial.set_user_attr(LATENCY_ATTRIBUTE, estimate.latency_ms)
        if record.rungs and record.outcome is not Outcome.DIVERGED:
            trial.set_user_attr(RUNG_ATTRIBUTE, record.rungs[0].score.value)
    if record.outcome is Outcome.SCORED:
        assert record.score is not None
        study.tell(trial, [record.score.value, _latency(record, phase).latency_ms], skip_if_finished=True)
    elif record.outcome.is_infrastructure:
        study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
    else:
        study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)


def settle_budgets(
    config: StudyConfig, space: SearchSpace, ledger: Ledger, bench: Workbench, watcher: Watcher
) -> tuple[tuple[Budget, ...], str | None]:
    """The study's budgets, and where they come from when not from the user.

    Without a budget it is the latency of the space's reference network in the primary phase, measured once and
    kept in the ledger, so that a resumed study has the same one. The other phases of the space then have no
    budget and are not timed during the search: they are measured for the winners only, and rule nothing out.

    Raises:
        BudgetError: a budget that networks of this space cannot be held against.
        ReferenceFailedError: the reference gave no latency, so there is nothing to search against.
    """
    if config.search.budgets:
        return study_budgets(config.search.parsed_budgets, space), None
    known = ledger.events("default_budget")
    if not known:
        watcher.note("no budget was given: tuning and measuring the reference network first, a minute or two")
        ledger.add_event("default_budget", _measure_reference(space, bench))
        known = ledger.events("default_budget")
    detail = known[0].detail
    budget = Budget(metric="latency_ms", phase=bench.phases[0], maximum=detail["maximum_ms"])
    note = (
        f"no budget was given: {budget} is the latency of the reference network"
        f" ({detail['latency_ms']:.3g} ms) and {DEFAULT_BUDGET_HEADROOM:.0%} more"
    )
    return (budget,), note


def _measure_reference(space: SearchSpace, bench: Workbench) -> Mapping[str, Any]:
    name, candidate = reference_of(space)
    proposal = Proposal(trial=0, candidate=candidate)
    measured = measure_phases(proposal, bench)
    if isinstance(measured, Stopped):
        raise ReferenceFailedError(
            f"reference network {name!r}: {measured.outcome}: {measured.reason};"
            " give a budget with --budget, or mend the cause (nothing can be measured without it)"
        )
    estimate = dict(measured.cost.latencies)[bench.phases[0]]
    maximum_ms = rounded_up(max(estimate.latency_ms * (1 + DEFAULT_BUDGET_HEADROOM), estimate.upper_ms))
    return {"candidate": json.loads(proposal.candidate.canonical_json()), "latency_ms": estimate.latency_ms,
            "maximum_ms": maximum_ms,
            "seconds": [list(pair) for pair in measured.seconds]}  # fmt: skip


def rounded_up(amount: float, digits: int = 3) -> float:
    """The next number above with so many digits, so that a budget reads well and what set it stays within it.

    >>> rounded_up(1.1313340005546233), rounded_up(0.25), rounded_up(99.91)
    (1.14, 0.25, 100.0)
    """
    unit = 10.0 ** (math.floor(math.log10(amount)) - digits + 1)
    nearest = float(f"{amount:.{digits}g}")
    return nearest if nearest >= amount else float(f"{amount + unit / 2:.{digits}g}")


def _latency(record: TrialRecord, phase: str) -> LatencyEstimate:
    assert record.cost is not None
    estimate = record.cost.latency(phase)
    assert estimate is not None, "a measured trial has a latency of the study's phase"
    return estimate
