"""From a target to artifacts: one for each runtime and precision, all with the same reference answers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nas.compile.compile_worker import BuiltFiles, CompileRequest
from nas.compile.onnx import MODEL_NAME, export_onnx
from nas.compile.tvm import CompileFailure, CompileLimits, TvmCompiler
from nas.compile.workers import WorkerFailure
from nas.profile.onnx_file import ModelFileError
from nas.profile.onnx_jobs import INT8, PreparedModel, Refused, prepare_model, quantise
from nas.profile.targets import CandidateTarget, OnnxTarget, Target
from profilers.artifact import Artifact, hash_file
from profilers.device import DeviceSpec
from profilers.runtimes.onnxruntime import PARITY_NAME

ONNXRUNTIME, TVM = "onnxruntime", "tvm"
FLOAT32 = "float32"
PHASE = "infer"
"""The entry point of an ONNX file, and of a network that has only one."""

OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An artifact of a target.

    Attributes:
        artifact: ready to be measured.
        planned_memory_bytes: of intermediate values, by the graph; None where it is not known.
        is_foreign: whether the network is not one of ours.
        duration_s: what making it took.
    """

    artifact: Artifact
    planned_memory_bytes: int | None
    is_foreign: bool
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMade:
    """Why there is no artifact; one line."""

    reason: str


class ArtifactMaker:
    """Makes artifacts for one device and thread count; processes start when first needed."""

    def __init__(
        self, device: DeviceSpec, limits: CompileLimits, cache: Path, scratch: Path, on_progress: OnProgress
    ) -> None:
        """`scratch`: a folder that lives as long as the artifacts of ONNX files are needed."""
        self._device = device
        self._scratch = scratch
        self._on_progress = on_progress
        self._compiler = TvmCompiler(device, limits, cache)
        self._float32: dict[Target, PreparedModel] = {}

    def make(self, target: Target, runtime: str, precision: str) -> Made | NotMade:
        """The artifact of a target.

        Raises:
            ModelFileError: the target itself cannot be used, by any runtime.
        """
        started = time.monotonic()
        if runtime == TVM:
            if precision != FLOAT32:
                return NotMade(reason=f"precision {precision} is for {ONNXRUNTIME} only; allowed with tvm: {FLOAT32}")
            made = self._with_tvm(target)
        else:
            made = self._with_onnxruntime(target, precision)
        if isinstance(made, NotMade):
            return made
        planned = self._prepared(target).planned_memory_bytes
        return Made(
            artifact=made,
            planned_memory_bytes=planned,
            is_foreign=isinstance(target, OnnxTarget),
            duration_s=time.monotonic() - started,
        )

    def close(self) -> None:
        """Ends every process."""
        self._compiler.close()

    def _with_tvm(self, target: Target) -> Artifact | NotMade:
        if isinstance(target, CandidateTarget):
            compiled = self._compiler.compile(target.candidate, phase_of(target), on_progress=self._on_progress)
        else:
            prepared = self._prepared(target)
            arrays = Path(prepared.artifact_folder) / PARITY_NAME
            compiled = self._compiler.compile_onnx(
                Path(prepared.folded), arrays, self._id_of(prepared), on_progress=self._on_progress
            )
        if isinstance(compiled, CompileFailure):
            return NotMade(reason=compiled.reason)
        return compiled.artifact

    def _with_onnxruntime(self, target: Target, precision: str) -> Artifact | NotMade:
        prepared = self._prepared(target)
        if precision == FLOAT32:
            return Artifact.load(Path(prepared.artifact_folder))
        folder = self._folder(INT8)
        quantised = self._compiler.run(quantise, prepared.artifact_folder, prepared.folded, str(folder))
        if isinstance(quantised, WorkerFailure | Refused):
            return NotMade(reason=quantised.reason)
        return Artifact.load(Path(quantised))

    @staticmethod
    def _id_of(prepared: PreparedModel) -> str:
        return Artifact.load(Path(prepared.artifact_folder)).candidate_id

    def _prepared(self, target: Target) -> PreparedModel:
        """The target as an ONNX model with its answers, made once."""
        if target not in self._float32:
            self._on_progress("export" if isinstance(target, CandidateTarget) else "read", 0, 1)
            folder = self._folder("model")
            path, shapes = (
                (self._export(target, folder), {})
                if isinstance(target, CandidateTarget)
                else (target.path.resolve(), dict(target.shapes))
            )
            prepared = self._compiler.run(prepare_model, str(path), shapes, str(folder), self._device.num_threads)
            if isinstance(prepared, WorkerFailure | Refused):
                raise ModelFileError(_name_target(prepared.reason, path, target))
            assert isinstance(prepared, PreparedModel)
            if isinstance(target, CandidateTarget):
                _use_answers_of(folder / "torch", Path(prepared.artifact_folder), target)
            self._float32[target] = prepared
        return self._float32[target]

    def _export(self, target: CandidateTarget, folder: Path) -> Path:
        """The candidate as an ONNX file, with PyTorch's answers beside it."""
        request = CompileRequest(
            candidate_json=target.candidate.canonical_json(), phase=phase_of(target), weights=None, seed=0, target="any"
        )
        exported = folder / "torch"
        exported.mkdir()
        built = self._compiler.run(export_onnx, request, str(exported))
        if isinstance(built, WorkerFailure):
            raise ModelFileError(f"candidate {target.name}: {built.reason}")
        assert isinstance(built, BuiltFiles)
        return exported / MODEL_NAME

    def _folder(self, stem: str) -> Path:
        number = sum(1 for _ in self._scratch.iterdir())
        folder = self._scratch / f"{stem}-{self._device.num_threads}-{number}"
        folder.mkdir()
        folder.chmod(0o755)
        return folder


def phase_of(target: Target) -> str:
    """The entry point of a target whose phase is settled, see `in_phase`."""
    if isinstance(target, OnnxTarget):
        return PHASE
    assert target.phase is not None, "`in_phase` settles it"
    return target.phase


def _name_target(reason: str, path: Path, target: Target) -> str:
    """The reason with the name that the user gave instead of the file's full path."""
    shown = str(target.path) if isinstance(target, OnnxTarget) else f"candidate {target.name}"
    return reason.replace(str(path), shown) if str(path) in reason else f"{shown}: {reason}"


def _use_answers_of(exported: Path, folder: Path, target: CandidateTarget) -> None:
    """Makes the artifact in `folder` answer to PyTorch's outputs instead of ONNX Runtime's own."""
    from dataclasses import replace

    shutil.copyfile(exported / PARITY_NAME, folder / PARITY_NAME)
    artifact = Artifact.load(folder)
    files = tuple((name, hash_file(folder / name)) for name, _ in artifact.files)
    replace(artifact, candidate_id=target.candidate.candidate_id, phase=phase_of(target), files=files).save()
