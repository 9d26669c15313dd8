"""What runs inside a compile worker: export, lowering, and building with tuned records.

Export and lowering take seconds and are needed twice, before tuning (which kernels are there?)
and after it (build them): the worker keeps its last lowered module. A worker that was replaced
in between does the work again; nothing depends on the memory.
"""

from __future__ import annotations

import contextlib
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
_TRACE_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError)
"""What TVM raises for a trace that it cannot read or apply: its own kinds of errors become Python's by name."""


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

    from nas.compile.kernel_objects import link_kernels
    from nas.compile.prepack import prepack_weights
    from nas.compile.targets import linking
    from nas.compile.tvm_import import import_intrinsics

    import_intrinsics()
    lowered = _lower(request)
    target = _target(request.target)
    module, unusable = _scheduled(lowered.module, target, traces)
    with target, tvm.transform.PassContext(opt_level=3):
        module = relax.transform.FoldConstant()(prepack_weights(module))
        module, kernels = link_kernels(module, target, Path(objects))
        executable = tvm.compile(module, target=target)
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
        unusable=unusable,
    )


def _scheduled(
    module: tvm.IRModule, target: tvm.target.Target, traces: dict[str, str]
) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """The module with its schedules applied, and the keys of those that do not fit their kernels.

    One schedule that does not fit (of a stranger's file, or another kernel's) fails the whole pass: then each is
    tried alone, and those that fail are left out.
    """
    import tvm
    from tvm import relax

    passes = relax.transform

    def apply(chosen: dict[str, str]) -> tvm.IRModule:
        with target, _database(module, target, chosen), tvm.transform.PassContext(opt_level=3):
            return tvm.transform.Sequential(
                [passes.MetaScheduleApplyDatabase(), passes.SplitLayoutRewritePreproc(), passes.LiftTransformParams()]
            )(module)

    try:
        return apply(traces), ()
    except _TRACE_ERRORS:
        fitting = _fitting(module, target, traces)
        unusable = tuple(sorted(set(traces) - set(fitting)))
        if not unusable:
            raise
        return apply(fitting), unusable


def _fitting(module: tvm.IRModule, target: tvm.target.Target, traces: dict[str, str]) -> dict[str, str]:
    """Those traces that can be replayed on their kernel of the module; others of the module are left out."""
    import tvm
    from tvm.s_tir import meta_schedule

    from nas.compile.kernels import workload_key
    from nas.compile.traces import trace_from_text

    fitting = {}
    for task in meta_schedule.relax_integration.extract_tasks(module, target):
        workload = task.dispatched[0]
        key = workload_key(workload)
        if key in traces:
            with contextlib.suppress(*_TRACE_ERRORS):
                schedule = tvm.s_tir.Schedule(workload)
                trace_from_text(traces[key]).apply_to_schedule(schedule, remove_postproc=False)
                fitting[key] = traces[key]
    return fitting


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


def _database(
    module: tvm.IRModule, target: tvm.target.Target, traces: dict[str, str]
) -> tvm.s_tir.meta_schedule.database.MemoryDatabase:
    """One schedule for each kernel: the one of `traces`, else the most promising one that was written for its kind."""
    from tvm.s_tir import meta_schedule

    from nas.compile.kernels import workload_key
    from nas.compile.schedules.proposals import first_schedule
    from nas.compile.traces import trace_from_text

    database = meta_schedule.database.MemoryDatabase()
    for task in meta_schedule.relax_integration.extract_tasks(module, target):
        workload = task.dispatched[0]
        trace_json = traces.get(workload_key(workload))
        if trace_json is not None:
            trace = trace_from_text(trace_json)
        else:
            proposed = first_schedule(workload, target)
            if proposed is None:
                continue
            trace = proposed.trace
        record = meta_schedule.database.TuningRecord(
            trace,
            database.commit_workload(workload),
            [1.0],  # the only record of its workload, so nothing is compared
            target,
            meta_schedule.arg_info.ArgInfo.from_prim_func(workload["main"]),
        )
        database.commit_tuning_record(record)
    return database
