"""Every winner measured again with its trained weights before it may be on the front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nas.budget import Budget
from nas.front import Direction, non_dominated
from nas.ledger import Ledger
from nas.report.summary import DroppedWinner, FrontMember, PhaseLatency
from nas.search.progress import Watcher
from nas.search.second_look import FinalistBench, PhaseLook, look_again
from nas.search.trained_weights import TrainedWeights
from nas.training.result import TrainFailure
from nas.training.score import HeldOutScore
from nas.trial import CandidateCost, Outcome, TrialRecord, score_from_json, score_to_json
from profilers.artifact import Artifact
from profilers.measurement import LatencyEstimate, Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A scored trial, measured again with its trained weights.

    Attributes:
        record: the trial as the search recorded it.
        cost: what was seen now, in the timed phases.
        looks: one a timed phase, the primary one first.
        plain_looks: one a further phase of the space, which nothing is held against.
        weights: the trained weights.
        remarks: what else a reader should know.
    """

    record: TrialRecord
    cost: CandidateCost
    looks: tuple[PhaseLook, ...]
    weights: TrainedWeights
    plain_looks: tuple[PhaseLook, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def measurement(self) -> Measurement:
        """TVM's of the primary phase, with raw blocks."""
        return self.looks[0].measurement

    @property
    def latency(self) -> LatencyEstimate:
        """TVM's of the primary phase."""
        return self.looks[0].latency

    @property
    def onnxruntime(self) -> LatencyEstimate | None:
        """ONNX Runtime's of the primary phase, from processes interleaved with TVM's."""
        return self.looks[0].onnxruntime

    @property
    def files(self) -> Mapping[str, Artifact]:
        """Artifacts of the primary phase to keep, by runtime."""
        return self.looks[0].files

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, with the phase where there are several."""
        looks = (*self.looks, *self.plain_looks)
        notes = [note if len(looks) == 1 else f"{look.phase}: {note}" for look in looks for note in look.notes]
        return (*notes, *self.remarks)


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

    Quality and the latency of the primary phase span the front; the budgets of all timed phases hold for it.
    A member that misses a budget now is dropped and named, and whatever it dominated gets its
    chance; members that others dominate by the new latencies leave as well.
    """
    scored = {
        record.trial: record for record in records if record.outcome is Outcome.SCORED and record.duplicate_of is None
    }
    finalists: dict[int, Finalist] = {}
    dropped: list[DroppedWinner] = []
    while True:
        front = front_of(tuple(scored.values()), direction, bench.phases[0])
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
                weights, looks, cost = seen
                finalists[record.trial] = Finalist(record=record, cost=cost, looks=looks, weights=weights)
                scored[record.trial] = replace(record, cost=cost)
    chosen = [finalists[record.trial] for record in front]
    return SettledFront(
        finalists=tuple(sorted(chosen, key=lambda finalist: finalist.latency.latency_ms)), dropped=tuple(dropped)
    )


def front_of(records: tuple[TrialRecord, ...], direction: Direction, phase: str) -> tuple[TrialRecord, ...]:
    """The scored records that none dominates in quality and latency.

    One that was not measured is taken to be as fast as the lower end of its prediction: it may be on the front, so it
    has to be measured before anybody knows.
    """
    if not records:
        return ()
    points = []
    for record in records:
        assert record.score is not None
        assert record.cost is not None
        latency = record.cost.latency(phase)
        assert latency is not None
        points.append([record.score.value, latency.latency_ms if latency.source == "measured" else latency.lower_ms])
    mask = non_dominated(points, [direction, "minimize"])
    return tuple(record for record, is_member in zip(records, mask, strict=True) if is_member)


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
                tuned_coverage=finalist.looks[0].artifact.tuned_coverage,
                other_phases=tuple(map(_phase_latency, (*finalist.looks[1:], *finalist.plain_looks))),
                test_score=score if isinstance(score, HeldOutScore) else None,
                notes=notes,
            )
        )
    return tuple(members)


def _phase_latency(look: PhaseLook) -> PhaseLatency:
    return PhaseLatency(
        phase=look.phase,
        latency=look.latency,
        onnxruntime=look.onnxruntime,
        tuned_coverage=look.artifact.tuned_coverage,
        is_plain_look=look.is_plain,
    )


def least_violating(
    records: tuple[TrialRecord, ...], budgets: tuple[Budget, ...], limit: int = 5
) -> tuple[TrialRecord, ...]:
    """The measured trials that come closest to the budgets, best first: shown when none meets them.

    A phase that was left out, as an earlier one was over its budget, adds nothing.
    """
    from nas.gates.budget import violations

    def excess(record: TrialRecord) -> float:
        assert record.cost is not None
        return sum(max(0.0, amount) for _, amount in violations(budgets, record.cost))

    measured = [
        record
        for record in records
        if record.cost is not None
        and record.duplicate_of is None
        and record.outcome.kind == "quality"
        and record.outcome is not Outcome.STOPPED_EARLY  # within the budgets
    ]
    return tuple(sorted(measured, key=lambda record: (excess(record), record.trial))[:limit])
