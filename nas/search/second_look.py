"""One winner measured again with its trained weights: each timed phase in fresh processes, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nas.budget import Budget, latency_budget
from nas.compile.tvm import Compiled, CompileFailure
from nas.gates.budget import budget_verdict, explain_miss
from nas.gates.publish import MIN_TUNED_COVERAGE
from nas.ledger import Ledger
from nas.search.pipeline import TimedPhase, cost_of
from nas.search.trained_weights import TrainedWeights, trained_from_json
from nas.search.winner_measurements import remember_measurements, remembered_measurements
from nas.training.result import TrainFailure
from nas.training.score import HeldOutScore
from nas.trial import CandidateCost, TrialRecord
from profilers.artifact import Artifact, hash_file
from profilers.errors import ProfileFailure
from profilers.looks import combine
from profilers.measurement import BudgetVerdict, LatencyEstimate, Measurement, verdict
from search_spaces.candidate import Candidate

MAX_LOOKS = 3
"""Looks at a phase of a winner before doubt about its budget counts as a miss (protocol v1)."""


class FinalistBench(Protocol):
    """The tools of a winner's second look: real ones in a study, fakes in tests.

    Attributes:
        phases: the timed ones, the primary one first.
        budgets: resolved ones.
    """

    phases: tuple[str, ...]
    budgets: tuple[Budget, ...]

    def compile(self, candidate: Candidate, phase: str, weights: Path | None = None) -> Compiled | CompileFailure:
        """Compiles a phase of a candidate with the weights of a checkpoint."""
        ...

    def export_onnx(self, candidate: Candidate, phase: str, weights: Path, folder: Path) -> Artifact | CompileFailure:
        """A phase of the trained network as an ONNX artifact in `folder`."""
        ...

    def measure(self, artifact: Artifact) -> tuple[Measurement | ProfileFailure, BudgetVerdict]:
        """Measures as the search does."""
        ...

    def measure_finalist(self, artifacts: list[Artifact]) -> list[Measurement | ProfileFailure]:
        """Measures a phase of a winner again in fresh processes, in turn with its other runtimes; never cached."""
        ...

    def score_test(self, candidate: Candidate, weights: Path, sha256: str) -> HeldOutScore | TrainFailure:
        """Opens the test split for one finished network."""
        ...

    def weights_folder(self, trial: int) -> Path:
        """Where the weights of a trial are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLook:
    """One phase of a winner, measured with its trained weights.

    Attributes:
        artifact: TVM's.
        exported: ONNX Runtime's; why there is none otherwise; None where it was not asked for.
        measurement: TVM's, with raw blocks.
        other: ONNX Runtime's from interleaved processes, or why there is none; None where it was not asked for.
        is_plain: one look as in the search, at a phase that the study does not time: nothing is held against it.
    """

    artifact: Artifact
    exported: Artifact | CompileFailure | None
    measurement: Measurement
    other: Measurement | ProfileFailure | None
    is_plain: bool = False

    @property
    def phase(self) -> str:
        """Its name."""
        return self.artifact.phase

    @property
    def latency(self) -> LatencyEstimate:
        """TVM's."""
        estimate = self.measurement.estimate()
        assert isinstance(estimate, LatencyEstimate), "rejected measurements do not get here"
        return estimate

    @property
    def onnxruntime(self) -> LatencyEstimate | None:
        """ONNX Runtime's; None where it was not measured or its number must not be used."""
        estimate = self.other.estimate() if isinstance(self.other, Measurement) else None
        return estimate if isinstance(estimate, LatencyEstimate) else None

    @property
    def files(self) -> Mapping[str, Artifact]:
        """Artifacts to keep, by runtime."""
        exported = {self.exported.runtime: self.exported} if isinstance(self.exported, Artifact) else {}
        return {self.artifact.runtime: self.artifact, **exported}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know."""
        notes = []
        if isinstance(self.exported, CompileFailure):
            notes.append(f"no ONNX file: {self.exported.reason}")
        estimate = self.other.estimate() if isinstance(self.other, Measurement) else self.other
        if isinstance(estimate, ProfileFailure):
            notes.append(f"ONNX Runtime was not measured: {estimate.kind}: {estimate.reason}")
        return tuple(notes)


def look_again(
    record: TrialRecord, bench: FinalistBench, ledger: Ledger, scratch: Path
) -> tuple[TrainedWeights, tuple[PhaseLook, ...], CandidateCost] | str:
    """Each timed phase compiled with trained weights and measured; or why the winner must be dropped.

    What an earlier run of the study measured again, as the same artifact, keeps that measurement.

    Returns:
        The weights, one look a phase in the order of `bench.phases`, and what the network costs now.
    """
    weights = trained_weights(record.trial, bench, ledger)
    if weights is None:
        return "its trained weights are gone from the results folder, or are no longer those it was scored with"
    looks: list[PhaseLook] = []
    for phase in bench.phases:
        seen = look_at_phase(record, phase, weights, bench, ledger, scratch / phase)
        if isinstance(seen, str):
            return seen if len(bench.phases) == 1 else f"{phase}: {seen}"
        looks.append(seen)
        cost = _cost_now(record, bench.phases[0], looks)
        if _verdict(seen.measurement, phase, bench.budgets) != "meets":
            return f"measured again, it misses: {explain_miss(bench.budgets, cost)}"
        remember_measurements(ledger, record.trial, seen.artifact, seen.measurement, seen.other)
    if budget_verdict(bench.budgets, cost) != "meets":
        return f"measured again, it misses: {explain_miss(bench.budgets, cost)}"
    if (cost.tuned_coverage or 0.0) < MIN_TUNED_COVERAGE:
        return (
            f"only {cost.tuned_coverage or 0.0:.1%} of its work is in tuned kernels; at least {MIN_TUNED_COVERAGE:.0%}"
        )
    return weights, tuple(looks), cost


def look_at_phase(
    record: TrialRecord, phase: str, weights: TrainedWeights, bench: FinalistBench, ledger: Ledger, scratch: Path
) -> PhaseLook | str:
    """Compiles one phase, exports ONNX, and measures both in turn; or why there is no measurement."""
    compiled = bench.compile(record.candidate, phase, weights.path)
    if isinstance(compiled, CompileFailure):
        return f"with trained weights it no longer compiles: {compiled.reason}"
    exported = bench.export_onnx(record.candidate, phase, weights.path, scratch / "onnxruntime")
    measurement: Measurement | None
    other: Measurement | ProfileFailure | None
    measurement, other = remembered_measurements(ledger, record.trial, compiled.artifact)
    if measurement is None:
        artifacts = [compiled.artifact, *([] if isinstance(exported, CompileFailure) else [exported])]
        seen = _measured_again(artifacts, bench)
        if isinstance(seen, str):
            return seen
        measurement, other = seen
    return PhaseLook(artifact=compiled.artifact, exported=exported, measurement=measurement, other=other)


def _measured_again(
    artifacts: list[Artifact], bench: FinalistBench
) -> tuple[Measurement, Measurement | ProfileFailure | None] | str:
    """Up to `MAX_LOOKS` looks, until the phase's own budget is decided and ONNX Runtime's number is sound."""
    rejected: str | None = None
    measurement: Measurement | None = None
    other: Measurement | ProfileFailure | None = None
    for _ in range(MAX_LOOKS):
        seen, *others = bench.measure_finalist(artifacts)
        if others and (other is None or _rejection(other) is not None):
            other = others[0]
        if (reason := _rejection(seen)) is not None:
            rejected = reason
            continue
        if isinstance(seen, ProfileFailure):
            return f"measured again: {seen.kind}: {seen.reason}"
        measurement = seen if measurement is None else combine([measurement, seen])
        other_is_known = not others or (isinstance(other, Measurement) and other.rejected_because is None)
        if _verdict(measurement, artifacts[0].phase, bench.budgets) != "undecided" and other_is_known:
            break
    if measurement is None:
        return f"measured again {MAX_LOOKS} times, each rejected: {rejected}"
    return measurement, other


def trained_weights(trial: int, bench: FinalistBench, ledger: Ledger) -> TrainedWeights | None:
    """A trial's weights; None when the file is no longer the one that the ledger has the hash of."""
    for stage in ledger.stages(trial):
        if stage.stage == "train":
            weights = trained_from_json(stage.payload, bench.weights_folder(trial))
            is_whole = weights.path.is_file() and hash_file(weights.path) == weights.sha256
            return weights if is_whole else None
    return None


def _rejection(seen: Measurement | ProfileFailure | None) -> str | None:
    """Why a look at a disturbed machine says nothing; None when it says something, be it a failure."""
    if isinstance(seen, Measurement):
        return seen.rejected_because
    return seen.reason if seen is not None and seen.kind == "rejected" else None


def _verdict(measurement: Measurement, phase: str, budgets: tuple[Budget, ...]) -> BudgetVerdict:
    maximum_ms = latency_budget(budgets, phase)
    return "meets" if maximum_ms is None else verdict(measurement.lower_ms, measurement.upper_ms, maximum_ms)


def _cost_now(record: TrialRecord, primary: str, looks: list[PhaseLook]) -> CandidateCost:
    timed = [
        TimedPhase(artifact=look.artifact, measurement=look.measurement, estimate=look.latency, seconds=())
        for look in looks
    ]
    return cost_of(record.candidate, primary, timed)
