"""`nas bench search TABLE`: replays searches on a public table, ours beside those that people use today."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from nas.errors import NasError

QUICK_METHODS = ("random", "nsga2", "tpe_multivariate", "evolution", "ours")
QUICK_SEEDS, QUICK_EVALUATIONS = 2, 25


class BenchSearchError(NasError):
    """A replay that was asked for wrongly."""


def search(
    table: Annotated[Path, typer.Argument(help="CSV of architecture, quality and latency, compressed or not.")],
    quality: Annotated[str | None, typer.Option(help="Column of quality; the first one found otherwise.")] = None,
    device: Annotated[str | None, typer.Option(help="Device, or column of latency in ms; else the first one.")] = None,
    architecture: Annotated[
        list[str] | None, typer.Option(help="Column that describes an architecture. Repeatable.")
    ] = None,
    quantile: Annotated[float, typer.Option(help="Quantile of the latencies that is the budget.")] = 0.4,
    budget_ms: Annotated[float | None, typer.Option(help="The budget, instead of a quantile.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Method to replay; all of them otherwise.")] = None,
    seeds: Annotated[int, typer.Option(help="Searches a method.")] = 10,
    evaluations: Annotated[int, typer.Option(help="Architectures that each search evaluates.")] = 200,
    noise: Annotated[
        float, typer.Option(help="Deviation of one training about the table's quality, in its unit (0.003: 0.3%).")
    ] = 0.0,
    measured: Annotated[int, typer.Option(help="Latencies that our cost model is fitted on beforehand.")] = 20,
    quick: Annotated[bool, typer.Option("--quick", help="Few methods, seeds and evaluations: coarse figures.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for search.csv and search.png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Replay searches on a table: hypervolume and regret after 25, 50, 100 and 200 evaluations."""
    from nas.bench.search_methods import METHODS
    from nas.bench.table_problem import make_problem
    from nas.bench.table_search import bench_search
    from nas.bench.tables import load_table
    from nas.cli.bench import deliver

    if unknown := [name for name in method or () if name not in METHODS]:
        raise BenchSearchError(f"method {unknown[0]!r}: unknown; allowed: {', '.join(METHODS)}")
    if not 0 < quantile <= 1 or seeds < 1 or evaluations < 1 or not 0 <= noise < math.inf or measured < 0:
        raise BenchSearchError(
            f"quantile {quantile:g}, {seeds} seeds, {evaluations} evaluations, noise {noise:g}, {measured} measured:"
            " allowed are a quantile above 0 and up to 1, at least 1 seed and 1 evaluation, and nothing negative"
        )
    loaded = load_table(table, architecture=architecture, qualities=None if quality is None else [quality])
    problem = make_problem(
        loaded,
        quality=quality or next(iter(loaded.qualities), "quality"),
        device=device or next(iter(loaded.devices)),
        quantile=quantile,
        budget_ms=budget_ms,
    )
    print(f"{problem.name}: budget {problem.budget_ms:.4g} ms, {len(problem.choices)} architectures", file=sys.stderr)
    result, replays = bench_search(
        problem,
        method or (QUICK_METHODS if quick else tuple(METHODS)),
        num_seeds=min(seeds, QUICK_SEEDS) if quick else seeds,
        num_evaluations=min(evaluations, QUICK_EVALUATIONS) if quick else evaluations,
        noise=noise,
        num_measured=measured,
        is_quick=quick,
        report=lambda line: print(line, file=sys.stderr, flush=True),
    )
    deliver(result, as_json=as_json, out=out)
    if out is not None:
        from nas.bench.search_plot import draw_replays

        draw_replays(replays, problem.name, out / "search.png")
