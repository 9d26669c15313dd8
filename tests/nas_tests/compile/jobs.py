"""What tests run inside workers: module-level functions that take and return plain values."""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nas.compile import apply_schedules, compile_worker
from nas.compile.compile_worker import CompileRequest
from nas.compile.kernel_tuner import TuningJob, TuningResult
from search_spaces.candidate import Candidate
from search_spaces.space import Phase

if TYPE_CHECKING:
    import tvm
    from torch import nn

Array = np.ndarray[Any, Any]


# Of workers.


def double(number: int) -> int:
    return 2 * number


def process_id() -> int:
    return os.getpid()


def sleep(duration_s: float) -> None:
    time.sleep(duration_s)


def write_pid_and_sleep(path: str) -> None:
    """Says through a file (whole, or not there) which process sleeps now."""
    Path(path + ".tmp").write_text(str(os.getpid()))
    Path(path + ".tmp").replace(path)
    time.sleep(600)


def leave(code: int) -> None:
    os._exit(code)


def leave_politely(code: int) -> None:
    sys.exit(code)


def segfault() -> None:
    ctypes.string_at(0)


def raise_value_error(text: str) -> None:
    raise ValueError(text)


def raise_timeout_error() -> None:
    raise TimeoutError("of the job itself")


def has_torch() -> bool:
    return sys.modules.get("torch") is not None


# Of export.


def digest_of(arrays: Sequence[Array]) -> str:
    """SHA-256 of the arrays' shapes and bytes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def weights_of(model: nn.Module) -> list[Array]:
    return [tensor.detach().numpy() for _, tensor in sorted(model.state_dict().items())]


def digest_of_reference(candidate_json: str, phase: Phase, seed: int) -> str:
    from nas.compile.export import make_reference

    reference = make_reference(Candidate.from_json(json.loads(candidate_json)), phase, None, seed)
    return digest_of([*reference.inputs, *weights_of(reference.model)])


# Of lowering and kernels.


def kernel_facts(request: CompileRequest) -> list[tuple[str, str, list[str]]]:
    """Key, name and block names of each kernel of a lowered candidate, in order of name."""
    import tvm

    from nas.compile.kernels import workload_key

    module = compile_worker._lower(request).module
    return sorted(
        (workload_key(tvm.IRModule({"main": function})), name.name_hint, blocks_of(function))
        for name, function in module.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    )  # fmt: skip


def blocks_of(function: tvm.tirx.PrimFunc) -> list[str]:
    import tvm
    import tvm_ffi

    names: list[str] = []

    def note(block: tvm.s_tir.SBlock) -> None:
        names.append(block.name_hint)

    tvm_ffi.structural_walk(function.body, (tvm.s_tir.SBlock, note))
    return names


def calls_of_constants_alone(request: CompileRequest) -> list[str]:
    """Kernels that `main` calls with nothing but constants: work that belongs into the compiler."""
    import tvm

    calls = [
        binding.value
        for block in compile_worker._lower(request).module["main"].body.blocks
        for binding in block.bindings
        if getattr(getattr(binding.value, "op", None), "name", None) == "relax.call_tir"
    ]
    assert calls
    return [
        call.args[0].name_hint
        for call in calls
        if all(isinstance(argument, tvm.ir.GenericConst) for argument in call.args[1].fields)
    ]


def transposes_around_clipped_convolutions() -> int:
    """Transposing blocks in conv, ReLU6, conv, lowered."""
    import torch
    import tvm
    from torch import nn

    from nas.compile.lowering import lower

    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU6(), nn.Conv2d(8, 8, 3, padding=1)).eval()
    with torch.no_grad():
        program = torch.export.export(model, (torch.zeros(1, 4, 6, 6),))
    module = lower(program, tvm.target.Target({"kind": "llvm", "num-cores": 1}))
    functions = [function for function in module.functions.values() if isinstance(function, tvm.tirx.PrimFunc)]
    return sum(name.startswith("T_transpose") for function in functions for name in blocks_of(function))


def simplify_and_run(expression: str, x: Array) -> tuple[list[str], Array]:
    """The operators left of an expression in `relax` and `x` after `simplify`, and its value.

    `constant(...)` in the expression is a constant of the module.
    """
    import tvm
    from tvm import relax

    from nas.compile.lowering import simplify

    variable = relax.Var("x", relax.TensorType(x.shape, str(x.dtype)))
    builder = relax.BlockBuilder()
    with builder.function("main", [variable]):
        scope = {"relax": relax, "x": variable, "inf": float("inf"), "np": np, "constant": _constant}
        builder.emit_func_output(builder.emit(eval(expression, scope)))
    module = simplify(builder.get())
    operators = [
        binding.value.op.name
        for block in module["main"].body.blocks
        for binding in block.bindings
        if hasattr(binding.value, "op")
    ]
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    return operators, machine["main"](tvm.runtime.tensor(x)).numpy()


def _constant(value: object) -> object:
    from tvm import relax

    return relax.const(np.asarray(value, dtype="float32"))


def fitting_traces(request: CompileRequest, traces: dict[str, str]) -> list[str]:
    """The keys of those `traces` that are of a kernel of the network, and can be replayed on it."""
    module, target = compile_worker._lower(request).module, compile_worker._target(request.target)
    return sorted(apply_schedules._fitting(module, target, traces))


def run_built(folder: str, built: compile_worker.BuiltFiles, target: str) -> tuple[float, float]:
    """Largest difference between a built library's outputs and its parity file's, and the largest output."""
    from profilers.artifact import Artifact, hash_file
    from profilers.runtimes.tvm import TvmRuntime

    artifact = Artifact(
        folder=Path(folder),
        candidate_id="0123456789ab",
        phase="infer",
        runtime="tvm",
        target=target,
        precision="float32",
        num_threads=1,
        inputs=built.inputs,
        outputs=built.outputs,
        files=tuple((name, hash_file(Path(folder) / name)) for name in built.names),
        tuned_coverage=0.0,
        model_bytes=1,
    )
    with np.load(Path(folder) / compile_worker.PARITY_NAME) as arrays:
        session = TvmRuntime().load(artifact, [arrays["input_0"]], 1)
        (output,) = session.outputs(session.run())
        return float(np.abs(output - arrays["output_0"]).max()), float(np.abs(arrays["output_0"]).max())


def key_of(workload_json: str) -> str:
    import tvm

    from nas.compile.kernels import workload_key

    return workload_key(tvm.ir.load_json(workload_json))


def intrinsics_state() -> tuple[bool, bool]:
    """Whether the intrinsics are registered, and whether `inspect.stack` is Python's own."""
    from nas.compile.tvm_import import import_intrinsics

    import_intrinsics()
    return "tvm.s_tir.tensor_intrin" in sys.modules, inspect.stack.__module__ == "inspect"


