"""Every winner measured again with its trained weights before it may be on the front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from nas.budget import Budget
from nas.compile.tvm import Compiled, CompileFailure
from nas.front import Direction, non_dominated
from nas.gates.budget import budget_verdict, explain_miss
from nas.gates.publish import MIN_TUNED_COVERAGE
from nas.ledger import Ledger
from nas.report.summary import DroppedWinner, FrontMember
from nas.search.pipeline import TrainedWeights, trained_from_json
from nas.search.progress import Watcher
from nas.search.winner_measurements import remember_measurements, remembered_measurements
from nas.training.result import TrainFailure
from nas.training.score import HeldOutScore
from nas.trial import CandidateCost, Outcome, TrialRecord, score_from_json, score_to_json
from profilers.artifact import Artifact, hash_file
from profilers.errors import ProfileFailure
from profilers.looks import combine
from profilers.measurement import LatencyEstimate, Measurement
from search_spaces.candidate import Candidate

MAX_LOOKS = 3
"""Looks at a winner before doubt about its budget counts as a miss (protocol v1)."""


class FinalistBench(Protocol):
    """The tools of a winner's second look: real ones in a study, fakes in tests."""

    phase: str
    budgets: tuple[Budget, ...]

    def compile(self, candidate: Candidate, weights: Path | None = None) -> Compiled | CompileFailure:
        """Compiles a candidate with the weights of a checkpoint."""
        ...

    def export_onnx(self, candidate: Candidate, weights: Path, folder: Path) -> Artifact | CompileFailure:
        """The trained network as an ONNX artifact in `folder`."""
        ...

    def measure_finalist(self, artifacts: list[Artifact]) -> list[Measurement | ProfileFailure]:
        """Measures a winner again in fresh processes, in turn with its other runtimes; never cached."""
        ...

    def score_test(self, candidate: Candidate, weights: Path, sha256: str) -> HeldOutScore | TrainFailure:
        """Opens the test split for one finished network."""
        ...

    def weights_folder(self, trial: int) -> Path:
        """Where the weights of a trial are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A scored trial, measured again with its trained weights.

    Attributes:
        record: the trial as the search recorded it.
        cost: what was seen now.
        measurement: TVM's, with raw blocks.
        latency, onnxruntime: estimates side by side, from interleaved processes.
        notes: what a reader should know.
        files: artifacts to keep, by runtime.
        weights: the trained weights.
    """

    record: TrialRecord
    cost: CandidateCost
    measurement: Measurement
    latency: LatencyEstimate
    onnxruntime: LatencyEstimate | None
    onnxruntime_measurement: Measurement | None
    notes: tuple[str, ...]
    files: Mapping[str, Artifact]
    weights: TrainedWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledFront:
    """What is left after the second look, and what is not."""

    finalists: tuple[Finalist, ...]
    dropped: tuple[DroppedWinner, ...]


def settle_front(
    records: tuple[TrialRecord, ...],
    direction: Direction,
    bench: FinalistBench,
    ledger: Ledger,
    scratch: Path,
    watcher: Watcher,
) -> SettledFront:
    """Looks at the front again until every member has been measured again and still belongs there.

    A member that misses a budget now is dropped and named, and whatever it dominated gets its
    chance; members that others dominate by the new latencies leave as well.
    """
    scored = {
        record.trial: record for record in records if record.outcome is Outcome.SCORED and record.duplicate_of is None
    }
    finalists: dict[int, Finalist] = {}
    dropped: list[DroppedWinner] = []
    while True:
        front = front_of(tuple(scored.values()), direction, bench.phase)
        unseen = [record for record in front if record.trial not in finalists]
        if not unseen:
            break
        for number, record in enumerate(unseen):
            watcher.stage("winners", number, len(unseen))
            seen = look_again(record, bench, ledger, scratch / record.candidate.candidate_id)
            if isinstance(seen, str):
                dropped.append(
                    DroppedWinner(candidate_id=record.candidate.candidate_id, trial=record.trial, reason=seen)
                )
                watcher.note(f"winner {record.candidate.candidate_id} (trial {record.trial}) dropped: {seen}")
                del scored[record.trial]
            else:
                finalists[record.trial] = seen
                scored[record.trial] = replace(record, cost=seen.cost)
    chosen = [finalists[record.trial] for record in front]
    return SettledFront(
        finalists=tuple(sorted(chosen, key=lambda finalist: finalist.latency.latency_ms)), dropped=tuple(dropped)
    )


