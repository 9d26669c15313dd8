"""What happens to one candidate, top to bottom: screen, compile, parity, measure, budget, train, score.

Each stage takes the previous stage's value and returns a new one, or a `Stopped` with the outcome.
Expected failures are values; only bugs raise. Nothing is remembered here: the study's ledger is
the only memory, reached through `Workbench.remember`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from nas.budget import Budget, latency_budget
from nas.compile.tvm import Compiled, CompileFailure
from nas.gates.budget import budget_verdict, explain_miss
from nas.search.ladder import Climb, Ladder, RungPoint, climb, top_rung
from nas.search.screening import Screened
from nas.search.trained_weights import trained_to_json
from nas.training.result import TrainFailure, TrainResult
from nas.trial import CandidateCost, Outcome, Rung, TrialRecord, score_from_json
from profilers.artifact import Artifact
from profilers.device import DeviceSpec
from profilers.errors import ProfileFailure
from profilers.measurement import BudgetVerdict, LatencyEstimate, Measurement, verdict
from search_spaces.candidate import Candidate
from search_spaces.layer import Signature
from search_spaces.layers import num_macs, num_params, state_bytes

Seconds = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A candidate that the sampler wants to know about."""

    trial: int
    candidate: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """One phase of a proposal compiled for the device."""

    proposal: Proposal
    artifact: Artifact
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPhase:
    """One phase whose outputs are right and whose latency counts."""

    artifact: Artifact
    measurement: Measurement
    estimate: LatencyEstimate
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A candidate whose outputs are right and whose costs are known, in every phase that had to be timed."""

    proposal: Proposal
    cost: CandidateCost
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Affordable:
    """A candidate that meets every budget, measured or surely by prediction: worth training."""

    proposal: Proposal
    cost: CandidateCost
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A candidate that goes no further, and why."""

    proposal: Proposal
    outcome: Outcome
    reason: str
    cost: CandidateCost | None
    seconds: Seconds
    rungs: tuple[Rung, ...] = ()


class Workbench(Protocol):
    """The tools of the stages: real ones in a study, fakes in tests.

    Attributes:
        phases: to compile and time, the primary one first.
        budgets: resolved ones.
        device: what is measured on.
        ladder: lengths of training at which a candidate may be stopped.
    """

    phases: tuple[str, ...]
    budgets: tuple[Budget, ...]
    device: DeviceSpec
    ladder: Ladder

    def screen(self, trial: int, candidate: Candidate) -> Screened:
        """What the cost model says of a candidate, before anything is spent on it."""
        ...

    def compile(self, candidate: Candidate, phase: str) -> Compiled | CompileFailure:
        """Compiles a phase of a candidate with random weights, tuning the kernels that are new."""
        ...

    def measure(self, artifact: Artifact) -> tuple[Measurement | ProfileFailure, BudgetVerdict]:
        """Checks outputs, then measures, looking again while the budget of the artifact's phase leaves it open."""
        ...

    def train(self, proposal: Proposal, until_epoch: int | None = None) -> TrainResult | TrainFailure:
        """Proxy training with a score on val, to its end or so many epochs; goes on from where it paused."""
        ...

    def rung_points(self, epochs: int, trial: int) -> tuple[RungPoint, ...]:
        """What trials other than `trial` scored after so many epochs, and how fast they are."""
        ...

    def forget_training(self, trial: int) -> None:
        """Removes the state of a training that is not gone on with."""
        ...

    def weights_folder(self, trial: int) -> Path:
        """Where the weights of a trial are."""
        ...

    def kernel_seconds(self, candidates: Sequence[Candidate], phase: str) -> Mapping[Signature, float]:
        """Seconds of the kernels of compiled candidates, by the layers they serve, as far as that is known."""
        ...

    def remember(
        self, trial: int, stage: str, work: Callable[[], tuple[Mapping[str, Any] | None, float]]
    ) -> tuple[Mapping[str, Any] | None, float]:
        """Payload and seconds of a finished stage: from the ledger, or by doing `work`."""
        ...


def evaluate(proposal: Proposal, bench: Workbench) -> TrialRecord:
    """One trial from proposal to record; the product in a few lines."""
    promising = screen_candidate(proposal, bench)
    if isinstance(promising, Stopped):
        return stopped_record(promising)
    affordable = promising if isinstance(promising, Affordable) else measure_and_check(promising, bench)
    if isinstance(affordable, Stopped):
        return stopped_record(affordable)
    return train_and_score(affordable, bench)


