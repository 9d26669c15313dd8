"""`nas bench samplers`: our sampler beside Optuna's on a space of our own, at equal wall time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

QUICK_MINUTES, QUICK_SEEDS = 0.2, 1


def samplers(
    out: Annotated[Path, typer.Option(help="Folder of the studies, and of samplers.csv.")],
    space: Annotated[str | None, typer.Option(help="Search space; the default one otherwise.")] = None,
    budget: Annotated[
        list[str] | None, typer.Option(help="As of `nas search`; else the reference's latency. Repeatable.")
    ] = None,
    sampler: Annotated[
        list[str] | None, typer.Option(help="Sampler to compare; else budget, tpe, nsga2 and gp. Repeatable.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Studies of each sampler.")] = 3,
    minutes: Annotated[float, typer.Option(min=0.01, help="Wall clock of each study: 12 of 3.2 are 40 in all.")] = 3.2,
    epochs: Annotated[int | None, typer.Option(help="Passes over the train split.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, 12 s a study: coarse, with the kernels known.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Search with each sampler as long as with the others; hypervolume with intervals. The same command goes on.

    Run `nas tune` first: a kernel that is new costs whoever meets it first.
    """
    from nas.bench.samplers import Comparison, bench_samplers
    from nas.cli.bench import deliver
    from nas.cli.terminal import Terminal
    from nas.config import load_config
    from nas.search.sampler import BUDGET_SAMPLER, SAMPLERS
    from search_spaces.registry import SPACES

    config = load_config(
        overrides={"search.space": space, "search.budgets": budget or None, "training.epochs": epochs},
        known={"search.space": list(SPACES)},
    )
    names = tuple(dict.fromkeys(sampler or (BUDGET_SAMPLER, "tpe", "nsga2", "gp")))
    if unknown := [name for name in names if name not in (BUDGET_SAMPLER, *SAMPLERS)]:
        raise typer.BadParameter(f"{unknown[0]!r}: unknown; allowed: {', '.join((BUDGET_SAMPLER, *SAMPLERS))}")
    comparison = Comparison(
        config=config, out=out, samplers=names, num_seeds=QUICK_SEEDS if quick else seeds,
        minutes=QUICK_MINUTES if quick else minutes,
    )  # fmt: skip
    with Terminal() as terminal:
        result = bench_samplers(comparison, terminal, is_quick=quick)
    deliver(result, as_json=as_json, out=out)
