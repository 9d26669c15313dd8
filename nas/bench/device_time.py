"""What finished studies spent on compiling and measuring, and how good their fronts are: one row a study."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nas.bench.contenders import BenchError
from nas.bench.result import BenchResult, Cell
from nas.config import StudyConfig
from nas.front import Direction, hypervolume
from nas.ledger import Ledger
from nas.search.screening_report import MEASURING_STAGES, ScreeningReport, screening_report
from nas.search.stored import stored_config
from nas.training.score import LOWER_IS_BETTER
from nas.trial import Outcome

LATENCY_MARGIN = 1.05
"""The reference point lies this much beyond the slowest point of all fronts, so that every member counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCost:
    """One finished study.

    Attributes:
        folder: its results folder.
        config: its configuration.
        num_trials: distinct networks it tried.
        trial_seconds: wall seconds of tuning, compiling and measuring in all trials.
        winner_seconds: wall seconds of measuring networks of the front again.
        screening: what the cost model decided.
        front: (val score, latency in ms) of the published networks.
        worst_score: of the networks that it scored.
        metric: of the scores.
    """

    folder: Path
    config: StudyConfig
    num_trials: int
    trial_seconds: float
    winner_seconds: float
    screening: ScreeningReport
    front: tuple[tuple[float, float], ...]
    worst_score: float
    metric: str


def bench_device_time(folders: Sequence[Path]) -> BenchResult:
    """Compares studies of the same space, data, budgets and number of trials.

    Figures: `device_seconds` a study, `saved_factor` (seconds of the first study over its own), `hypervolume`
    relative to that of the first study.

    Args:
        folders: results folders; the first one is what the others are compared with.

    Raises:
        BenchError: fewer than two studies, one that has not ended, or two that differ in more than how they search.
        StudyError: a folder without a study.
    """
    if len(folders) < 2:
        raise BenchError(f"{len(folders)} results folders; allowed: two or more, the one to compare with first")
    studies = [read_study(folder) for folder in folders]
    for study in studies[1:]:
        _require_same(studies[0], study)
    names = [study.folder.name for study in studies]
    if len(set(names)) < len(names):
        names = [str(study.folder) for study in studies]
    volumes = _hypervolumes(studies)
    seconds = [study.trial_seconds + study.winner_seconds for study in studies]
    rows: list[dict[str, Cell]] = [
        {
            "study": name, "measure": study.config.search.measure, "sampler": study.config.search.sampler,
            "trials": study.num_trials, "trial_seconds": study.trial_seconds, "winner_seconds": study.winner_seconds,
            "ruled_out": study.screening.num_ruled_out, "trusted": study.screening.num_trusted,
            "audited": study.screening.num_audited + study.screening.num_trusted_audited,
            "audited_wrong": study.screening.num_wrong + study.screening.num_trusted_wrong,
            "front": len(study.front), "hypervolume": volume,
        }
        for name, study, volume in zip(names, studies, volumes, strict=True)
    ]  # fmt: skip
    return BenchResult(
        bench="device-time",
        device=studies[0].config.device.id,
        figures={
            "device_seconds": dict(zip(names, seconds, strict=True)),
            "saved_factor": {name: seconds[0] / each for name, each in zip(names[1:], seconds[1:], strict=True)},
            "hypervolume": {
                name: volume / volumes[0] if volumes[0] else None
                for name, volume in zip(names[1:], volumes[1:], strict=True)
            },
        },
        rows=rows,
        is_quick=False,
    )


def read_study(folder: Path) -> StudyCost:
    """What a results folder says of its study.

    Raises:
        BenchError: the study has not ended, or has scored nothing.
        StudyError: there is no study.
    """
    config = stored_config(folder)
    path = folder / "front.csv"
    if not path.is_file():
        raise BenchError(f"{folder}: no front.csv; the search has not ended there, run the same `nas search` again")
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("val_score")]
    with Ledger(config.storage_url) as ledger:
        records = [record for record in ledger.records() if record.duplicate_of is None]
        scores = [record.score for record in records if record.outcome is Outcome.SCORED and record.score is not None]
        if not scores:
            raise BenchError(f"{folder}: no network was scored; there is no front to compare")
        winners = [event.detail for event in ledger.events("winner_measured")]
        metric = scores[0].metric
        pick = max if metric in LOWER_IS_BETTER else min
        return StudyCost(
            folder=folder,
            config=config,
            num_trials=len(records),
            trial_seconds=sum(
                amount for record in records for stage, amount in record.seconds if stage in MEASURING_STAGES
            ),
            winner_seconds=sum(float(detail["measurement"]["duration_s"]) for detail in winners),
            screening=screening_report(ledger),
            front=tuple((float(row["val_score"]), float(row["latency_ms"])) for row in rows),
            worst_score=pick(score.value for score in scores),
            metric=metric,
        )


def _require_same(first: StudyCost, other: StudyCost) -> None:
    for what, left, right in (
        ("space", first.config.search.space, other.config.search.space),
        ("task", first.config.task.name, other.config.task.name),
        ("budgets", first.config.search.budgets, other.config.search.budgets),
        ("training", first.config.training, other.config.training),
        ("number of trials", first.config.search.trials, other.config.search.trials),
    ):
        if left != right:
            raise BenchError(
                f"{other.folder}: {what} {right!r}, {first.folder} has {left!r}; allowed: studies that differ only in"
                " how they search"
            )


def _hypervolumes(studies: Sequence[StudyCost]) -> list[float]:
    """Of each front, from one reference point: the worst score of all, and just beyond the slowest member."""
    directions: list[Direction] = ["minimize" if studies[0].metric in LOWER_IS_BETTER else "maximize", "minimize"]
    worst = (max if directions[0] == "minimize" else min)(study.worst_score for study in studies)
    members = [member for study in studies for member in study.front]
    slowest = LATENCY_MARGIN * max((latency for _, latency in members), default=1.0)
    return [
        hypervolume(np.array(study.front), [worst, slowest], directions) if study.front else 0.0 for study in studies
    ]
