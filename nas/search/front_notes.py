"""What must be known of a front beyond its numbers: other seeds, ties, slices that fell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from nas.front import Direction
from nas.gates.seeds import over_seeds, ties_with_faster
from nas.gates.slices import fallen_slices, slice_miss
from nas.ledger import Ledger
from nas.report.summary import DroppedWinner, FrontMember
from nas.search.finalists import Finalist
from nas.search.progress import Watcher
from nas.training.baselines import Baseline
from nas.training.recipe import Recipe
from nas.training.result import TrainFailure, TrainResult
from nas.training.score import HeldOutScore
from nas.trial import Outcome, TrialRecord, score_from_json, score_to_json
from search_spaces.candidate import Candidate


class SeedsBench(Protocol):
    """The tool of other seeds."""

    def train_apart(self, candidate: Candidate, recipe: Recipe, seed: int, folder: str) -> TrainResult | TrainFailure:
        """Trains a candidate in a folder of its own, beside the study's trials."""
        ...


def without_bad_slices(
    records: tuple[TrialRecord, ...], min_slice: float | None, direction: Direction
) -> tuple[tuple[TrialRecord, ...], tuple[DroppedWinner, ...]]:
    """The records that may be on a front as far as slices go, and the scored ones that may not."""
    kept, dropped = [], []
    for record in records:
        reason = None if record.score is None else slice_miss(record.score, min_slice, direction)
        if reason is None:
            kept.append(record)
        elif record.duplicate_of is None:
            dropped.append(DroppedWinner(candidate_id=record.candidate.candidate_id, trial=record.trial, reason=reason))
    return tuple(kept), tuple(dropped)


def without_unlearned(
    records: tuple[TrialRecord, ...], constant: float, direction: Direction
) -> tuple[tuple[TrialRecord, ...], tuple[DroppedWinner, ...]]:
    """The records that may be on a front as far as learning goes, and the scored ones that may not.

    A network that is not surely better than an answer that is always the same is of no use, however fast it is. Where
    all are like that they stay: then something is wrong with the study, and the gate `learning` says so.

    Args:
        records: of the study.
        constant: score of the best answer that does not look at the inputs.
        direction: of the metric.
    """
    sign = 1.0 if direction == "maximize" else -1.0
    kept, dropped = [], []
    for record in records:
        score = record.score
        surely = None if score is None else (score.lower if direction == "maximize" else score.upper)
        if score is None or surely is None or sign * surely > sign * constant:
            kept.append(record)
        elif record.duplicate_of is None:
            reason = f"val score {score.value:.3f}: an answer that is always the same scores {constant:.3f}"
            dropped.append(DroppedWinner(candidate_id=record.candidate.candidate_id, trial=record.trial, reason=reason))
    if not any(record.score is not None for record in kept):
        return records, ()
    return tuple(kept), tuple(dropped)


def train_other_seeds(
    finalists: tuple[Finalist, ...], num_seeds: int, recipe: Recipe, seed: int, bench: SeedsBench, ledger: Ledger,
    watcher: Watcher,
) -> dict[int, HeldOutScore]:  # fmt: skip
    """The val score of each finalist over `num_seeds` trainings, by trial; what the ledger knows is not trained again.

    A seed that diverges counts: its finalist gets no score over seeds, and the watcher is told.
    """
    result: dict[int, HeldOutScore] = {}
    for number, finalist in enumerate(finalists if num_seeds > 1 else ()):
        record = finalist.record
        assert record.score is not None
        watcher.stage("seeds", number, len(finalists))
        scores: list[HeldOutScore] = [record.score]
        for other in range(seed + 1, seed + num_seeds):
            score = _score_of_seed(record, other, recipe, bench, ledger)
            if isinstance(score, TrainFailure):
                watcher.note(f"trial {record.trial}, seed {other}: {score.kind}: {score.reason}; no score over seeds")
                break
            scores.append(score)
        else:
            result[record.trial] = over_seeds(scores)
    return result


def _score_of_seed(
    record: TrialRecord, seed: int, recipe: Recipe, bench: SeedsBench, ledger: Ledger
) -> HeldOutScore | TrainFailure:
    stage = f"seed@{seed}"
    for known in ledger.stages(record.trial):
        if known.stage == stage:
            return score_from_json(known.payload["score"])
    trained = bench.train_apart(record.candidate, recipe, seed, f"seed-{record.candidate.candidate_id}-{seed}")
    if isinstance(trained, TrainFailure):
        return trained
    ledger.record_stage(record.trial, stage, {"score": score_to_json(trained.score)}, trained.duration_s)
    return trained.score


def annotate(
    members: tuple[FrontMember, ...],
    seed_scores: Mapping[int, HeldOutScore],
    reference: HeldOutScore | None,
    direction: Direction,
    baseline: Baseline | None = None,
) -> tuple[FrontMember, ...]:
    """Members with their score over seeds, the faster one that they tie with, and what they fail to reach.

    Args:
        members: fastest first.
        seed_scores: by trial.
        reference: val score of the space's reference network; None when it has none.
        direction: of the metric.
        baseline: on val; members that do not beat it beyond their interval are marked.
    """
    scores = [seed_scores.get(member.record.trial, member.val_score) for member in members]
    ties = ties_with_faster(scores, direction)
    result = []
    for member, faster in zip(members, ties, strict=True):
        notes = member.notes + fallen_slices(member.val_score, reference, direction)
        if baseline is not None and not _beats(member.val_score, baseline, direction):
            notes = (*notes, f"not better than the baseline ({baseline.name}, {baseline.value:.3f} on val)")
        tied_with = None if faster is None else members[faster].candidate_id
        if tied_with is not None:
            notes = (*notes, f"not better than the faster {tied_with} beyond the intervals: a tie")
        result.append(
            replace(member, notes=notes, tied_with=tied_with, seed_score=seed_scores.get(member.record.trial))
        )
    return tuple(result)


def _beats(score: HeldOutScore, baseline: Baseline, direction: Direction) -> bool:
    return score.lower > baseline.value if direction == "maximize" else score.upper < baseline.value


def reference_score(records: tuple[TrialRecord, ...], references: tuple[tuple[str, int], ...]) -> HeldOutScore | None:
    """The val score of the first reference network that has one."""
    by_trial = {record.trial: record for record in records if record.outcome is Outcome.SCORED}
    return next((by_trial[trial].score for _, trial in references if trial in by_trial), None)