def screen_candidate(proposal: Proposal, bench: Workbench) -> Proposal | Affordable | Stopped:
    """Candidates that the cost model is sure about are not compiled now; some of them are, as an audit."""
    screened = bench.screen(proposal.trial, proposal.candidate)
    if screened.answer not in ("ruled_out", "trusted"):
        return proposal
    assert screened.budget is not None, "what is not measured was held against a budget"
    cost = predicted_cost(proposal.candidate, screened, bench.phases[0])
    if screened.answer == "trusted":
        # A budget on what no model predicts is met by measurement alone.
        is_affordable = budget_verdict(bench.budgets, cost) == "meets"
        return Affordable(proposal=proposal, cost=cost, seconds=()) if is_affordable else proposal
    reason = f"predicted {screened.prediction}; {screened.budget} allowed; not measured"
    return Stopped(proposal=proposal, outcome=Outcome.PREDICTED_OVER_BUDGET, reason=reason, cost=cost, seconds=())


def predicted_cost(candidate: Candidate, screened: Screened, primary: str) -> CandidateCost:
    """What is known of a candidate's cost before it is compiled: predictions, marked so, and counts."""
    return CandidateCost(
        latencies=screened.estimates,
        num_params=num_params(candidate),
        num_macs=num_macs(candidate, primary),
        model_bytes=None,
        peak_memory_bytes=None,
        runtime="tvm",
        tuned_coverage=None,
        parity_max_abs=None,
        state_bytes=state_bytes(candidate, primary),
        predicted_amounts=screened.amounts,
    )


def measure_and_check(proposal: Proposal, bench: Workbench) -> Affordable | Stopped:
    """Measured phase after phase, and held against the budgets."""
    measured = measure_phases(proposal, bench, bench.budgets)
    return measured if isinstance(measured, Stopped) else check_budget(measured, bench.budgets)


def measure_phases(proposal: Proposal, bench: Workbench, budgets: tuple[Budget, ...] = ()) -> Measured | Stopped:
    """Compiles and measures one phase after the other; a failure in one is the candidate's.

    Args:
        proposal: the candidate.
        bench: the tools, and the phases.
        budgets: a phase that is not surely within its own leaves the later phases out; none: all are measured.
    """
    timed: list[TimedPhase] = []
    seconds: Seconds = ()
    for phase in bench.phases:
        runnable = compile_phase(proposal, phase, bench)
        seen = runnable if isinstance(runnable, Stopped) else measure_phase(runnable, bench)
        if isinstance(seen, Stopped):
            return _failed_in(phase, replace(seen, seconds=_added(seconds, seen.seconds)), bench)
        timed.append(seen)
        seconds = _added(seconds, seen.seconds)
        # Over one budget is over budget: the other phases would cost minutes and change nothing. What the sampler
        # needs is there all the same, namely the primary phase's latency, always the first to be measured, and the
        # constraint that was violated; what it believes of the other costs, it learns from candidates that get
        # as far as those, which are the ones it is asked about.
        if not _is_within(phase, seen.estimate, budgets):
            break
    return Measured(proposal=proposal, cost=cost_of(proposal.candidate, bench.phases[0], timed), seconds=seconds)


def compile_phase(proposal: Proposal, phase: str, bench: Workbench) -> Runnable | Stopped:
    """Exports, tunes what is new, and builds."""
    compiled = bench.compile(proposal.candidate, phase)
    seconds = (("tune", compiled.tune_s), ("compile", compiled.compile_s))
    if isinstance(compiled, CompileFailure):
        # A network whose phases contradict each other answers wrongly, whatever the compiler does.
        outcome = Outcome.PARITY_FAILED if compiled.kind == "outputs_differ" else Outcome.COMPILE_FAILED
        return Stopped(proposal=proposal, outcome=outcome, reason=compiled.reason, cost=None, seconds=seconds)
    return Runnable(proposal=proposal, artifact=compiled.artifact, seconds=seconds)


def measure_phase(runnable: Runnable, bench: Workbench) -> TimedPhase | Stopped:
    """Parity first, in the process that times: outputs that differ never get a latency."""
    measurement, _ = bench.measure(runnable.artifact)
    if isinstance(measurement, ProfileFailure):
        outcome = Outcome.PARITY_FAILED if measurement.kind == "outputs_differ" else Outcome.PROFILE_FAILED
        reason = f"{measurement.kind}: {measurement.reason}"
        return Stopped(proposal=runnable.proposal, outcome=outcome, reason=reason, cost=None, seconds=runnable.seconds)
    seconds = (*runnable.seconds, ("profile", measurement.duration_s))
    if measurement.fingerprint != bench.device.fingerprint:
        reason = (
            f"measured on another device: fingerprint {measurement.fingerprint}, this one is {bench.device.fingerprint}"
        )
        return Stopped(
            proposal=runnable.proposal, outcome=Outcome.PROFILE_FAILED, reason=reason, cost=None, seconds=seconds
        )
    estimate = measurement.estimate()
    if isinstance(estimate, ProfileFailure):
        reason = f"rejected: {estimate.reason}"
        return Stopped(
            proposal=runnable.proposal, outcome=Outcome.PROFILE_FAILED, reason=reason, cost=None, seconds=seconds
        )
    return TimedPhase(artifact=runnable.artifact, measurement=measurement, estimate=estimate, seconds=seconds)


