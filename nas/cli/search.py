"""`nas search`: the main command."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.errors import NasError

if TYPE_CHECKING:
    from nas.config import StudyConfig
    from nas.search.session import StudyResult


def search(
    config: Annotated[Path | None, typer.Argument(help="Configuration; `nas init` writes one.")] = None,
    space: Annotated[str | None, typer.Option(help="Search space; `nas spaces` lists them.")] = None,
    device: Annotated[str | None, typer.Option(help="Name of the device; this machine is `local`.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            help="What a network may cost, with its unit: 5ms, decode@512=8ms, params=200k, model=1MB, memory=64MiB,"
            " state=64KiB. Repeatable."
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials that the study ends with.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Start no trial after this many minutes.")] = None,
    min_gain: Annotated[
        float | None, typer.Option(help="End when less of the hypervolume is expected to be gained: 0.001.")
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="budget, tpe, nsga2, gp or random.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampler and training.")] = None,
    data: Annotated[
        str | None, typer.Option(help="digits, fashion-mnist, npz, image-folder, python-source or text.")
    ] = None,
    data_path: Annotated[str | None, typer.Option(help="File or folder with the data.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the train split.")] = None,
    ladder: Annotated[
        int | None,
        typer.Option(help="Successive halving of trainings: the best 1/N of each rung train N times longer."),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="grpo: learn by reinforcement, data sequence-toy.")] = None,
    fast_path: Annotated[
        str | None,
        typer.Option(help="channels_last, bfloat16 or compiled: train so, if a gate finds it equal to the slow way."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of one inference.")] = None,
    tuning_trials: Annotated[int | None, typer.Option(help="Schedules tried for each new kernel.")] = None,
    screen: Annotated[
        bool | None, typer.Option("--screen/--no-screen", help="Let a cost model rule out what is surely too slow.")
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            help="Before training: all, or unsure (what the cost model trusts is measured on the front only)."
        ),
    ] = None,
    zoo: Annotated[
        bool | None, typer.Option("--zoo/--no-zoo", help="Measure the space's named networks as well, at the end.")
    ] = None,
    warm_start: Annotated[
        list[Path] | None,
        typer.Option(help="Results folder of an earlier study of the same space and data to learn from. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Results folder.")] = None,
    storage: Annotated[str | None, typer.Option(help="Database URL instead of a file in the results folder.")] = None,
    accept_failures: Annotated[
        str | None, typer.Option(metavar="REASON", help="Publish although trials failed for other reasons.")
    ] = None,
    finalist_seeds: Annotated[
        int | None, typer.Option(help="Trainings of each network on the front, for intervals over seeds.")
    ] = None,
    min_slice: Annotated[
        float | None,
        typer.Option(help="Worst score on val that a network on the front may have in any class or domain."),
    ] = None,
    audit: Annotated[bool, typer.Option("--audit", help="End with `nas audit`: train a sample longer.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Put into the report which choices mattered.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Move an earlier study aside and start anew.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="End with one JSON object on stdout.")] = False,
) -> None:
    """Search for networks within a latency budget. The same command resumes an interrupted study."""
    from nas.config import load_config
    from nas.training.data.sources import SOURCES
    from search_spaces.registry import SPACES

    overrides = {
        "search.space": space,
        "search.trials": trials,
        "search.minutes": minutes,
        "search.min_gain": min_gain,
        "search.finalist_seeds": finalist_seeds,
        "search.min_slice": min_slice,
        "search.sampler": sampler,
        "search.seed": seed,
        "search.budgets": budget or None,
        "search.screen": screen,
        "search.measure": measure,
        "search.zoo": zoo,
        "search.warm_start": warm_start or None,
        "task.name": data,
        "task.path": data_path,
        "training.epochs": epochs,
        "training.ladder": ladder,
        "training.recipe": recipe,
        "training.fast_path": fast_path,
        "device.id": device,
        "device.threads": threads,
        "compile.tuning_trials": tuning_trials,
        "output.out": out,
        "output.storage": storage,
    }
    known = {"search.space": list(SPACES), "task.name": list(SOURCES)}
    settings = load_config(config, overrides, known)
    if accept_failures is not None and not accept_failures.strip():
        raise typer.BadParameter("needs a reason, which goes into the manifest", param_hint="--accept-failures")
    result = _run(settings, fresh=fresh, accept_failures=accept_failures, explain=explain, audit=audit)
    _print_result(result, as_json=as_json)
    if result.summary.blocked_because is not None:
        raise typer.Exit(1)


class DeviceUnknownError(NasError):
    """A device this version cannot measure on."""


def _run(settings: StudyConfig, *, fresh: bool, accept_failures: str | None, explain: bool, audit: bool) -> StudyResult:
    from nas.cli.terminal import Terminal

    if settings.device.id != "local":
        raise DeviceUnknownError(f"device {settings.device.id!r}: unknown; allowed: local (this machine)")
    # A polite kill ends the same way as Ctrl-C: workers stopped, folder whole.
    signal.signal(signal.SIGTERM, _interrupt)
    with Terminal() as terminal:
        try:
            # Imported in here, as it takes seconds in which people press Ctrl-C, too.
            from nas.search.audit_run import AuditPlan
            from nas.search.session import run_study

            return run_study(
                settings,
                fresh=fresh,
                accept_failures=accept_failures,
                watcher=terminal,
                explain=explain,
                audit=AuditPlan() if audit else None,
            )
        except KeyboardInterrupt:
            terminal.close()
            print(
                f"\nstopped; everything finished is kept in {settings.results_dir}."
                " Run the same command again to go on.",
                file=sys.stderr,
            )
            raise typer.Exit(130) from None


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _print_result(result: StudyResult, *, as_json: bool) -> None:
    from nas.cli.tables import print_summary
    from nas.report.summary import to_json

    summary = result.summary
    if as_json:
        print(json.dumps(to_json(summary)))
    else:
        print_summary(summary, result.ended_because)
    stream = sys.stderr if as_json else sys.stdout
    print(f"report: {result.report}", file=stream)
    if summary.blocked_because is not None:
        print(f"not published: {summary.blocked_because}", file=stream)
