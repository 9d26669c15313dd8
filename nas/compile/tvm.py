"""Candidate to TVM artifact: plan, tune what is missing, build; each in killable processes."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nas.compile import compile_worker, workers
from nas.compile.compile_worker import BuiltFiles, CompilePlan, CompileRequest
from nas.compile.database import KernelRecord, TuningDatabase
from nas.compile.kernels import KernelTask, tuned_coverage
from nas.compile.lowering import PIPELINE_VERSION
from nas.compile.onnx_import import OnnxRequest
from nas.compile.stopwatch import Stopwatch
from nas.compile.tuning import KernelTuner, TuningReport
from nas.compile.workers import WorkerFailure, WorkerPool
from profilers.artifact import Artifact, ArtifactError, hash_file
from profilers.device import DeviceSpec
from profilers.json_file import write_json
from search_spaces.candidate import Candidate
from search_spaces.layers import activation_bytes

_BUILDING = ".building-"
MAX_JOBS_PER_WORKER = 64
"""TVM and torch keep compiled functions; a fresh process now and then bounds the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLimits:
    """How candidates are compiled.

    Attributes:
        tuning_trials: schedules tried for a kernel with real work; 0 uses what the database has.
        timeout_s: wall clock for one export or build.
        trial_timeout_s: wall clock for one schedule.
        num_workers: tuning processes.
    """

    tuning_trials: int = 16
    timeout_s: float = 180.0
    trial_timeout_s: float = 20.0
    num_workers: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """An artifact and what it took.

    Attributes:
        artifact: verified and complete.
        num_kernels, num_known: kernels needed, and those the database had before.
        tune_s, compile_s: wall clock spent tuning, and exporting and building.
    """

    artifact: Artifact
    num_kernels: int
    num_known: int
    tune_s: float
    compile_s: float


