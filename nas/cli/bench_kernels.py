"""`nas bench kernels`: TVM's tuned code beside ONNX Runtime's and torch's."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nas.cli.data_sizes import parse_image

DEFAULT_TRIALS, QUICK_TRIALS = 64, 1
NUM_REUSE = 40


class Model(StrEnum):
    """What is compiled."""

    VISION = "vision"
    DECODE = "decode"


def kernels(
    model: Annotated[
        Model, typer.Option(help="Candidates of conv_attention, or a language decode step of 27 million parameters.")
    ] = Model.VISION,
    size: Annotated[str, typer.Option("--input", help="Image as CHANNELSxHEIGHTxWIDTH.")] = "1x8x8",
    candidates: Annotated[int, typer.Option(min=1, help="How many of the seeded candidates to time.")] = 8,
    trials: Annotated[int, typer.Option(min=0, help="Schedules tried for each heavy kernel.")] = DEFAULT_TRIALS,
    threads: Annotated[int, typer.Option(min=1, help="Threads of one inference.")] = 1,
    with_torch: Annotated[bool, typer.Option("--torch/--no-torch", help="Time torch and torch.compile, too.")] = True,
    with_start: Annotated[bool, typer.Option("--start/--no-start", help="Time the first schedules, too.")] = True,
    fresh: Annotated[bool, typer.Option("--fresh", help="Tune anew instead of going on from the last run.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Two candidates, coarse, within a minute.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write a picture (PNG) to this file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for kernels.csv.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Latency of tuned TVM code against ONNX Runtime, torch and torch.compile, and each kernel's roofline.

    Uses a tuning database of its own for each number of trials, so that its figures say what those trials reach.
    """
    from rich.console import Console

    from nas.bench.kernels import KernelBench, run_kernels
    from nas.bench.kernels_plot import draw_kernels
    from nas.cli.bench import deliver
    from nas.report.atomic import write_atomic
    from profilers.lock import state_folder

    is_vision = model is Model.VISION
    bench = KernelBench(
        model=model.value, image=parse_image(size), num_trials=trials, num_threads=threads,
        num_candidates=candidates if is_vision else 1, num_reuse=NUM_REUSE if is_vision else 0,
        has_torch=with_torch, has_torch_compile=with_torch, has_start=with_start,
    )  # fmt: skip
    if quick:
        bench = replace(
            bench, num_candidates=min(bench.num_candidates, 2), num_reuse=0, num_trials=min(trials, QUICK_TRIALS),
            has_torch=False, has_torch_compile=False, has_start=False, is_quick=True,
        )  # fmt: skip
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    result = run_kernels(bench, state_folder() / "bench", is_fresh=fresh, note=console.print)
    if plot is not None:
        write_atomic(plot, draw_kernels(result.rows))
    deliver(result, as_json=as_json, out=out)