def front_of(records: tuple[TrialRecord, ...], direction: Direction, phase: str) -> tuple[TrialRecord, ...]:
    """The scored records that none dominates in quality and latency."""
    if not records:
        return ()
    points = []
    for record in records:
        assert record.score is not None
        assert record.cost is not None
        latency = record.cost.latency(phase)
        assert latency is not None
        points.append([record.score.value, latency.latency_ms])
    mask = non_dominated(points, [direction, "minimize"])
    return tuple(record for record, is_member in zip(records, mask, strict=True) if is_member)


def look_again(record: TrialRecord, bench: FinalistBench, ledger: Ledger, scratch: Path) -> Finalist | str:
    """Compiles with trained weights, exports ONNX, measures both in turn; or why it must be dropped.

    A winner that an earlier run of the study measured again, as the same artifact, keeps that measurement.
    """
    weights = trained_weights(record.trial, bench, ledger)
    if weights is None:
        return "its trained weights are gone from the results folder, or are no longer those it was scored with"
    compiled = bench.compile(record.candidate, weights.path)
    if isinstance(compiled, CompileFailure):
        return f"with trained weights it no longer compiles: {compiled.reason}"
    exported = bench.export_onnx(record.candidate, weights.path, scratch / "onnxruntime")
    artifacts = [compiled.artifact, *([] if isinstance(exported, CompileFailure) else [exported])]
    cost = record.cost
    assert cost is not None
    rejected: str | None = None
    measurement: Measurement | None
    other: Measurement | ProfileFailure | None
    measurement, other = remembered_measurements(ledger, record.trial, compiled.artifact)
    if measurement is not None:
        cost = _cost_now(record, measurement, compiled.artifact, bench.phase)
    for _ in range(MAX_LOOKS if measurement is None else 0):
        seen, *others = bench.measure_finalist(artifacts)
        if others and (other is None or _rejection(other) is not None):
            other = others[0]
        if (reason := _rejection(seen)) is not None:
            rejected = reason
            continue
        if isinstance(seen, ProfileFailure):
            return f"measured again: {seen.kind}: {seen.reason}"
        measurement = seen if measurement is None else combine([measurement, seen])
        cost = _cost_now(record, measurement, compiled.artifact, bench.phase)
        other_is_known = not others or (isinstance(other, Measurement) and other.rejected_because is None)
        if budget_verdict(bench.budgets, cost) != "undecided" and other_is_known:
            break
    if measurement is None:
        return f"measured again {MAX_LOOKS} times, each rejected: {rejected}"
    if budget_verdict(bench.budgets, cost) != "meets":
        return f"measured again, it misses: {explain_miss(bench.budgets, cost)}"
    if (cost.tuned_coverage or 0.0) < MIN_TUNED_COVERAGE:
        return (
            f"only {cost.tuned_coverage or 0.0:.1%} of its work is in tuned kernels; at least {MIN_TUNED_COVERAGE:.0%}"
        )
    remember_measurements(ledger, record.trial, compiled.artifact, measurement, other)
    return _finalist(record, cost, measurement, other, exported, compiled.artifact, weights, bench.phase)


def trained_weights(trial: int, bench: FinalistBench, ledger: Ledger) -> TrainedWeights | None:
    """A trial's weights; None when the file is no longer the one that the ledger has the hash of."""
    for stage in ledger.stages(trial):
        if stage.stage == "train":
            weights = trained_from_json(stage.payload, bench.weights_folder(trial))
            is_whole = weights.path.is_file() and hash_file(weights.path) == weights.sha256
            return weights if is_whole else None
    return None


