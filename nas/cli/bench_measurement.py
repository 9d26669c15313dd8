"""`nas bench measurement`: false alarms, interference, coverage and cost of measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.errors import NasError


class PartError(NasError):
    """A part that the bench does not have."""


def measurement(
    quick: Annotated[bool, typer.Option("--quick", help="Few observations: within a minute, and coarse.")] = False,
    part: Annotated[
        list[str] | None, typer.Option(help="speed, quiet, hogs, apart, coverage or aa; all by default. Repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for rows and CSV; rows that are there are not measured again.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for the pictures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure how far latencies can be trusted here: A/A tests, hogs, coverage, cost."""
    from rich.console import Console

    from nas.bench.measurement.parts import PARTS
    from nas.bench.measurement.run import run_bench
    from nas.cli.bench import deliver

    parts = part or list(PARTS)
    if unknown := [name for name in parts if name not in PARTS]:
        raise PartError(f"--part {unknown[0]!r}: unknown; allowed: {', '.join(PARTS)}")
    console = Console(stderr=True)

    def note(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    result = run_bench(list(dict.fromkeys(parts)), is_quick=quick, out=out, plots=plots, note=note)
    deliver(result, as_json=as_json, out=out)
