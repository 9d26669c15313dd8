"""`nas export`: a network as ONNX files for any runtime, checked before they are given out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nas.errors import NasError

if TYPE_CHECKING:
    from nas.portable import Exported

_WEIGHTS = "weights.pt"


class ExportOptionsError(NasError):
    """A phase that the network has not."""


def export(
    candidate: Annotated[Path, typer.Argument(help="A winner's folder, or a candidate.json.")],
    out: Annotated[Path, typer.Option(help="New folder for the files.")],
    phase: Annotated[
        list[str] | None, typer.Option(help="Entry point. Repeatable; by default the first of each kind.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Write a network as ONNX, one file for each phase, with the winner's weights where they are there.

    Each is run with ONNX Runtime on fixed inputs and must give PyTorch's answers; those lie beside it. Weights of
    more than 2 GB are kept in a file beside the model.
    """
    from nas.cli.compile import read_candidate
    from nas.new_folder import folder_that_becomes, require_free
    from nas.portable import export_phase
    from search_spaces.registry import make_space
    from search_spaces.space import first_of_each_kind

    out = out.absolute()
    require_free(out)
    network = read_candidate(candidate)
    space = make_space(network.space, network.input, network.head)
    known = [each.name for each in space.phases(network)]
    phases = _phases(phase, known) or first_of_each_kind(known)
    weights = candidate / _WEIGHTS
    if not weights.is_file():
        print(f"{candidate}: no {_WEIGHTS}; the files get random weights", file=sys.stderr)
    with folder_that_becomes(out) as building:
        exported = []
        for name in phases:
            folder = building if len(phases) == 1 else building / name
            folder.mkdir(exist_ok=True)
            exported.append(export_phase(network, name, weights if weights.is_file() else None, folder))
    answer = {
        "candidate_id": network.candidate_id,
        "out": str(out),
        "weights": str(weights) if weights.is_file() else "random",
        "phases": [_to_json(each, building, out) for each in exported],
    }
    print(json.dumps(answer) if as_json else "\n".join(_lines(answer)))


def _phases(given: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    if unknown := [name for name in given or () if name not in known]:
        raise ExportOptionsError(f"phase {unknown[0]!r} is unknown; allowed: {', '.join(known)}")
    return list(dict.fromkeys(given or ()))


def _to_json(exported: Exported, building: Path, out: Path) -> dict[str, Any]:
    artifact = exported.artifact
    folder = out / artifact.folder.relative_to(building)
    return {
        "phase": artifact.phase,
        "folder": str(folder),
        "files": {name: (folder / name).stat().st_size for name, _ in artifact.files},
        "inputs": {spec.name: list(spec.shape) for spec in artifact.inputs},
        "outputs": {spec.name: list(spec.shape) for spec in artifact.outputs},
        "parity_max_abs": exported.parity_max_abs,
        "export_seconds": exported.export_s,
        "export_peak_bytes": exported.export_peak_bytes,
        "check_seconds": exported.check_s,
        "check_peak_bytes": exported.check_peak_bytes,
    }


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    for each in answer["phases"]:
        yield f"{each['phase']}: {each['folder']}"
        yield from (f"  {name}: {size:,} bytes" for name, size in each["files"].items())
        yield f"  ONNX Runtime differs from PyTorch by at most {each['parity_max_abs']:.2g}"
        for what, label in (("export", "exported"), ("check", "checked")):
            seconds, peak = each[f"{what}_seconds"], each[f"{what}_peak_bytes"]
            yield f"  {label} in {seconds:.1f} s with {peak / 1e9:.2f} GB of memory"
