"""`nas profile`: latency, memory and size of one network, on one runtime or several."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.errors import NasError

if TYPE_CHECKING:
    from nas.profile.run import ProfileOptions, ProfileReport
    from nas.profile.targets import Target


class ProfileError(NasError):
    """Options that do not go together."""


def profile(
    target: Annotated[
        str | None, typer.Argument(help="ONNX file, candidate's JSON file, or with --study a candidate's id.")
    ] = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(metavar="A B", help="Measure two targets in turn and compare them.")
    ] = None,
    study: Annotated[Path | None, typer.Option(help="Results folder whose candidates are meant.")] = None,
    phase: Annotated[str | None, typer.Option(help="Entry point of a candidate; its space's first by default.")] = None,
    runtime: Annotated[list[str] | None, typer.Option(help="onnxruntime or tvm. Repeatable.")] = None,
    threads: Annotated[list[int] | None, typer.Option(help="Threads of one inference. Repeatable.")] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="float32, or int8 (ONNX Runtime, dynamic). Repeatable.")
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Option("--input", metavar="NAME:SIZES", help="Open sizes, as x:1x3x224x224.")
    ] = None,
    tuning_trials: Annotated[int, typer.Option(help="Schedules tried for each kernel new to TVM's database.")] = 8,
    quick: Annotated[bool, typer.Option("--quick", help="A first look: fewer processes.")] = False,
    sustain: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Then run so long without a pause: drift, p95 over time."),
    ] = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for a busy device.")] = 600.0,
    plot: Annotated[Path | None, typer.Option(help="Write a histogram of single runs, as PNG.")] = None,
    blocks: Annotated[Path | None, typer.Option(help="Write every raw block, as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure a network on this machine: latency with its interval, memory, size."""
    from nas.profile.report import report_lines, to_json
    from nas.profile.targets import find_target, in_phase, parse_shapes

    names = _names(target, compare)
    shapes = parse_shapes(sizes or [])
    targets = [in_phase(find_target(name, study, shapes), phase) for name in names]
    options = replace(
        _options(runtime, threads, precision, tuning_trials=tuning_trials, quick=quick, wait_s=wait),
        sustain_s=_sustained_seconds(sustain),
    )
    for path in (plot, blocks):
        if path is not None and not path.parent.is_dir():
            raise ProfileError(f"{path}: no folder {path.parent}; make it first")
    report = _run(targets, options)
    _write_files(report, plot, blocks)
    if as_json:
        print(json.dumps(to_json(report)))
    else:
        print("\n".join(report_lines(report)))
    failures = [f"{each.label}: {each.failure}" for each in report.profiles if each.failure is not None]
    if failures:
        print(f"not measured: {failures[-1]}", file=sys.stderr)
        raise typer.Exit(1)


def _sustained_seconds(seconds: float | None) -> float | None:
    if seconds is not None and not 1 <= seconds <= 86_400:
        raise ProfileError(f"--sustain {seconds:g}: allowed are 1 to 86400 seconds, for instance 60")
    return seconds


def _names(target: str | None, compare: tuple[str, str] | None) -> list[str]:
    if (target is None) == (compare is None):
        raise ProfileError("give either one TARGET or --compare A B")
    return [target] if target is not None else list(compare or ())


def _options(
    runtime: list[str] | None,
    threads: list[int] | None,
    precision: list[str] | None,
    *,
    tuning_trials: int,
    quick: bool,
    wait_s: float,
) -> ProfileOptions:
    from nas.profile.run import PRECISIONS, ProfileOptions
    from profilers.measurement import FINALIST, SEARCH
    from profilers.runtimes.runtime import RUNTIMES

    runtimes, precisions = runtime or ["onnxruntime"], precision or ["float32"]
    for option, given, allowed in (("runtime", runtimes, RUNTIMES), ("precision", precisions, PRECISIONS)):
        if unknown := [value for value in given if value not in allowed]:
            raise ProfileError(f"--{option} {unknown[0]!r}: unknown; allowed: {', '.join(allowed)}")
    if tuning_trials < 0 or wait_s < 0:
        raise ProfileError("--tuning-trials and --wait must be 0 or more")
    return ProfileOptions(
        runtimes=tuple(dict.fromkeys(runtimes)),
        threads=tuple(dict.fromkeys(threads or [1])),
        precisions=tuple(dict.fromkeys(precisions)),
        protocol=SEARCH if quick else FINALIST,
        tuning_trials=tuning_trials,
        lock_timeout_s=wait_s,
    )


def _run(targets: list[Target], options: ProfileOptions) -> ProfileReport:
    from rich.console import Console

    from nas.profile.run import profile as run

    console = Console(stderr=True)

    def note(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    if not console.is_terminal:
        return run(targets, options, on_wait=note)
    with console.status("starting") as status:

        def show(stage: str, done: int, total: int) -> None:
            status.update(f"{stage} {done}/{total}" if total > 1 else stage)

        return run(targets, options, on_progress=show, on_wait=note)


def _write_files(report: ProfileReport, plot: Path | None, blocks: Path | None) -> None:
    from nas.profile.histogram import draw_histograms, histogram_data
    from nas.report.atomic import write_atomic
    from profilers.measurement import Measurement

    if plot is not None and (rows := histogram_data(report)):
        write_atomic(plot, draw_histograms(rows))
        print(f"histogram: {plot}", file=sys.stderr)
    if blocks is not None:
        raw = {each.label: each.result.to_json() for each in report.profiles if isinstance(each.result, Measurement)}
        write_atomic(blocks, json.dumps(raw).encode())
        print(f"raw blocks: {blocks}", file=sys.stderr)
