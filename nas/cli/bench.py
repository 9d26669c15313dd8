"""`nas bench NAME`: the commands that measure what this project claims. One file a bench, `bench_NAME.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nas.cli import (
    bench_device_time,
    bench_gates,
    bench_kernels,
    bench_language,
    bench_measurement,
    bench_predictors,
    bench_samplers,
    bench_search,
    bench_study_scale,
    bench_zero_cost,
)

if TYPE_CHECKING:
    from nas.bench.result import BenchResult

app = typer.Typer(help="Measure what this project claims, with the figures in the README.", no_args_is_help=True)
app.command("device-time")(bench_device_time.device_time)
app.command("gates")(bench_gates.gates)
app.command("measurement")(bench_measurement.measurement)
app.command("kernels")(bench_kernels.kernels)
app.command("language")(bench_language.language)
app.command("predictors")(bench_predictors.predictors)
app.command("samplers")(bench_samplers.samplers)
app.command("search")(bench_search.search)
app.command("study-scale")(bench_study_scale.study_scale)
app.command("zero-cost")(bench_zero_cost.zero_cost)


@app.callback()
def bench() -> None:
    """Measure what this project claims. With --quick within a minute, and coarsely."""


def deliver(result: BenchResult, *, as_json: bool, out: Path | None) -> None:
    """Writes `<bench>.csv` into the folder `out`, if there is one, and prints JSON or the figures.

    Raises:
        ReportError: the folder cannot be written to.
    """
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        result.write_csv(out / f"{result.bench}.csv")
    if as_json:
        print(json.dumps(result.to_json()))
        return
    if result.is_quick:
        print("quick run: these figures are coarse")
    for line in figure_lines(result.figures):
        print(line)


def figure_lines(figures: object, indent: str = "") -> list[str]:
    """One line a figure.

    >>> figure_lines({"hv25": {"ours": 0.97}, "coverage": None})
    ['hv25', '  ours: 0.97', 'coverage: not measured']
    """
    lines = []
    assert hasattr(figures, "items")
    for name, value in figures.items():
        if value is None:
            lines.append(f"{indent}{name}: not measured")
        elif hasattr(value, "items"):
            lines += [f"{indent}{name}", *figure_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {value:.4g}")
    return lines
