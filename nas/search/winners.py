"""What is kept of each network on the front: `winners/<id>/` in the results folder.

Libraries and ONNX files are in one folder a runtime (`tvm/`, `onnxruntime/`); of a space with several phases, in
such folders in one folder a phase (`decode@512/tvm/`).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from nas.report.atomic import write_atomic
from nas.search.finalists import Finalist
from nas.search.second_look import PhaseLook
from nas.training.task import Task
from profilers.measurement import Measurement


def keep_winners(finalists: tuple[Finalist, ...], task: Task, folder: Path) -> None:
    """Writes `winners/<id>/` for each finalist, and removes those of an earlier front."""
    winners = folder / "winners"
    winners.mkdir(exist_ok=True)
    for finalist in finalists:
        _keep(finalist, task, winners)
    keep = {finalist.record.candidate.candidate_id for finalist in finalists}
    for entry in winners.iterdir():
        if entry.is_dir() and entry.name not in keep:
            shutil.rmtree(entry)


def _keep(finalist: Finalist, task: Task, winners: Path) -> None:
    candidate = finalist.record.candidate
    building = winners / f".{candidate.candidate_id}.tmp"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    looks = (*finalist.looks, *finalist.plain_looks)
    for look in looks:
        for runtime, artifact in look.files.items():
            shutil.copytree(artifact.folder, _folder_of(look, building, len(looks)) / runtime)
    shutil.copyfile(finalist.weights.path, building / "weights.pt")
    write_atomic(building / "weights.pt.sha256", f"{finalist.weights.sha256}  weights.pt\n".encode())
    write_atomic(building / "candidate.json", json.dumps(candidate.to_json(), indent=1, sort_keys=True).encode())
    write_atomic(building / "inputs.json", json.dumps(task.facts(), indent=1).encode())
    if task.tokenizer is not None:
        write_atomic(building / "tokenizer.json", task.tokenizer.encode())
    seen = {look.phase: _measurements(look) for look in looks}
    measurements = seen if len(looks) > 1 else seen[looks[0].phase]
    write_atomic(building / "measurements.json", json.dumps(measurements).encode())
    final = winners / candidate.candidate_id
    shutil.rmtree(final, ignore_errors=True)
    building.rename(final)


def _folder_of(look: PhaseLook, building: Path, num_phases: int) -> Path:
    return building if num_phases == 1 else building / look.phase


def _measurements(look: PhaseLook) -> dict[str, Any]:
    """Raw blocks by runtime; a plain look, which nothing was held against, says that it is one."""
    measurements: dict[str, Any] = {look.artifact.runtime: look.measurement.to_json()}
    if isinstance(look.other, Measurement):
        measurements["onnxruntime"] = look.other.to_json()
    return {**measurements, "is_plain_look": True} if look.is_plain else measurements
