"""`nas bench study-scale`: what thousands of finished trials cost a search."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

QUICK_TRIALS = 500


def study_scale(
    trials: Annotated[int, typer.Option(min=20, help="Finished trials of the study.")] = 10_000,
    quick: Annotated[bool, typer.Option("--quick", help=f"{QUICK_TRIALS} trials: coarse.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for study-scale.csv.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Time resuming, proposing for and reporting a study of made-up trials, and its memory."""
    from nas.bench.study_scale import bench_study_scale
    from nas.cli.bench import deliver

    with tempfile.TemporaryDirectory() as folder:
        result = bench_study_scale(
            Path(folder) / "study",
            min(trials, QUICK_TRIALS) if quick else trials,
            is_quick=quick,
            report=lambda line: print(line, file=sys.stderr, flush=True),
        )
    deliver(result, as_json=as_json, out=out)
