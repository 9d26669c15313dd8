"""`nas calibrate`: makes a cost model of a space on this device, and says how good it is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.data_sizes import space_for

if TYPE_CHECKING:
    from nas.search.calibration import CalibrationResult


def calibrate(
    space: Annotated[str, typer.Option(help="Search space; `nas spaces` lists them.")] = "conv_attention",
    device: Annotated[str, typer.Option(help="Name of the device; this machine is `local`.")] = "local",
    samples: Annotated[int, typer.Option(help="Candidates to measure for the fit, 8 at least.")] = 50,
    tests: Annotated[int, typer.Option(min=0, help="Random candidates to measure as a test.")] = 20,
    size: Annotated[str | None, typer.Option("--input", help="Images as CHANNELSxHEIGHTxWIDTH.")] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="Classes of the task.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Longest text, in tokens.")] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1, help="Number of distinct tokens.")] = None,
    phase: Annotated[str | None, typer.Option(help="Entry point; the space's first by default.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of one inference.")] = 1,
    tuning_trials: Annotated[int, typer.Option(min=0, help="Schedules tried for each new kernel.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="Which candidates are drawn.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Write predicted against measured (PNG).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure informative candidates in one phase, and fit a cost model that searches on this device then use.

    The same command goes on where it was stopped: measurements and kernels are kept.
    """
    from nas.cli.terminal import Terminal
    from nas.phases import chosen_phase, phase_names
    from nas.search import calibration
    from profilers.cost_model.model import MIN_SAMPLES
    from profilers.cost_model.store import save
    from profilers.lock import state_folder

    if device != "local":
        raise calibration.CalibrationError(f"device {device!r}: unknown; allowed: local (this machine)")
    if samples < MIN_SAMPLES:
        raise calibration.CalibrationError(
            f"--samples {samples} is too few; allowed: {MIN_SAMPLES} or more, 50 are good"
        )
    chosen = space_for(space, size, classes, context, vocabulary)
    timed = chosen_phase(phase, phase_names(chosen))
    config = calibration.config_for(
        space, device=device, threads=threads, tuning_trials=tuning_trials, folder=state_folder() / "calibrate"
    )
    with Terminal() as terminal, calibration.open_bench(config, timed, terminal) as bench:
        fingerprint = bench.device.fingerprint
        result = calibration.calibrate(
            chosen, bench, fingerprint, terminal, num_samples=samples, num_tests=tests, seed=seed
        )
    path = calibration.key_of(chosen, timed, fingerprint).path(state_folder())
    save(result.calibration, path)
    if plot is not None:
        calibration.save_plot(result, plot)
    if as_json:
        print(json.dumps(_to_json(result, path)))
    else:
        _print(result, path)


def _to_json(result: CalibrationResult, path: Path) -> dict[str, object]:
    model, times = result.calibration.model, result.calibration.encoder.kernel_times
    return {
        "space": result.calibration.encoder.space,
        "phase": result.calibration.phase,
        "fingerprint": result.calibration.fingerprint,
        "file": str(path),
        "predictor": model.predictor,
        "num_samples": model.num_samples,
        "num_tested": len(result.tested),
        "num_failed": result.num_failed,
        "seconds": result.seconds,
        "left_out_in_turn": dict(model.held_out),
        "held_out": [asdict(each) for each in result.held_out],
        "held_out_of": {target: [asdict(each) for each in errors] for target, errors in result.other_held_out},
        "predictors": {each.target: each.model.predictor for each in result.calibration.amounts},
        "known_kernels": 0 if times is None else len(times.kernels),
        "known_share": result.known_share,
    }


def _print(result: CalibrationResult, path: Path) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from profilers.cost_model.candidate_terms import AMOUNTS

    model, times = result.calibration.model, result.calibration.encoder.kernel_times
    print(
        f"{model.num_samples} candidates fitted, {len(result.tested)} others to test on, {result.num_failed} failed,"
        f" {result.seconds:.0f} s"
    )
    known = "none, the layers alone are used" if times is None else f"{len(times.kernels)} of the tuning database"
    share = "" if result.known_share is None else f", {result.known_share:.0%} of the work of those to test on"
    print(f"known kernel times: {known}{share}")
    console = Console(width=120)
    predictors: dict[str, str] = {"latency_ms": model.predictor}
    predictors |= {each.target: each.model.predictor for each in result.calibration.amounts}
    for target, errors in (("latency_ms", result.held_out), *result.other_held_out):
        if not errors:
            continue
        grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in (target, "MAPE", "within 5%", "within 10%", "Spearman", "Kendall", "in 90% interval"):
            grid.add_column(column, justify="left" if column == target else "right")
        for each in errors:
            grid.add_row(
                each.predictor, f"{each.mape:.1%}", f"{each.within5:.0%}", f"{each.within10:.0%}",
                *("" if rank is None else f"{rank:.3f}" for rank in (each.spearman, each.kendall)),
                "" if each.coverage90 is None else f"{each.coverage90:.0%}",
            )  # fmt: skip
        console.print(grid)
    for name, predictor in predictors.items():
        if predictor != "terms":
            print(
                f"{name}: the baseline {predictor!r} did better than the model on samples left out in turn: it is used"
            )
    missing = sorted(set(AMOUNTS) - set(predictors))
    if missing:
        print(f"not measured on this device, so not predicted: {', '.join(missing)}")
    print(f"saved: {path}")
