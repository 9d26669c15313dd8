"""Replays searches on a public table: how much of the true front each method has found, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nas.bench.result import BenchResult, Cell
from nas.bench.search_methods import METHODS, Seen
from nas.bench.table_problem import TableProblem

MARKS = (25, 50, 100, 200)
"""Evaluations at which figures are given."""

MAX_REPEATS = 50
"""Repeated proposals in a row that cost nothing; the next one counts, so that a method that is stuck ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One method, one seed.

    Attributes:
        covered: relative hypervolume after each evaluation.
        regret: after each evaluation.
        propose_s: mean seconds a proposal.
    """

    method: str
    seed: int
    covered: tuple[float, ...]
    regret: tuple[float, ...]
    propose_s: float


def replay_method(
    problem: TableProblem, method: str, *, seed: int, num_evaluations: int, noise: float = 0.0, num_measured: int = 20
) -> Replay:
    """Runs one search.

    Args:
        problem: what is searched.
        method: one of `METHODS`.
        seed: of the method and of the noise.
        num_evaluations: architectures that are evaluated; a repeated one is free, as its result is known.
        noise: deviation of a single training about the table's quality, in the table's unit. The method
            sees the noisy value, the figures are made from the table's.
        num_measured: latencies that a cost model may be fitted on beforehand.
    """
    searcher = METHODS[method](problem, seed, num_measured)
    draws = np.random.default_rng([seed, 2])
    seen: dict[int, Seen] = {}
    order: list[int] = []
    covered, regret, spent_s, num_asked, repeats = [], [], 0.0, 0, 0
    while len(order) < min(num_evaluations, len(problem.choices)):
        started = time.perf_counter()
        row = searcher.ask()
        spent_s, num_asked = spent_s + time.perf_counter() - started, num_asked + 1
        is_known = row in seen
        if not is_known:
            quality = problem.qualities[row] + (noise * draws.normal() if noise else 0.0)
            seen[row] = Seen(row=row, quality=float(quality), latency_ms=float(problem.latencies_ms[row]))
        searcher.tell(seen[row])
        repeats = repeats + 1 if is_known else 0
        if not is_known or repeats > MAX_REPEATS:
            order.append(row)
            covered.append(problem.covered(order))
            regret.append(problem.regret(order))
    return Replay(
        method=method, seed=seed, covered=tuple(covered), regret=tuple(regret), propose_s=spent_s / max(1, num_asked)
    )


def bench_search(
    problem: TableProblem,
    methods: Sequence[str],
    *,
    num_seeds: int,
    num_evaluations: int,
    noise: float,
    num_measured: int,
    is_quick: bool,
    report: Callable[[str], None],
) -> tuple[BenchResult, tuple[Replay, ...]]:
    """Every method with every seed; `report` is told a line after each method."""
    replays: list[Replay] = []
    for method in methods:
        for seed in range(num_seeds):
            replays.append(
                replay_method(
                    problem,
                    method,
                    seed=seed,
                    num_evaluations=num_evaluations,
                    noise=noise,
                    num_measured=num_measured,
                )
            )
        latest = replays[-num_seeds:]
        marks = [mark for mark in MARKS if mark <= num_evaluations]
        report(
            f"{method}: hypervolume "
            + ", ".join(f"{np.mean([_covered_at(mark)(each) for each in latest]):.3f} at {mark}" for mark in marks)
            + f"; regret {np.mean([each.regret[-1] for each in latest]):.3g};"
            f" {np.mean([each.propose_s for each in latest]):.3f} s a proposal"
        )
    figures: dict[str, dict[str, float]] = {}
    for mark in (mark for mark in MARKS if mark <= num_evaluations):
        covered, regret = _covered_at(mark), _regret_at(mark)
        figures[f"hv{mark}"] = _mean_of(replays, methods, covered)
        figures[f"hv{mark}_se"] = _error_of(replays, methods, covered)
        figures[f"regret{mark}"] = _mean_of(replays, methods, regret)
    figures["propose_s"] = _mean_of(replays, methods, lambda each: each.propose_s)
    rows: list[dict[str, Cell]] = [
        {
            "problem": problem.name,
            "method": each.method,
            "seed": each.seed,
            "evaluations": count,
            "hypervolume": round(each.covered[count - 1], 6),
            "regret": round(each.regret[count - 1], 6),
            "propose_s": round(each.propose_s, 4),
        }
        for each in replays
        for count in range(1, len(each.covered) + 1)
    ]
    return BenchResult(bench="search", device=None, figures=figures, rows=rows, is_quick=is_quick), tuple(replays)


def _covered_at(mark: int) -> Callable[[Replay], float]:
    return lambda replay: replay.covered[min(mark, len(replay.covered)) - 1]


def _regret_at(mark: int) -> Callable[[Replay], float]:
    return lambda replay: replay.regret[min(mark, len(replay.regret)) - 1]


def _mean_of(replays: Sequence[Replay], methods: Sequence[str], value: Callable[[Replay], float]) -> dict[str, float]:
    return {method: float(np.mean([value(each) for each in replays if each.method == method])) for method in methods}


def _error_of(replays: Sequence[Replay], methods: Sequence[str], value: Callable[[Replay], float]) -> dict[str, float]:
    """Standard error of the mean over seeds."""
    result = {}
    for method in methods:
        values = [value(each) for each in replays if each.method == method]
        result[method] = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
    return result