# Of traces and tuning.


def draw_schedules(workload_json: str, target_json: str, count: int) -> list[tuple[str, str, list[str]]]:
    """Trace as text, scheduled module, and kinds of steps of the first `count` schedules."""
    import tvm

    from nas.compile.kernel_tuner import _schedules
    from nas.compile.traces import trace_to_text
    from nas.compile.tvm_import import import_intrinsics

    import_intrinsics()
    target = tvm.target.Target(json.loads(target_json))
    drawn = []
    for _, schedule in _schedules(tvm.ir.load_json(workload_json), target, count):
        steps = [step.kind.name for step in schedule.trace.insts]
        drawn.append((trace_to_text(schedule.trace), tvm.ir.save_json(schedule.mod), steps))
    return drawn


def replay_makes(workload_json: str, trace: str, module_json: str) -> bool:
    """Whether a trace, applied here to its kernel, makes that module."""
    import tvm
    import tvm_ffi

    from nas.compile.traces import trace_from_text
    from nas.compile.tvm_import import import_intrinsics

    import_intrinsics()
    schedule = tvm.s_tir.Schedule(tvm.ir.load_json(workload_json))
    trace_from_text(trace).apply_to_schedule(schedule, remove_postproc=False)
    return bool(tvm_ffi.structural_equal(schedule.mod, tvm.ir.load_json(module_json)))


def time_unbuildable(reason: str, job: TuningJob) -> float | None:
    """Builds and times a schedule that the compiler for CPUs refuses, for one of two reasons."""
    import tvm
    from tvm import te

    from nas.compile.kernel_tuner import _build_and_time

    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="b")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([a, b])}))
    (loop,) = schedule.get_loops(schedule.get_sblock("b"))
    if reason == "thread axis":
        schedule.bind(loop, "threadIdx.x")
    else:
        schedule.annotate(loop, "software_pipeline_stage", [0, 1])
        schedule.annotate(loop, "software_pipeline_order", [0, 1])
    return _build_and_time(schedule, tvm.target.Target(json.loads(job.target)), job)


def workload_of_missing_function() -> str:
    """A kernel that calls a C function nobody has: LLVM links it lazily, and the first call crashes."""
    import tvm
    from tvm import te

    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: tvm.tirx.call_extern("float32", "edgenas_no_such_function", a[i]), name="b")
    text: str = tvm.ir.save_json(tvm.IRModule({"main": te.create_prim_func([a, b])}))
    return text


def begin_trial_and_die(job: TuningJob) -> TuningResult:
    """As if one schedule more had crashed its worker."""
    from nas.compile.kernel_tuner import read_journal

    journal = Path(job.journal)
    with journal.open("a") as log:
        log.write(f"\n[{len(read_journal(journal))}, null, null]\n")
    os._exit(9)


def kernels_without_a_schedule(request: CompileRequest) -> list[str]:
    """Names of the kernels that a build without any tuning record leaves as plain loops."""
    from tvm.s_tir import meta_schedule

    from nas.compile.apply_schedules import schedule_database
    from nas.compile.compile_worker import _lower, _target

    target = _target(request.target)
    module = _lower(request).module
    database = schedule_database(module, target, {})
    tasks = meta_schedule.relax_integration.extract_tasks(module, target)
    return [task.task_name for task in tasks if not database.has_workload(task.dispatched[0])]


def build_with_a_schedule_that_does_not_lower(target: str, folder: str) -> dict[str, Any]:
    """Builds a network whose norms get a schedule that can be made and not be compiled."""
    from nas.compile import compile_worker
    from nas.compile.schedules import rows
    from nas.compile.schedules.workload import blocks_of, is_reduction, loops_of
    from search_spaces.candidate import BlockSpec
    from search_spaces.registry import make_space
    from search_spaces.space import replay

    text = BlockSpec.of("text", context=8, vocabulary=9)
    space = make_space("hybrid_language", text, BlockSpec.of("language_model", vocabulary=9))
    candidate = replay(space, space.references()["convolution_only"])
    request = compile_worker.CompileRequest(
        candidate_json=candidate.canonical_json(), phase="decode@8", weights=None, seed=0, target=target
    )

    def all_axes(schedule: Any) -> int:
        """Counts the axis that a norm keeps with size 1 as one of rows: the sum ends up inside a vector."""
        first = next(block for block in blocks_of(schedule) if is_reduction(schedule, block))
        return len(loops_of(schedule, first).spatial)

    real = rows._num_rows_axes
    rows._num_rows_axes = all_axes
    try:
        compile_worker.plan(request)
        built = compile_worker.build(request, {}, folder, folder + "/objects")
    finally:
        rows._num_rows_axes = real
    return {"names": built.names, "unusable": built.unusable}