def test_scores(
    finalists: tuple[Finalist, ...], bench: FinalistBench, ledger: Ledger
) -> dict[int, HeldOutScore | TrainFailure]:
    """Opens test, once for each member of the settled front, and writes down that it did."""
    scores: dict[int, HeldOutScore | TrainFailure] = {}
    for finalist in finalists:
        trial = finalist.record.trial
        known = next((stage for stage in ledger.stages(trial) if stage.stage == "test"), None)
        if known is not None:
            scores[trial] = score_from_json(known.payload["score"])
            continue
        ledger.add_event("test_opened", {"trial": trial, "candidate_id": finalist.record.candidate.candidate_id})
        score = bench.score_test(finalist.record.candidate, finalist.weights.path, finalist.weights.sha256)
        if isinstance(score, HeldOutScore):
            ledger.record_stage(trial, "test", {"score": score_to_json(score)}, 0.0)
        scores[trial] = score
    return scores


def front_members(
    finalists: tuple[Finalist, ...], scores: Mapping[int, HeldOutScore | TrainFailure]
) -> tuple[FrontMember, ...]:
    """The published form of the finalists."""
    members = []
    for finalist in finalists:
        score = scores.get(finalist.record.trial)
        notes = finalist.notes
        if isinstance(score, TrainFailure):
            notes = (*notes, f"no test score: {score.reason}")
        members.append(
            FrontMember(
                record=finalist.record,
                measured_again=finalist.cost,
                latency=finalist.latency,
                onnxruntime=finalist.onnxruntime,
                test_score=score if isinstance(score, HeldOutScore) else None,
                notes=notes,
            )
        )
    return tuple(members)


def _rejection(seen: Measurement | ProfileFailure | None) -> str | None:
    """Why a look at a disturbed machine says nothing; None when it says something, be it a failure."""
    if isinstance(seen, Measurement):
        return seen.rejected_because
    return seen.reason if seen is not None and seen.kind == "rejected" else None


def _cost_now(record: TrialRecord, measurement: Measurement, artifact: Artifact, phase: str) -> CandidateCost:
    estimate = measurement.estimate()
    assert isinstance(estimate, LatencyEstimate), "rejected measurements do not get here"
    assert record.cost is not None
    return replace(
        record.cost,
        latencies=((phase, estimate),),
        model_bytes=artifact.model_bytes,
        peak_memory_bytes=measurement.peak_memory_bytes,
        tuned_coverage=artifact.tuned_coverage,
        parity_max_abs=measurement.parity_max_abs,
    )


def _finalist(
    record: TrialRecord,
    cost: CandidateCost,
    measurement: Measurement,
    other: Measurement | ProfileFailure | None,
    exported: Artifact | CompileFailure,
    artifact: Artifact,
    weights: TrainedWeights,
    phase: str,
) -> Finalist:
    notes = []
    files = {artifact.runtime: artifact}
    if isinstance(exported, CompileFailure):
        notes.append(f"no ONNX file: {exported.reason}")
    else:
        files[exported.runtime] = exported
    estimate = other.estimate() if isinstance(other, Measurement) else other
    if isinstance(estimate, ProfileFailure):
        notes.append(f"ONNX Runtime was not measured: {estimate.kind}: {estimate.reason}")
    latency = cost.latency(phase)
    assert latency is not None
    return Finalist(
        record=record,
        cost=cost,
        measurement=measurement,
        latency=latency,
        onnxruntime=estimate if isinstance(estimate, LatencyEstimate) else None,
        onnxruntime_measurement=other if isinstance(other, Measurement) else None,
        notes=tuple(notes),
        files=files,
        weights=weights,
    )


def least_violating(
    records: tuple[TrialRecord, ...], budgets: tuple[Budget, ...], limit: int = 5
) -> tuple[TrialRecord, ...]:
    """The measured trials that come closest to the budgets, best first: shown when none meets them."""
    from nas.gates.budget import violations

    def excess(record: TrialRecord) -> float:
        assert record.cost is not None
        return sum(max(0.0, amount) for _, amount in violations(budgets, record.cost))

    measured = [
        record
        for record in records
        if record.cost is not None and record.duplicate_of is None and record.outcome.kind == "quality"
    ]
    return tuple(sorted(measured, key=lambda record: (excess(record), record.trial))[:limit])
