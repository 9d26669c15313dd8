"""Writes a network as ONNX files that run anywhere, and checks each with ONNX Runtime against torch's answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.compile.compile_worker import CompileRequest
from nas.compile.memory import weights_bytes
from nas.compile.onnx import PortableFiles, export_portable, onnx_artifact
from nas.compile.workers import WorkerFailure, WorkerPool, prepare_worker
from nas.errors import NasError
from nas.gates.parity import RELATIVE_TOLERANCE
from profilers.artifact import Artifact
from profilers.errors import ProfileFailure
from profilers.parity_check import check_parity
from search_spaces.candidate import Candidate

_START_S = 300.0
_SECONDS_PER_GB = 400.0
"""Of weights: making random ones, two passes over the whole context and the exporter take 80 s per GB on two slow
cores (docs/scale.md); five times that on a busy machine."""


class ExportError(NasError):
    """A network that cannot be exported, or an export that gives other answers than torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """One phase as an ONNX file, checked.

    Attributes:
        artifact: its folder: model, fixed inputs and answers, manifest.
        parity_max_abs: largest absolute difference between ONNX Runtime and torch.
        export_s, export_peak_bytes: wall clock, and largest resident size of the process that exported.
        check_s, check_peak_bytes: the same of the check with ONNX Runtime.
    """

    artifact: Artifact
    parity_max_abs: float
    export_s: float
    export_peak_bytes: int
    check_s: float
    check_peak_bytes: int


def export_phase(
    candidate: Candidate,
    phase: str,
    weights: Path | None,
    folder: Path,
    run: Callable[..., Any] | None = None,
) -> Exported:
    """Exports one phase into an existing, empty folder.

    Args:
        candidate: the network.
        phase: one of its space's phases.
        weights: a checkpoint; None for random weights from seed 0.
        folder: readable by others, as the check runs as an unprivileged user where it can.
        run: runs a job as `WorkerPool.run` does; a process of its own when None.

    Raises:
        ExportError: it cannot be exported, or the file does not give torch's answers; one line.
    """
    request = CompileRequest(
        candidate_json=candidate.canonical_json(), phase=phase, weights=None if weights is None else str(weights),
        seed=0, target="any",
    )  # fmt: skip
    timeout_s = _START_S + _SECONDS_PER_GB * weights_bytes(candidate) / 1e9
    started = time.monotonic()
    made = (run or _run_alone)(export_portable, request, str(folder), timeout_s=timeout_s)
    export_s = time.monotonic() - started
    if isinstance(made, WorkerFailure):
        raise ExportError(f"{phase}: {made.reason}")
    assert isinstance(made, PortableFiles)
    artifact = onnx_artifact(candidate, phase, folder, made.built, num_threads=1)
    checked = check_parity(artifact, tolerance=RELATIVE_TOLERANCE)
    if isinstance(checked, ProfileFailure):
        raise ExportError(f"{phase}: ONNX Runtime against torch: {checked.kind}: {checked.reason}")
    return Exported(
        artifact=artifact,
        parity_max_abs=checked.parity_max_abs,
        export_s=export_s,
        export_peak_bytes=made.peak_memory_bytes,
        check_s=checked.duration_s,
        check_peak_bytes=checked.peak_memory_bytes,
    )


def _run_alone(function: Callable[..., Any], *arguments: Any, timeout_s: float) -> Any:
    """In a process that ends with the job: what it held is free before the check needs it."""
    with WorkerPool[Any](1, initializer=prepare_worker) as pool:
        return pool.run(function, *arguments, timeout_s=timeout_s)
