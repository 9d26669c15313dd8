"""`nas bench zero-cost STUDY`: what scores of untrained networks would have been worth to a finished study."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

QUICK_NETWORKS = 20


def zero_cost(
    study: Annotated[Path, typer.Argument(help="Results folder of a finished study.")],
    quick: Annotated[bool, typer.Option("--quick", help=f"{QUICK_NETWORKS} networks: coarse.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for zero-cost.csv.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Compare synflow, jacobian covariance and NASWOT with trained quality, alone and as features of the surrogate."""
    from nas.bench.zero_cost import bench_zero_cost
    from nas.cli.bench import deliver

    result = bench_zero_cost(
        study, most=QUICK_NETWORKS if quick else None, report=lambda line: print(line, file=sys.stderr, flush=True)
    )
    deliver(result, as_json=as_json, out=out)
