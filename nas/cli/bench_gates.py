"""`nas bench gates`: faults planted into small runs, and clean runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nas.bench.result import BenchResult


def gates(
    out: Annotated[Path | None, typer.Option(help="Folder for gates.csv.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="2 short clean studies, no audit: coarse.")] = False,
    study: Annotated[
        Path | None, typer.Option(help="Results folder of a search: which share of its time its gates took.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Plant faults into small studies and say which gate caught each; clean studies must pass."""
    from nas.bench.gates import run_gates
    from nas.cli.bench import deliver

    result = run_gates(is_quick=quick, on_progress=lambda name: print(name, file=sys.stderr), study=study)
    if not as_json:
        print_table(result)
    deliver(result, as_json=as_json, out=out)
    if result.figures["faults_caught"] != result.figures["faults_planted"] or result.figures["clean_flagged"]:
        raise typer.Exit(1)


def print_table(result: BenchResult) -> None:
    """One line a run, to stdout."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("run", "expected gate", "fired", "as expected", "s"):
        grid.add_column(column, justify="right" if column == "s" else "left")
    for row in result.rows:
        verdict = "yes" if row["is_as_expected"] else "NO"
        grid.add_row(escape(str(row["name"])), str(row["expected_gate"] or "none"), str(row["fired"] or "none"),
                     verdict, f"{float(row['duration_s'] or 0):.1f}")  # fmt: skip
    Console().print(grid)
    for name, what in (
        ("clean_gate_share", "clean studies, without compiler and device"),
        ("study_gate_share", "study"),
    ):
        share = result.figures[name]
        if isinstance(share, float):
            Console().print(f"gates took {share:.1%} of the time ({what})", highlight=False)
