"""`nas bench predictors TABLE`: the cost model against published latency tables and trivial baselines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from nas.bench.result import BenchResult, Cell

SAMPLES = (10, 20, 50, 100)
QUICK_SAMPLES = (10, 20, 50)
QUICK_SEEDS = 2
SHOWN = ("spearman", "kendall", "within5", "within10", "mape", "coverage90", "violations", "admitted")


def predictors(
    table: Annotated[Path, typer.Argument(help="CSV file, may be .gz: an architecture a row, latencies in ms.")],
    device: Annotated[list[str] | None, typer.Option(help="Only this column; may be given several times.")] = None,
    samples: Annotated[list[int] | None, typer.Option(help="Size of a fit; may be given several times.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Fits of each size and device.")] = 10,
    selection: Annotated[str, typer.Option(help="random, or informative: as `nas calibrate` chooses.")] = "random",
    transfer_from: Annotated[str | None, typer.Option(help="Few-shot: this column's model helps the others.")] = None,
    architecture: Annotated[list[str] | None, typer.Option(help="Column that describes an architecture.")] = None,
    latency: Annotated[list[str] | None, typer.Option(help="Column of latencies in ms.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture (PNG).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for predictors.csv.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="2 seeds, up to 50 samples: coarse.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Fit the cost model to few rows of a table of latencies, and compare what it says of the others."""
    from nas.bench.predictors import Replay, replay, save_plot
    from nas.bench.tables import load_table
    from nas.cli.bench import deliver
    from nas.errors import NasError

    if selection not in ("random", "informative"):
        raise NasError(f"--selection {selection!r} is unknown; allowed: random, informative")
    chosen: Literal["random", "informative"] = "informative" if selection == "informative" else "random"
    what = Replay(
        devices=tuple(device or ()),
        num_samples=tuple(samples or (QUICK_SAMPLES if quick else SAMPLES)),
        num_seeds=QUICK_SEEDS if quick else seeds,
        selection=chosen,
        transfer_from=transfer_from,
    )
    loaded = load_table(table, architecture=architecture, latencies=latency)
    result = replay(loaded, what, is_quick=quick, on_progress=lambda name: print(f"fitting {name}", file=sys.stderr))
    if plot is not None:
        save_plot(result, plot)
    if not as_json:
        print_table(result)
    if as_json or out is not None:
        deliver(result, as_json=as_json, out=out)


def print_table(result: BenchResult) -> None:
    """One line a device, size and predictor: means over seeds, to stdout."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as Grid

    from nas.bench.predictors import TUNED_ON

    if result.is_quick:
        print("quick run: these figures are coarse")
    grid = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    columns = ("device", "n", "predictor", *SHOWN)
    for column in columns:
        grid.add_column(column, justify="left" if column in ("device", "predictor") else "right", no_wrap=True)
    groups: dict[tuple[str, str, str], list[Mapping[str, Cell]]] = {}
    for row in result.rows:
        groups.setdefault((str(row["device"]), str(row["num_samples"]), str(row["predictor"])), []).append(row)
    for group, rows in groups.items():
        grid.add_row(*group, *(_mean_text([row[name] for row in rows]) for name in SHOWN))
    Console(width=140).print(grid)
    print("within5, within10, coverage90, violations and admitted are shares; mape is a fraction (1.0 is 100%),")
    print("large where a table has latencies near zero; violations: of those admitted at a budget of the median")
    tuned = sorted({str(row["device"]) for row in result.rows} & TUNED_ON)
    if tuned:
        print(f"not in the figures over all devices, as the model's form was chosen on them: {', '.join(tuned)}")
    dropped = result.figures["dropped_values"]
    assert isinstance(dropped, Mapping)
    for device, count in dropped.items():
        if count:
            print(f"{device}: {count:.0f} values dropped: empty, not finite, zero or negative")


def _mean_text(values: list[Cell]) -> str:
    """A mean for people; empty when there is nothing.

    >>> _mean_text([0.5, None, 1.0]), _mean_text([None])
    ('0.750', '')
    """
    known = [float(value) for value in values if value is not None]
    return f"{sum(known) / len(known):.3f}" if known else ""