CompileFailureKind = Literal["failed", "outputs_differ"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFailure:
    """Why there is no artifact.

    Attributes:
        reason: one line.
        kind: `failed`, or `outputs_differ` where the network's own entry points contradict each other.
    """

    reason: str
    tune_s: float
    compile_s: float
    kind: CompileFailureKind = "failed"


class TvmCompiler:
    """Compiles candidates for one device; processes start when first needed."""

    def __init__(self, device: DeviceSpec, limits: CompileLimits, cache: Path) -> None:
        """Opens the tuning database of the device's target inside `cache`."""
        self._device = device
        self._limits = limits
        self._artifacts = cache / "artifacts"
        _remove_abandoned(self._artifacts)
        self._plans = cache / "plans"
        self._tvm_version = importlib.metadata.version("apache-tvm")
        self.database = TuningDatabase.for_target(cache, target=device.target, tvm_version=self._tvm_version)
        self._objects = self.database.path.with_suffix("") / "objects"
        self._tuner = KernelTuner(
            target=device.target,
            device_id=device.id,
            num_trials=limits.tuning_trials,
            num_threads=device.num_threads,
            num_workers=limits.num_workers,
            trial_timeout_s=limits.trial_timeout_s,
        )
        self._pool: WorkerPool[Any] = WorkerPool(
            1, initializer=workers.prepare_worker, max_jobs_per_worker=MAX_JOBS_PER_WORKER
        )

    def compile(
        self,
        candidate: Candidate,
        phase: str,
        *,
        weights: Path | None = None,
        seed: int = 0,
        on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    ) -> Compiled | CompileFailure:
        """The artifact of one candidate and phase, from the cache where nothing has changed."""
        request = CompileRequest(
            candidate_json=candidate.canonical_json(),
            phase=phase,
            weights=None if weights is None else str(weights),
            seed=seed,
            target=self._device.target,
        )
        return self._produce(candidate.candidate_id, request, on_progress)

    def compile_onnx(
        self,
        model: Path,
        arrays: Path,
        candidate_id: str,
        *,
        on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    ) -> Compiled | CompileFailure:
        """The artifact of an ONNX model with fixed shapes; see `OnnxRequest` for the files.

        Kernels come from the same database as those of candidates, and go into it.
        """
        request = OnnxRequest(model=str(model), arrays=str(arrays), target=self._device.target)
        return self._produce(candidate_id, request, on_progress)

    def _produce(
        self, candidate_id: str, request: CompileRequest | OnnxRequest, on_progress: Callable[[str, int, int], None]
    ) -> Compiled | CompileFailure:
        clock = Stopwatch()
        identity = self._identity(request)
        tasks = self._known_plan(identity)
        if tasks is not None:
            records = self.database.get(task.key for task in tasks)
            cached = self._cached(identity, records)
            if cached is not None and (len(records) == len(tasks) or self._limits.tuning_trials == 0):
                return self._compiled(cached, len(tasks), len(tasks), clock)
        with clock.measuring("compile"):
            on_progress("compile", 0, 1)
            planned = self._pool.run(compile_worker.plan, request, timeout_s=self._limits.timeout_s)
        if isinstance(planned, WorkerFailure):
            return _failure(clock, f"export and lowering: {planned.reason}")
        assert isinstance(planned, CompilePlan)
        if planned.disagreement is not None:
            return _failure(clock, planned.disagreement, kind="outputs_differ")
        self._remember_plan(identity, planned.tasks)
        with clock.measuring("tune"):
            report = self._tuner.tune(
                planned.tasks, self.database, lambda done, total: on_progress("tune", done, total)
            )
        with clock.measuring("compile"):
            return self._build(candidate_id, request, identity, planned.tasks, report, clock)

    def plan(self, candidate: Candidate, phase: str) -> tuple[KernelTask, ...] | CompileFailure:
        """The kernels that a candidate needs, with their workloads; nothing is tuned or built."""
        clock = Stopwatch()
        request = CompileRequest(
            candidate_json=candidate.canonical_json(), phase=phase, weights=None, seed=0, target=self._device.target
        )
        with clock.measuring("compile"):
            planned = self._pool.run(compile_worker.plan, request, timeout_s=self._limits.timeout_s)
        if isinstance(planned, WorkerFailure):
            return _failure(clock, f"export and lowering: {planned.reason}")
        assert isinstance(planned, CompilePlan)
        return planned.tasks

    def known_plan(self, candidate: Candidate, phase: str, *, seed: int = 0) -> tuple[KernelTask, ...] | None:
        """The kernels of a candidate that was compiled before with random weights; None where that is not known."""
        request = CompileRequest(
            candidate_json=candidate.canonical_json(), phase=phase, weights=None, seed=seed, target=self._device.target
        )
        return self._known_plan(self._identity(request))

    def missing(self, tasks: Sequence[KernelTask]) -> list[KernelTask]:
        """Those kernels that `tune` would tune."""
        return self._tuner.missing(tasks, self.database, refines=True)

    def tune(self, tasks: Sequence[KernelTask]) -> TuningReport:
        """Gives each kernel that had fewer the trials of the limits, one that has a record included."""
        return self._tuner.tune(tasks, self.database, refines=True)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs another job of `nas.compile` in the compile worker; a failure is a `WorkerFailure`."""
        return self._pool.run(function, *arguments, timeout_s=self._limits.timeout_s)

    def close(self) -> None:
        """Ends all processes and closes the database."""
        self._tuner.close()
        self._pool.close()
        self.database.close()

    def _build(
        self,
        candidate_id: str,
        request: CompileRequest | OnnxRequest,
        identity: str,
        tasks: tuple[KernelTask, ...],
        report: TuningReport,
        clock: Stopwatch,
    ) -> Compiled | CompileFailure:
        records = self.database.get(task.key for task in tasks)
        cached = self._cached(identity, records)
        if cached is not None:
            return self._compiled(cached, report.num_kernels, report.num_known, clock)
        self._artifacts.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{_BUILDING}{os.getpid()}-", dir=self._artifacts))
        schedules = {key: record.trace_json for key, record in records.items()}
        built = self._pool.run(
            compile_worker.build, request, schedules, str(folder), str(self._objects), timeout_s=self._limits.timeout_s
        )
        if isinstance(built, WorkerFailure):
            shutil.rmtree(folder, ignore_errors=True)
            return _failure(clock, f"building the library: {built.reason}")
        assert isinstance(built, BuiltFiles)
        for key in built.unusable:  # the next compilation finds no record, and tunes the kernel
            self.database.discard(records.pop(key))
        coverage = tuned_coverage(tasks, frozenset(records))
        artifact = self._artifact(candidate_id, request, folder, built, coverage)
        artifact.save()
        folder.chmod(0o755)  # mkdtemp's 0700 would keep it from the unprivileged user who measures
        final = self._folder(identity, records)
        try:
            folder.replace(final)
        except OSError:  # another process finished the same artifact first: both are good
            shutil.rmtree(folder, ignore_errors=True)
        return self._compiled(Artifact.load(final), report.num_kernels, report.num_known, clock)

    def _artifact(
        self,
        candidate_id: str,
        request: CompileRequest | OnnxRequest,
        folder: Path,
        built: BuiltFiles,
        coverage: float,
    ) -> Artifact:
        return Artifact(
            folder=folder,
            candidate_id=candidate_id,
            phase=request.phase,
            runtime="tvm",
            target=request.target,
            precision="float32",
            num_threads=self._device.num_threads,
            inputs=built.inputs,
            outputs=built.outputs,
            files=tuple(sorted((name, hash_file(folder / name)) for name in built.names)),
            tuned_coverage=coverage,
            model_bytes=(folder / compile_worker.LIBRARY_NAME).stat().st_size,
            activation_bytes=_values_alive(request),
        )

    @staticmethod
    def _compiled(artifact: Artifact, num_kernels: int, num_known: int, clock: Stopwatch) -> Compiled:
        return Compiled(
            artifact=artifact,
            num_kernels=num_kernels,
            num_known=num_known,
            tune_s=clock.seconds["tune"],
            compile_s=clock.elapsed("compile"),
        )

    def _identity(self, request: CompileRequest | OnnxRequest) -> str:
        content = dataclasses.asdict(request) | {
            "tvm": self._tvm_version,
            "torch": importlib.metadata.version("torch"),
            "pipeline": PIPELINE_VERSION,
            "num_threads": self._device.num_threads,
        }
        hashes = compile_worker.content_hashes(request)
        if isinstance(request, OnnxRequest):
            content["model"], content["arrays"] = hashes
        else:
            content["weights"] = hashes[0] if hashes else None
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _folder(self, identity: str, records: dict[str, KernelRecord]) -> Path:
        used = sorted((record.key, record.trace_json) for record in records.values())
        digest = hashlib.sha256(json.dumps([identity, used]).encode()).hexdigest()
        return self._artifacts / digest[:32]

    def _cached(self, identity: str, records: dict[str, KernelRecord]) -> Artifact | None:
        folder = self._folder(identity, records)
        if not folder.is_dir():
            return None
        try:
            artifact = Artifact.load(folder)
            artifact.verify()
        except ArtifactError:  # torn by a kill or a full disk: build it again
            shutil.rmtree(folder, ignore_errors=True)
            return None
        return artifact

    def _known_plan(self, identity: str) -> tuple[KernelTask, ...] | None:
        try:
            rows = json.loads((self._plans / f"{identity[:32]}.json").read_text())
            return tuple(KernelTask(**row, workload_json="") for row in rows)
        except (OSError, ValueError, TypeError):
            return None

    def _remember_plan(self, identity: str, tasks: tuple[KernelTask, ...]) -> None:
        rows = [dataclasses.asdict(task) for task in tasks]
        for row in rows:
            del row["workload_json"]
        write_json(self._plans / f"{identity[:32]}.json", rows)


def _remove_abandoned(artifacts: Path) -> None:
    """Removes half-built folders whose process was killed."""
    import psutil

    for folder in artifacts.glob(f"{_BUILDING}*"):
        pid = folder.name.removeprefix(_BUILDING).split("-")[0]
        if not pid.isdigit() or not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _values_alive(request: CompileRequest | OnnxRequest) -> int | None:
    """`Artifact.activation_bytes`: by the layers of a candidate; of a model file the request does not say."""
    if isinstance(request, OnnxRequest):
        return None
    return activation_bytes(Candidate.from_json(json.loads(request.candidate_json)), request.phase)


def _failure(clock: Stopwatch, reason: str, kind: CompileFailureKind = "failed") -> CompileFailure:
    return CompileFailure(reason=reason, kind=kind, tune_s=clock.elapsed("tune"), compile_s=clock.elapsed("compile"))
