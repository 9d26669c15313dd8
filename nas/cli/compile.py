"""`nas compile`: a network as a library for a device that is not here.

A command of its own beside `nas tune`: tuning belongs to the device at hand and its database; this makes files for
another one, with the most promising schedule of each kernel, as nothing can be timed without the device.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.errors import NasError

if TYPE_CHECKING:
    from search_spaces.candidate import Candidate

_WEIGHTS = "weights.pt"


class CompileError(NasError):
    """A network that cannot be compiled."""


def compile_(
    candidate: Annotated[Path, typer.Argument(help="A winner's folder, or a candidate.json.")],
    target: Annotated[str, typer.Option(help="rpi5, aarch64 (generic Armv8.2) or riscv64.")],
    out: Annotated[Path, typer.Option(help="New folder for the library.")],
    threads: Annotated[int, typer.Option(min=1, max=256, help="Threads of one inference.")] = 1,
    phase: Annotated[str | None, typer.Option(help="Entry point; the space's first by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Compile a network ahead of time for another kind of device, into a linked library.

    The code is untuned: its latency says nothing about what the device can do, and none is given.
    """
    from nas.compile.targets import find_target
    from nas.compile.tvm import CompileFailure, CompileLimits, TvmCompiler
    from nas.new_folder import folder_that_becomes, require_free
    from nas.phases import chosen_phase
    from profilers.lock import state_folder
    from search_spaces.registry import make_space

    out = out.absolute()
    device = find_target(target).device(threads)
    require_free(out)
    network = read_candidate(candidate)
    space = make_space(network.space, network.input, network.head)
    chosen = chosen_phase(phase, [each.name for each in space.phases(network)])
    weights = candidate / _WEIGHTS
    if not weights.is_file():
        print(f"{candidate}: no {_WEIGHTS}; the library gets random weights", file=sys.stderr)
    compiler = TvmCompiler(device, CompileLimits(tuning_trials=0), state_folder())
    try:
        compiled = compiler.compile(network, chosen, weights=weights if weights.is_file() else None)
    finally:
        compiler.close()
    if isinstance(compiled, CompileFailure):
        raise CompileError(f"{candidate}: {compiled.reason}")
    with folder_that_becomes(out) as building:
        shutil.copytree(compiled.artifact.folder, building, dirs_exist_ok=True)
    answer = {
        "candidate_id": network.candidate_id, "phase": chosen, "target": target,
        "threads": threads, "library": str(out / "model.so"), "bytes": compiled.artifact.model_bytes,
        "weights": "random" if not weights.is_file() else str(weights),
        "tuned_coverage": compiled.artifact.tuned_coverage, "seconds": compiled.compile_s,
    }  # fmt: skip
    if as_json:
        print(json.dumps(answer))
    else:
        print(f"{out / 'model.so'}: {compiled.artifact.model_bytes:,} bytes for {target}, untuned; parity.npz has")
        print("inputs and answers to check it with on the device")


def read_candidate(path: Path) -> Candidate:
    """The candidate of a winner's folder or of a JSON file.

    Raises:
        NasError: there is none, or it is damaged.
    """
    from nas.profile.targets import CandidateTarget
    from nas.profile.targets import find_target as find_network

    if not path.exists():
        raise CompileError(f"{path}: no such file; give a winner's folder or a candidate.json")
    network = find_network(str(path), None)
    if not isinstance(network, CandidateTarget):
        raise CompileError(f"{path}: not a candidate; give a winner's folder or a candidate.json")
    return network.candidate
