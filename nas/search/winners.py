"""What is kept of each network on the front: `winners/<id>/` in the results folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from nas.report.atomic import write_atomic
from nas.search.finalists import Finalist
from nas.training.task import Task


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
    for runtime, artifact in finalist.files.items():
        shutil.copytree(artifact.folder, building / runtime)
    shutil.copyfile(finalist.weights.path, building / "weights.pt")
    write_atomic(building / "weights.pt.sha256", f"{finalist.weights.sha256}  weights.pt\n".encode())
    write_atomic(building / "candidate.json", json.dumps(candidate.to_json(), indent=1, sort_keys=True).encode())
    write_atomic(building / "inputs.json", json.dumps(task.facts(), indent=1).encode())
    if task.tokenizer is not None:
        write_atomic(building / "tokenizer.json", task.tokenizer.encode())
    measurements: dict[str, Any] = {"tvm": finalist.measurement.to_json()}
    if finalist.onnxruntime_measurement is not None:
        measurements["onnxruntime"] = finalist.onnxruntime_measurement.to_json()
    write_atomic(building / "measurements.json", json.dumps(measurements).encode())
    final = winners / candidate.candidate_id
    shutil.rmtree(final, ignore_errors=True)
    building.rename(final)
