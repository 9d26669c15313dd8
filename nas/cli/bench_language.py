"""`nas bench language`: the best mix of a study, and the zoo, beside attention alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nas.config import StudyConfig
    from search_spaces.candidate import Candidate
    from search_spaces.space import SearchSpace

ZOO = ("attention_only", "lfm2_like", "convolution_only")
QUICK_EXAMPLES = 64


def language(
    study: Annotated[
        Path | None, typer.Argument(help="Results folder of a language study: its winners take part.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10, help="Trainings of each network.")] = 3,
    reference: Annotated[
        list[str] | None, typer.Option(help="References of the space that take part. Repeatable.")
    ] = None,
    winners: Annotated[int, typer.Option(min=0, help="Members of the study's front that join, the best on val.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Short trainings and measurements, coarse.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write a picture (PNG) to this file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for language.csv.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Bits per byte on test text, decode and prefill latency, at equal training budget.

    Trainings that are finished are not made again: the same command goes on.
    """
    from rich.console import Console

    from nas.bench.language import BASELINE, LanguageBench, run_language
    from nas.bench.language_plot import draw_language
    from nas.cli.bench import deliver
    from nas.report.atomic import write_atomic
    from profilers.lock import state_folder
    from profilers.looks import LOOKS
    from profilers.measurement import FINALIST

    config = _config(study)
    space = _space(config)
    candidates = _zoo(space, tuple(dict.fromkeys((BASELINE, *(reference or ZOO)))))
    candidates |= _winners(study, winners)
    if quick:
        short = {"epochs": 1, "epoch_examples": QUICK_EXAMPLES}
        config = config.model_copy(update={"training": config.training.model_copy(update=short)})
    phases = [phase.name for phase in space.phases(candidates[BASELINE])[:2]]
    bench = LanguageBench(
        config=config, candidates=candidates, phases=(phases[0], phases[1]),
        seeds=tuple(range(1 if quick else seeds)), protocol=LOOKS[0] if quick else FINALIST, is_quick=quick,
    )  # fmt: skip
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    result = run_language(bench, state_folder() / "bench" / "language", note=console.print)
    if plot is not None:
        write_atomic(plot, draw_language(result.rows))
    deliver(result, as_json=as_json, out=out)


def _config(study: Path | None) -> StudyConfig:
    """The configuration of the study, or the defaults of the language space."""
    from nas.config import load_config
    from nas.search.stored import stored_config

    return load_config(overrides={"search.space": "hybrid_language"}) if study is None else stored_config(study)


def _space(config: StudyConfig) -> SearchSpace:
    """The study's space; one that is not for language is refused."""
    from nas.bench.contenders import BenchError
    from nas.training.data.sources import load_task
    from search_spaces.registry import make_space

    task = load_task(config.task)
    space = make_space(config.search.space, task.input, task.head)
    if space.task_kind != "language_modelling":
        raise BenchError(f"space {space.name!r} is for {space.task_kind}; allowed: a study of a language space")
    return space


def _zoo(space: SearchSpace, names: tuple[str, ...]) -> dict[str, Candidate]:
    """The space's references of these names."""
    from nas.bench.contenders import BenchError
    from search_spaces.space import replay

    known = space.references()
    for name in names:
        if name not in known:
            raise BenchError(f"reference {name!r} is unknown; allowed: {', '.join(known)}")
    return {name: replay(space, known[name]) for name in names}


def _winners(study: Path | None, count: int) -> dict[str, Candidate]:
    """The `count` networks of the study's front with the fewest bits per byte on val, by their ids."""
    import csv

    from nas.bench.contenders import BenchError
    from nas.cli.compile import read_candidate

    if study is None or count == 0:
        return {}
    path = study / "front.csv"
    if not path.is_file():
        raise BenchError(f"{study}: no front.csv; the search has not ended there, run the same `nas search` again")
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("val_score")]
    best = sorted(rows, key=lambda row: float(row["val_score"]))[:count]
    return {f"winner {row['candidate_id']}": read_candidate(study / "winners" / row["candidate_id"]) for row in best}
