"""`nas tune`: pays for a space's kernels once, for all studies on the device; moves records between machines."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nas.cli.data_sizes import space_for

if TYPE_CHECKING:
    from nas.compile.tune_space import SpaceTuning
    from nas.compile.tvm import TvmCompiler
    from search_spaces.space import SearchSpace

DEFAULT_TRIALS, DEFAULT_WORKERS = 64, 2
DEFAULT_SPACE = "conv_attention"


def tune(
    space: Annotated[str | None, typer.Option(help="Search space; `nas spaces` lists them.")] = None,
    device: Annotated[str, typer.Option(help="Name of the device; this machine is `local`.")] = "local",
    trials: Annotated[int, typer.Option(help="Schedules tried for each kernel with real work.")] = DEFAULT_TRIALS,
    minutes: Annotated[float | None, typer.Option(help="Start no kernel after this many minutes.")] = None,
    size: Annotated[str | None, typer.Option("--input", help="Images as CHANNELSxHEIGHTxWIDTH.")] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="Classes of the task.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Longest text, in tokens.")] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1, help="Number of distinct tokens.")] = None,
    phase: Annotated[
        str | None, typer.Option(help="Only the kernels of this entry point; all of the space's by default.")
    ] = None,
    threads: Annotated[str, typer.Option(help="Threads of one inference, or `all`.")] = "1",
    workers: Annotated[int, typer.Option(min=1, help="Tuning processes.")] = DEFAULT_WORKERS,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try kernels again whose schedules all failed.")
    ] = False,
    import_from: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="First take over the records of this file.")
    ] = None,
    export_to: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="At last write all records to this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Tune the kernels of a space. The same command goes on where the last one stopped.

    With --import or --export and no --space, records are moved and nothing is tuned.
    """
    from nas.compile.tvm import CompileLimits, TvmCompiler
    from nas.phases import chosen_phase, phase_names
    from profilers.device import local_device
    from profilers.lock import state_folder

    _check(device, trials, minutes)
    spec = local_device(parse_threads(threads, len(os.sched_getaffinity(0))))
    chosen = None
    if space is not None or (import_from is None and export_to is None):
        chosen = space_for(space or DEFAULT_SPACE, size, classes, context, vocabulary)
    known = () if chosen is None else phase_names(chosen)
    phases = (chosen_phase(phase, known),) if phase is not None and known else known
    compiler = TvmCompiler(spec, CompileLimits(tuning_trials=trials, num_workers=workers), state_folder())
    answer: dict[str, Any] = {
        "device": spec.id, "target": json.loads(spec.target), "threads": spec.num_threads,
        "database": str(compiler.database.path),
    }  # fmt: skip
    try:
        if import_from is not None:
            answer["import"] = _import(compiler, import_from)
        if retry_failed:
            print(f"{compiler.database.forget_failures()} kernels that failed are tried again", file=sys.stderr)
        result = None if chosen is None else _tune(chosen, phases, compiler, minutes)
        if result is not None and chosen is not None:
            answer |= {"space": chosen.name, "input": size, "phases": list(phases), **to_json(result)}
        if export_to is not None:
            answer["export"] = _export(compiler, export_to)
        if as_json:
            print(json.dumps(answer))
        elif result is not None:
            _print_result(result)
        compiler.database.compact()  # last: on a full disk it fails, and all else is done and said
    except KeyboardInterrupt:  # before the first kernel; later ones end the tuning with what it has
        print("stopped; everything finished is kept. Run the same command again to go on.", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        compiler.close()
    if result is not None and result.stopped_because == "interrupted":
        raise typer.Exit(130)


def parse_threads(text: str, num_cores: int) -> int:
    """A number of threads, or `all`: one for each core that may be used.

    >>> parse_threads("all", 4), parse_threads("1", 4)
    (4, 1)
    """
    if text == "all":
        return num_cores
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= num_cores:
        raise typer.BadParameter(f"{text!r}; allowed: 1 to {num_cores}, or all", param_hint="--threads")
    return int(text)


def _check(device: str, trials: int, minutes: float | None) -> None:
    from nas.cli.search import DeviceUnknownError

    if device != "local":
        raise DeviceUnknownError(
            f"device {device!r}: cannot be tuned on from here; allowed: local (this machine)."
            " `nas compile --target` builds for other targets, untuned"
        )
    if trials < 1:
        raise typer.BadParameter(f"{trials}: nothing would be tuned; allowed: at least 1", param_hint="--trials")
    if minutes is not None and not minutes > 0:
        raise typer.BadParameter(f"{minutes:g}: nothing would be tuned; allowed: above 0", param_hint="--minutes")


def _import(compiler: TvmCompiler, path: Path) -> dict[str, Any]:
    from nas.compile.records_file import import_records

    num_records, num_taken = import_records(compiler.database, path)
    print(f"{path}: {num_records} records, {num_taken} new or faster", file=sys.stderr)
    return {"file": str(path), "records": num_records, "taken": num_taken}


def _export(compiler: TvmCompiler, path: Path) -> dict[str, Any]:
    from nas.compile.records_file import export_records

    num_records = export_records(compiler.database, path)
    print(f"{path}: {num_records} records", file=sys.stderr)
    return {"file": str(path), "records": num_records}


def _tune(space: SearchSpace, phases: tuple[str, ...], compiler: TvmCompiler, minutes: float | None) -> SpaceTuning:
    from nas.cli.tune_progress import TuneProgress
    from nas.compile.tune_space import tune_space

    signal.signal(signal.SIGTERM, _interrupt)  # a polite kill ends the same way as Ctrl-C
    with TuneProgress() as progress:
        return tune_space(space, compiler, phases=phases, minutes=minutes, watch=progress)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def to_json(result: SpaceTuning) -> dict[str, Any]:
    """The part of `nas tune --json` that says what was tuned."""
    return {
        "kernels": len(result.kernels),
        "heavy_kernels": sum(each.task.is_heavy for each in result.kernels),
        "skipped": result.num_skipped,
        "tuned": len(result.tuned),
        "left": result.num_left,
        "failed": [each.kernel.task.name for each in result.tuned if each.after_s is None],
        "trials": result.num_trials,
        "failed_trials": result.num_failed,
        "work_covered_before": result.work_before,
        "work_covered": result.work_after,
        "speedup": result.speedup,
        "seconds": result.duration_s,
        "stopped_because": result.stopped_because,
        "rows": [
            {
                "key": each.kernel.task.key,
                "name": each.kernel.task.name,
                "work_share": each.kernel.work_share,
                "before_us": None if each.before_s is None else each.before_s * 1e6,
                "after_us": None if each.after_s is None else each.after_s * 1e6,
            }
            for each in result.tuned
        ],
    }


def _print_result(result: SpaceTuning) -> None:
    print(
        f"{len(result.tuned)} of {len(result.kernels)} kernels tuned in {result.duration_s:.0f} s,"
        f" {result.num_trials} trials; {result.num_skipped} had theirs"
    )
    print(f"work in tuned kernels: {result.work_before:.1%} before, {result.work_after:.1%} now")
    if result.speedup is not None:
        print(f"kernels that were tuned before: {result.speedup:.2f} times as fast")
    failed = [each.kernel.task.name for each in result.tuned if each.after_s is None]
    if failed:
        print(f"without a usable schedule: {', '.join(failed)}; --retry-failed tries again")
    if result.stopped_because is not None:
        print(f"stopped, {result.stopped_because}: {result.num_left} kernels left; the same command goes on")