def cost_of(candidate: Candidate, primary: str, timed: Sequence[TimedPhase]) -> CandidateCost:
    """What a candidate costs, from its timed phases: of everything but the latencies the worst one counts."""
    coverages = [each.artifact.tuned_coverage for each in timed]
    known = [coverage for coverage in coverages if coverage is not None]
    return CandidateCost(
        latencies=tuple((each.artifact.phase, each.estimate) for each in timed),
        num_params=num_params(candidate),
        num_macs=num_macs(candidate, primary),
        model_bytes=max(each.artifact.model_bytes for each in timed),
        peak_memory_bytes=max(each.measurement.peak_memory_bytes for each in timed),
        runtime=timed[0].artifact.runtime,
        # Missing in one phase is missing: a coverage that nobody knows must not pass for that of the others.
        tuned_coverage=min(known) if len(known) == len(coverages) else None,
        parity_max_abs=max(each.measurement.parity_max_abs for each in timed),
        state_bytes=state_bytes(candidate, primary),
    )


def _failed_in(phase: str, stopped: Stopped, bench: Workbench) -> Stopped:
    """With the phase in the reason, where there are several that it could be."""
    return stopped if len(bench.phases) == 1 else replace(stopped, reason=f"{phase}: {stopped.reason}")


def _added(seconds: Seconds, more: Seconds) -> Seconds:
    sums = dict(seconds)
    for stage, amount in more:
        sums[stage] = sums.get(stage, 0.0) + amount
    return tuple(sums.items())


def _is_within(phase: str, estimate: LatencyEstimate, budgets: tuple[Budget, ...]) -> bool:
    maximum_ms = latency_budget(budgets, phase)
    return maximum_ms is None or verdict(estimate.lower_ms, estimate.upper_ms, maximum_ms) == "meets"


def check_budget(measured: Measured, budgets: tuple[Budget, ...]) -> Affordable | Stopped:
    """Only what surely meets every budget is trained; in doubt it is over budget."""
    if budget_verdict(budgets, measured.cost) == "meets":
        return Affordable(proposal=measured.proposal, cost=measured.cost, seconds=measured.seconds)
    return Stopped(
        proposal=measured.proposal,
        outcome=Outcome.OVER_BUDGET,
        reason=explain_miss(budgets, measured.cost),
        cost=measured.cost,
        seconds=measured.seconds,
    )


def train_and_score(affordable: Affordable, bench: Workbench) -> TrialRecord:
    """Proxy training, as far as a ladder lets the candidate go, then the score on val."""
    proposal = affordable.proposal
    latency = affordable.cost.latency(bench.phases[0])
    assert latency is not None, "what is within its budgets has a latency"
    climbed = climb(proposal, latency.latency_ms, bench)
    if climbed.stopped_because is not None:
        return _ended_training(affordable, climbed, Outcome.STOPPED_EARLY, climbed.stopped_because, climbed.seconds)
    failures = [] if climbed.failure is None else [climbed.failure]

    def work() -> tuple[Mapping[str, Any] | None, float]:
        trained = bench.train(proposal)
        if isinstance(trained, TrainFailure):
            failures.append(trained)
            return None, trained.duration_s
        return trained_to_json(trained), trained.duration_s

    payload, train_s = (None, failures[0].duration_s) if failures else bench.remember(proposal.trial, "train", work)
    if payload is None:
        failure = failures[0]
        outcome = Outcome.TRAIN_FAILED if failure.is_infrastructure else Outcome.DIVERGED
        return _ended_training(affordable, climbed, outcome, f"{failure.kind}: {failure.reason}", train_s)
    score = score_from_json(payload["score"])
    last = [top_rung(epochs, score, train_s - climbed.seconds) for epochs in bench.ladder.epochs[-1:]]
    return TrialRecord(
        trial=proposal.trial,
        candidate=proposal.candidate,
        outcome=Outcome.SCORED,
        cost=affordable.cost,
        score=score,
        seconds=(*affordable.seconds, ("train", train_s)),
        rungs=(*climbed.rungs, *last),
    )


def _ended_training(
    affordable: Affordable, climbed: Climb, outcome: Outcome, reason: str, train_s: float
) -> TrialRecord:
    stopped = Stopped(
        proposal=affordable.proposal,
        outcome=outcome,
        reason=reason,
        cost=affordable.cost,
        seconds=(*affordable.seconds, ("train", train_s)),
        rungs=climbed.rungs,
    )
    return stopped_record(stopped)


def stopped_record(stopped: Stopped) -> TrialRecord:
    """The record of a candidate that went no further."""
    return TrialRecord(
        trial=stopped.proposal.trial,
        candidate=stopped.proposal.candidate,
        outcome=stopped.outcome,
        cost=stopped.cost,
        error=stopped.reason,
        seconds=stopped.seconds,
        rungs=stopped.rungs,
    )
