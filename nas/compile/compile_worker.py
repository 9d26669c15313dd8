"""What runs inside a compile worker: export, lowering, and building with tuned records.

Export and lowering take seconds and are needed twice, before tuning (which kernels are there?)
and after it (build them): the worker keeps its last lowered module. A worker that was replaced
in between does the work again; nothing depends on the memory.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nas.compile.kernels import KernelTask
from nas.compile.memory import TVM_COPIES, require_memory
from nas.compile.onnx_import import OnnxAnswers, OnnxRequest
from profilers.artifact import hash_file
from search_spaces.candidate import Candidate, TensorSpec

if TYPE_CHECKING:
    import tvm

    from nas.compile.export import Reference

LIBRARY_NAME = "model.so"
PARITY_NAME = "parity.npz"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """One candidate, phase and set of weights to compile for one target.

    Attributes:
        candidate_json: the candidate's canonical JSON.
        phase: entry point.
        weights: checkpoint file, or None for random weights from `seed`.
        seed: of the random weights.
        target: target string.
    """

    candidate_json: str
    phase: str
    weights: str | None
    seed: int
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilePlan:
    """The kernels that a request needs.

    Attributes:
        tasks: one a kernel.
        disagreement: see `Reference`; with one, nothing is worth building.
    """

    tasks: tuple[KernelTask, ...]
    disagreement: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltFiles:
    """What a build came to.

    Attributes:
        names: files that it left in its folder.
        inputs, outputs: what enters and leaves the code.
        unusable: keys of kernels whose schedule did not fit them and was left out.
    """

    names: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    unusable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lowered:
    request: CompileRequest | OnnxRequest
    content_sha256: tuple[str, ...]
    module: tvm.IRModule
    reference: Reference | OnnxAnswers
    inputs: tuple[TensorSpec, ...]


_last: list[_Lowered] = []


def plan(request: CompileRequest | OnnxRequest) -> CompilePlan:
    """Exports and lowers a candidate, or imports and lowers a model; says which kernels it needs."""
    from nas.compile.kernels import kernels_of

    lowered = _lower(request)
    tasks = kernels_of(lowered.module, _target(request.target))
    return CompilePlan(tasks=tasks, disagreement=getattr(lowered.reference, "disagreement", None))


def build(request: CompileRequest | OnnxRequest, traces: dict[str, str], folder: str, objects: str) -> BuiltFiles:
    """Builds the library with the schedules of `traces`; weights are prepacked into it.

    Args:
        request: as given to `plan`.
        traces: kernel key to the JSON of a trace, for each kernel that has one.
        folder: an existing, empty folder for the files.
        objects: folder of compiled kernels of the request's target and this TVM version.
    """
    import numpy as np
    import tvm
    from tvm import relax

    from nas.compile.apply_schedules import apply_schedules, schedules_that_do_not_build
    from nas.compile.kernel_objects import link_kernels
    from nas.compile.prepack import prepack_weights
    from nas.compile.targets import linking
    from nas.compile.traces import SCHEDULE_ERRORS
    from nas.compile.tvm_import import import_intrinsics

    import_intrinsics()
    lowered = _lower(request)
    target = _target(request.target)

    def compiled(without: frozenset[str] = frozenset()) -> tuple[tvm.runtime.Executable, tuple[Path, ...], set[str]]:
        module, unusable = apply_schedules(lowered.module, target, traces, without)
        with target, tvm.transform.PassContext(opt_level=3):
            module = relax.transform.FoldConstant()(prepack_weights(module))
            module, kernels = link_kernels(module, target, Path(objects))
            return tvm.compile(module, target=target), kernels, {*unusable, *(without & traces.keys())}

    try:
        executable, kernels, unusable = compiled()
    except SCHEDULE_ERRORS:
        broken = schedules_that_do_not_build(lowered.module, target, traces)
        if not broken:
            raise
        executable, kernels, unusable = compiled(broken)
    executable.export_library(
        str(Path(folder) / LIBRARY_NAME), fcompile=linking(request.target), addons=[str(path) for path in kernels]
    )
    arrays = {f"input_{index}": array for index, array in enumerate(lowered.reference.inputs)}
    arrays |= {f"output_{index}": array for index, array in enumerate(lowered.reference.outputs)}
    np.savez(Path(folder) / PARITY_NAME, **arrays)  # type: ignore[arg-type]
    return BuiltFiles(
        names=(LIBRARY_NAME, PARITY_NAME),
        inputs=lowered.inputs,
        outputs=output_specs(lowered.reference),
        unusable=tuple(sorted(unusable)),
    )


def output_specs(reference: Reference | OnnxAnswers) -> tuple[TensorSpec, ...]:
    """Names, shapes and dtypes of a reference's outputs."""
    return tuple(
        TensorSpec(name=f"output_{index}", shape=tuple(array.shape), dtype=str(array.dtype))
        for index, array in enumerate(reference.outputs)
    )


def reference_of(request: CompileRequest) -> tuple[Reference, tuple[TensorSpec, ...]]:
    """The request's torch model with its answers, and the specs of its inputs."""
    from nas.compile.export import make_reference
    from search_spaces.registry import make_space

    candidate = Candidate.from_json(json.loads(request.candidate_json))
    space = make_space(candidate.space, candidate.input, candidate.head)
    phase = next(phase for phase in space.phases(candidate) if phase.name == request.phase)
    weights = None if request.weights is None else Path(request.weights)
    return make_reference(candidate, phase, weights, request.seed), phase.inputs


def content_hashes(request: CompileRequest | OnnxRequest) -> tuple[str, ...]:
    """SHA-256 of the files a request names: by content, as a training that starts over writes the same file again."""
    names = (request.model, request.arrays) if isinstance(request, OnnxRequest) else (request.weights,)
    return tuple(hash_file(Path(name)) for name in names if name is not None)


def _lower(request: CompileRequest | OnnxRequest) -> _Lowered:
    hashes = content_hashes(request)
    if _last and (_last[0].request, _last[0].content_sha256) == (request, hashes):
        return _last[0]
    _last.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.export deprecates its own internals
        module, reference, inputs = _import(request)
    _last.append(_Lowered(request=request, content_sha256=hashes, module=module, reference=reference, inputs=inputs))
    return _last[0]


def _import(
    request: CompileRequest | OnnxRequest,
) -> tuple[tvm.IRModule, Reference | OnnxAnswers, tuple[TensorSpec, ...]]:
    from nas.compile.export import export_program
    from nas.compile.lowering import lower, lower_module
    from nas.compile.onnx_import import import_onnx

    target = _target(request.target)
    if isinstance(request, OnnxRequest):
        imported, answers, specs = import_onnx(request)
        return lower_module(imported, target, must_convert_layout=False), answers, specs
    require_memory(Candidate.from_json(json.loads(request.candidate_json)), TVM_COPIES)
    reference, inputs = reference_of(request)
    return lower(export_program(reference), target), reference, inputs


def _target(text: str) -> tvm.target.Target:
    import tvm

    return tvm.target.Target(json.loads(text))
