"""Samplers beside each other on a space of our own: real studies, equal wall time, hypervolume of what they scored.

Each sampler searches once a seed, for so many minutes, under one budget and with the same cost model to screen. A
study is a folder; one that has ended is not run again, so the bench can be stopped and gone on with. Samplers take
turns within a seed, and begin in another order with the next: what the first one leaves in the caches (kernels,
measurements) helps each of them about as often. The studies end with their trials: no winners are measured again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nas.bench.result import BenchResult, Cell, Figure
from nas.config import StudyConfig
from nas.errors import NasError
from nas.front import Direction, hypervolume
from nas.phases import phase_names, study_budgets, timed_phases
from nas.search.loop import run_search, settle_budgets
from nas.search.progress import Watcher
from nas.search.screener import open_screener
from nas.search.session import MakeBench
from nas.search.study import open_folder, open_ledger, open_optuna_study, write_manifest
from nas.search.workbench import LocalWorkbench
from nas.training.data.sources import load_task
from nas.training.task import Task
from nas.trial import Outcome, TrialRecord
from search_spaces.registry import make_space
from search_spaces.space import SearchSpace

OURS = "budget"
EVENT = "bench_ended"
MANY_TRIALS = 100_000
"""More than any study makes: minutes end it."""


class BenchSamplersError(NasError):
    """A comparison that was asked for wrongly, or that came to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared.

    Attributes:
        config: of every study but for sampler, seed, folder and length.
        out: folder of the studies' folders.
        samplers: by name; `budget` and at least one other.
        num_seeds: studies a sampler.
        minutes: wall clock of each study, from its first trial.
    """

    config: StudyConfig
    out: Path
    samplers: tuple[str, ...]
    num_seeds: int
    minutes: float

    def __post_init__(self) -> None:
        if OURS not in self.samplers or len(set(self.samplers)) < 2:
            raise BenchSamplersError(f"samplers {', '.join(self.samplers)}: allowed: {OURS} and at least one other")

    def study(self, sampler: str, seed: int, budgets: tuple[str, ...]) -> StudyConfig:
        """The configuration of one study."""
        search = self.config.search.model_copy(
            update={"sampler": sampler, "seed": seed, "budgets": budgets, "minutes": self.minutes,
                    "trials": MANY_TRIALS}
        )  # fmt: skip
        return self.config.model_copy(update={"search": search, "output": self._output(f"{sampler}-{seed}")})

    def reference(self) -> StudyConfig:
        """Of the study in which a default budget is measured."""
        return self.config.model_copy(update={"output": self._output("reference")})

    def _output(self, name: str) -> object:
        return self.config.output.model_copy(update={"out": self.out / name, "storage": None})


def bench_samplers(
    comparison: Comparison, watcher: Watcher, *, is_quick: bool, make_bench: MakeBench | None = None
) -> BenchResult:
    """Runs every study that has not ended yet, and compares.

    Args:
        comparison: what is compared.
        watcher: told how far it is.
        is_quick: whether this was asked for as a coarse run.
        make_bench: None makes the real tools of this machine.

    Raises:
        NasError: a folder, device or configuration that cannot be used, or no scored network in any study.
    """
    task = load_task(comparison.config.task)
    space = make_space(comparison.config.search.space, task.input, task.head)
    make = make_bench or LocalWorkbench
    budgets = _common_budgets(comparison, space, task, make, watcher)
    records: dict[tuple[str, int], tuple[TrialRecord, ...]] = {}
    for seed in range(comparison.num_seeds):
        first = seed % len(comparison.samplers)
        for sampler in (*comparison.samplers[first:], *comparison.samplers[:first]):
            watcher.note(f"{sampler}, seed {seed}: {comparison.minutes:g} minutes")
            config = comparison.study(sampler, seed, budgets)
            records[sampler, seed] = _searched(config, space, task, make, watcher)
    phase = phase_names(space)[0]
    parsed = study_budgets(comparison.study(OURS, 0, budgets).search.parsed_budgets, space)
    maximum = next((each.maximum for each in parsed if each.metric == "latency_ms" and each.phase == phase), None)
    return compared(records, phase, maximum, task.direction, is_quick=is_quick)


def _common_budgets(
    comparison: Comparison, space: SearchSpace, task: Task, make: MakeBench, watcher: Watcher
) -> tuple[str, ...]:
    """Those of the configuration, else the reference's latency, measured once for all studies."""
    if comparison.config.search.budgets:
        return comparison.config.search.budgets
    config = comparison.reference()
    with open_folder(config, fresh=False) as folder, open_ledger(config) as ledger:
        bench = make(config, folder, ledger, phase_names(space)[:1], watcher)
        try:
            write_manifest(folder, config, task, bench.device, {})
            budgets, _ = settle_budgets(config, space, ledger, bench, watcher)
        finally:
            bench.close()
    return tuple(str(budget) for budget in budgets)


