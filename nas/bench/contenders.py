"""One network in every runtime a bench compares: compiled, and timed in turn by the product's own code."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nas.compile.compile_worker import PARITY_NAME, CompileRequest
from nas.compile.onnx import MODEL_NAME, export_onnx
from nas.compile.tvm import Compiled, CompileFailure, TvmCompiler
from nas.compile.workers import WorkerFailure
from nas.errors import NasError
from profilers.artifact import Artifact, ArtifactError
from profilers.errors import ProfileFailure
from profilers.local import LocalProfiler
from profilers.measurement import Measurement, MeasureProtocol
from profilers.runtimes.onnxruntime import make_onnx_artifact
from search_spaces.candidate import Candidate

TRIES = 4
"""Times that a disturbed measurement is made; each is two runs of `LocalProfiler`."""
PAUSE_S = 5.0


class BenchError(NasError):
    """A bench that cannot give its figures: says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A contender's latency.

    Attributes:
        latency_ms, lower_ms, upper_ms: median of block medians with its 95% interval.
        rejected_because: why the number must not be used; None when it may.
    """

    latency_ms: float
    lower_ms: float
    upper_ms: float
    rejected_because: str | None


def compile_tvm(compiler: TvmCompiler, candidate: Candidate, phase: str, seed: int = 0) -> Compiled:
    """The TVM artifact.

    Raises:
        BenchError: it does not compile.
    """
    compiled = compiler.compile(candidate, phase, seed=seed)
    if isinstance(compiled, CompileFailure):
        raise BenchError(f"candidate {candidate.candidate_id}: {compiled.reason}")
    return compiled


def export_for_onnxruntime(
    compiler: TvmCompiler, candidate: Candidate, phase: str, num_threads: int, folder: Path
) -> Artifact:
    """The same network with the same weights for ONNX Runtime, in `folder`; one that is there is used again.

    Raises:
        BenchError: it cannot be exported.
    """
    try:
        known = Artifact.load(folder)
        known.verify()
        return known
    except ArtifactError:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    request = CompileRequest(candidate_json=candidate.canonical_json(), phase=phase, weights=None, seed=0, target="any")
    built = compiler.run(export_onnx, request, str(folder))
    if isinstance(built, WorkerFailure):
        raise BenchError(f"candidate {candidate.candidate_id}: export to ONNX: {built.reason}")
    with np.load(folder / PARITY_NAME) as arrays:
        inputs = [arrays[f"input_{index}"] for index in range(len(built.inputs))]
        outputs = [arrays[f"output_{index}"] for index in range(len(built.outputs))]
    return make_onnx_artifact(
        folder / MODEL_NAME, folder, inputs=inputs, outputs=outputs, candidate_id=candidate.candidate_id,
        phase=phase, num_threads=num_threads,
    )  # fmt: skip


def time_in_turn(
    profiler: LocalProfiler,
    artifacts: Mapping[str, Artifact],
    protocol: MeasureProtocol,
    note: Callable[[str], None],
    tries: int = TRIES,
) -> dict[str, Timed]:
    """Latencies of artifacts whose processes take turns; disturbed runs are made again after a pause.

    What is disturbed to the last comes back with its reason: it is the reader's to judge.

    Raises:
        BenchError: one of them fails to run or gives other outputs than torch.
    """
    for attempt in range(1, tries + 1):
        results = profiler.measure_interleaved(list(artifacts.values()), protocol)
        rejected = [_rejection(result) for result in results]
        if not any(rejected) or attempt == tries:
            break
        note(f"the machine was disturbed: {next(filter(None, rejected))}; again in {PAUSE_S:g} s")
        time.sleep(PAUSE_S)
    timed = {}
    for name, result in zip(artifacts, results, strict=True):
        if isinstance(result, ProfileFailure):
            raise BenchError(f"{name}: {result.kind}: {result.reason}")
        timed[name] = Timed(
            latency_ms=result.latency_ms,
            lower_ms=result.lower_ms,
            upper_ms=result.upper_ms,
            rejected_because=result.rejected_because,
        )
    return timed


def _rejection(result: Measurement | ProfileFailure) -> str | None:
    if isinstance(result, Measurement):
        return result.rejected_because
    return result.reason if result.kind == "rejected" else None
