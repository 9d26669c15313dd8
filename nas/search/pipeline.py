"""What happens to one candidate, top to bottom: screen, compile, parity, measure, budget, train, score.

Each stage takes the previous stage's value and returns a new one, or a `Stopped` with the outcome.
Expected failures are values; only bugs raise. Nothing is remembered here: the study's ledger is
the only memory, reached through `Workbench.remember`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from nas.budget import Budget
from nas.compile.tvm import Compiled, CompileFailure
from nas.gates.budget import budget_verdict, explain_miss
from nas.search.screening import Screened
from nas.training.result import TrainFailure, TrainResult
from nas.training.score import HeldOutScore
from nas.trial import CandidateCost, Outcome, TrialRecord, score_from_json, score_to_json
from profilers.artifact import Artifact
from profilers.device import DeviceSpec
from profilers.errors import ProfileFailure
from profilers.measurement import BudgetVerdict, Measurement
from search_spaces.candidate import Candidate
from search_spaces.layers import num_macs, num_params

Seconds = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A candidate that the sampler wants to know about."""

    trial: int
    candidate: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """A proposal compiled for the device."""

    proposal: Proposal
    artifact: Artifact
    num_kernels: int
    num_known_kernels: int
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A candidate whose outputs are right and whose costs are known."""

    proposal: Proposal
    cost: CandidateCost
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Affordable:
    """A candidate that meets every budget: worth training."""

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


class Workbench(Protocol):
    """The tools of the stages: real ones in a study, fakes in tests."""

    phase: str
    budgets: tuple[Budget, ...]
    device: DeviceSpec

    def screen(self, trial: int, candidate: Candidate) -> Screened:
        """What the cost model says of a candidate, before anything is spent on it."""
        ...

    def compile(self, candidate: Candidate) -> Compiled | CompileFailure:
        """Compiles a candidate with random weights, tuning the kernels that are new."""
        ...

    def measure(self, artifact: Artifact) -> tuple[Measurement | ProfileFailure, BudgetVerdict]:
        """Checks outputs, then measures, looking again while the budget leaves it open."""
        ...

    def train(self, proposal: Proposal) -> TrainResult | TrainFailure:
        """Proxy training with a score on val."""
        ...

    def weights_folder(self, trial: int) -> Path:
        """Where the weights of a trial are."""
        ...

    def remember(
        self, trial: int, stage: str, work: Callable[[], tuple[Mapping[str, Any] | None, float]]
    ) -> tuple[Mapping[str, Any] | None, float]:
        """Payload and seconds of a finished stage: from the ledger, or by doing `work`."""
        ...


def evaluate(proposal: Proposal, bench: Workbench) -> TrialRecord:
    """One trial from proposal to record; the product in seven lines."""
    promising = screen_candidate(proposal, bench)
    if isinstance(promising, Stopped):
        return stopped_record(promising)
    runnable = compile_candidate(promising, bench)
    if isinstance(runnable, Stopped):
        return stopped_record(runnable)
    measured = measure_latency(runnable, bench)
    if isinstance(measured, Stopped):
        return stopped_record(measured)
    affordable = check_budget(measured, bench.budgets)
    if isinstance(affordable, Stopped):
        return stopped_record(affordable)
    return train_and_score(affordable, bench)


def screen_candidate(proposal: Proposal, bench: Workbench) -> Proposal | Stopped:
    """Candidates that are over budget as good as surely are not compiled; some of them are, as an audit."""
    screened = bench.screen(proposal.trial, proposal.candidate)
    if screened.answer != "ruled_out":
        return proposal
    assert screened.estimate is not None, "what is ruled out was predicted"
    cost = CandidateCost(
        latencies=((bench.phase, screened.estimate),),
        num_params=num_params(proposal.candidate),
        num_macs=num_macs(proposal.candidate),
        model_bytes=None,
        peak_memory_bytes=None,
        runtime="tvm",
        tuned_coverage=None,
        parity_max_abs=None,
    )
    reason = (
        f"predicted {screened.estimate.latency_ms:.4g} ms, {screened.estimate.lower_ms:.4g} to"
        f" {screened.estimate.upper_ms:.4g}; {bench.phase}={screened.maximum_ms:.4g}ms allowed; not measured"
    )
    return Stopped(proposal=proposal, outcome=Outcome.PREDICTED_OVER_BUDGET, reason=reason, cost=cost, seconds=())


def compile_candidate(proposal: Proposal, bench: Workbench) -> Runnable | Stopped:
    """Exports, tunes what is new, and builds."""
    compiled = bench.compile(proposal.candidate)
    seconds = (("tune", compiled.tune_s), ("compile", compiled.compile_s))
    if isinstance(compiled, CompileFailure):
        return Stopped(
            proposal=proposal, outcome=Outcome.COMPILE_FAILED, reason=compiled.reason, cost=None, seconds=seconds
        )
    return Runnable(
        proposal=proposal,
        artifact=compiled.artifact,
        num_kernels=compiled.num_kernels,
        num_known_kernels=compiled.num_known,
        seconds=seconds,
    )


def measure_latency(runnable: Runnable, bench: Workbench) -> Measured | Stopped:
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
    candidate = runnable.proposal.candidate
    cost = CandidateCost(
        latencies=((bench.phase, estimate),),
        num_params=num_params(candidate),
        num_macs=num_macs(candidate),
        model_bytes=runnable.artifact.model_bytes,
        peak_memory_bytes=measurement.peak_memory_bytes,
        runtime=runnable.artifact.runtime,
        tuned_coverage=runnable.artifact.tuned_coverage,
        parity_max_abs=measurement.parity_max_abs,
    )
    return Measured(proposal=runnable.proposal, cost=cost, seconds=seconds)


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
    """Proxy training, then the score on val."""
    proposal = affordable.proposal

    def work() -> tuple[Mapping[str, Any] | None, float]:
        trained = bench.train(proposal)
        if isinstance(trained, TrainFailure):
            failures.append(trained)
            return None, trained.duration_s
        return trained_to_json(trained), trained.duration_s

    failures: list[TrainFailure] = []
    payload, train_s = bench.remember(proposal.trial, "train", work)
    seconds = (*affordable.seconds, ("train", train_s))
    if payload is None:
        failure = failures[0]
        outcome = Outcome.TRAIN_FAILED if failure.is_infrastructure else Outcome.DIVERGED
        stopped = Stopped(
            proposal=proposal,
            outcome=outcome,
            reason=f"{failure.kind}: {failure.reason}",
            cost=affordable.cost,
            seconds=seconds,
        )
        return stopped_record(stopped)
    return TrialRecord(
        trial=proposal.trial,
        candidate=proposal.candidate,
        outcome=Outcome.SCORED,
        cost=affordable.cost,
        score=score_from_json(payload["score"]),
        seconds=seconds,
    )


def stopped_record(stopped: Stopped) -> TrialRecord:
    """The record of a candidate that went no further."""
    return TrialRecord(
        trial=stopped.proposal.trial,
        candidate=stopped.proposal.candidate,
        outcome=stopped.outcome,
        cost=stopped.cost,
        error=stopped.reason,
        seconds=stopped.seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedWeights:
    """Where a trial's weights are, and what they must hash to."""

    path: Path
    sha256: str
    seed: int
    untrained_score: HeldOutScore


def trained_to_json(result: TrainResult) -> dict[str, Any]:
    """What the ledger keeps of a training."""
    return {
        "score": score_to_json(result.score),
        "untrained_score": score_to_json(result.untrained_score),
        "weights_path": result.weights_path,
        "weights_sha256": result.weights_sha256,
        "seed": result.seed,
        "num_steps": result.num_steps,
        "chosen_step": result.chosen_step,
        "task_fingerprint": result.task_fingerprint,
        "history": [asdict(epoch) for epoch in result.history],
    }


def trained_from_json(payload: Mapping[str, Any], folder: Path) -> TrainedWeights:
    """The weights of a remembered training; `folder` is where the study's weights live now."""
    return TrainedWeights(
        path=folder / Path(payload["weights_path"]).name,
        sha256=payload["weights_sha256"],
        seed=payload["seed"],
        untrained_score=score_from_json(payload["untrained_score"]),
    )