def _searched(
    config: StudyConfig, space: SearchSpace, task: Task, make: MakeBench, watcher: Watcher
) -> tuple[TrialRecord, ...]:
    """The trials of one study, which is run unless it has ended. One that was broken off is moved aside: going on
    would give it more than its minutes."""
    if (config.results_dir / "study.db").is_file():
        with open_folder(config, fresh=False), open_ledger(config) as ledger:
            if ledger.events(EVENT):
                return ledger.records()
    timed = timed_phases(phase_names(space), study_budgets(config.search.parsed_budgets, space))
    with open_folder(config, fresh=True) as folder, open_ledger(config) as ledger:
        bench = make(config, folder, ledger, timed, watcher)
        try:
            write_manifest(folder, config, task, bench.device, {})
            bench.budgets, _ = settle_budgets(config, space, ledger, bench, watcher)
            if config.search.screen:
                bench.screener = open_screener(
                    space, timed, bench.device.fingerprint, seed=config.search.seed, ledger=ledger, watcher=watcher
                )
            with open_optuna_study(config, task.direction) as study:
                ended_because = run_search(config, space, study, ledger, bench, watcher)
            ledger.add_event(EVENT, {"because": ended_because})
        finally:
            bench.close()
        return ledger.records()


Point = tuple[float, float]
"""Quality and latency in ms."""


def compared(
    records: Mapping[tuple[str, int], Sequence[TrialRecord]],
    phase: str,
    maximum_ms: float | None,
    direction: Direction,
    *,
    is_quick: bool = False,
) -> BenchResult:
    """Hypervolume of every study, from the worst quality that any of them scored and the budget (or largest latency).

    Args:
        records: trials of each (sampler, seed); every sampler has every seed.
        phase: whose latency counts.
        maximum_ms: its budget; None where it has none.
        direction: of quality.
        is_quick: passed on.

    Raises:
        BenchSamplersError: nothing was scored.
    """
    points = {key: [_point(each, phase) for each in trials if _counts(each)] for key, trials in records.items()}
    every = list(itertools.chain.from_iterable(points.values()))
    if not every:
        raise BenchSamplersError("no study scored a network; give more --minutes or a larger --budget")
    worst = (min if direction == "maximize" else max)(quality for quality, _ in every)
    reference = (worst, maximum_ms or max(latency for _, latency in every))
    directions: tuple[Direction, Direction] = (direction, "minimize")
    whole = hypervolume(every, reference, directions) or 1.0
    rows: list[dict[str, Cell]] = [
        {
            "sampler": sampler,
            "seed": seed,
            "trials": len(records[sampler, seed]),
            "scored": len(found),
            "hypervolume": hypervolume(found, reference, directions) / whole if found else 0.0,
        }
        for (sampler, seed), found in points.items()
    ]
    samplers = list(dict.fromkeys(sampler for sampler, _ in records))
    volumes = {
        name: np.array([float(row["hypervolume"] or 0.0) for row in sorted(rows, key=lambda row: int(row["seed"] or 0))
                        if row["sampler"] == name])
        for name in samplers
    }  # fmt: skip
    best = max((name for name in samplers if name != OURS), key=lambda name: float(volumes[name].mean()))
    gap, half = _interval(volumes[OURS] - volumes[best])
    figures: dict[str, Figure] = {
        "hypervolume": {name: float(values.mean()) for name, values in volumes.items()},
        "hypervolume_half_width95": {name: _interval(values)[1] for name, values in volumes.items()},
        "trials": {name: _mean(rows, name, "trials") for name in samplers},
        "scored": {name: _mean(rows, name, "scored") for name in samplers},
        f"ours_minus_{best}": gap,
        f"ours_minus_{best}_half_width95": half,
    }
    return BenchResult(bench="samplers", device="local", figures=figures, rows=rows, is_quick=is_quick)


def _counts(record: TrialRecord) -> bool:
    return record.outcome is Outcome.SCORED and record.duplicate_of is None


def _point(record: TrialRecord, phase: str) -> Point:
    assert record.score is not None and record.cost is not None
    estimate = record.cost.latency(phase)
    assert estimate is not None, "a scored trial was measured in the primary phase"
    return record.score.value, estimate.latency_ms


def _mean(rows: Sequence[Mapping[str, Cell]], sampler: str, column: str) -> float:
    return float(np.mean([float(row[column] or 0) for row in rows if row["sampler"] == sampler]))


def _interval(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float | None]:
    """Mean, and half the width of its 95% interval (Student's t); None of one value."""
    from scipy.stats import t

    if len(values) < 2:
        return float(values.mean()), None
    error = float(values.std(ddof=1)) / len(values) ** 0.5
    return float(values.mean()), float(t.ppf(0.975, len(values) - 1)) * error
