"""What the tests of prepacking and kernel objects run inside a compile worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nas.compile import apply_schedules, compile_worker, kernel_tuner
from nas.compile.compile_worker import CompileRequest


def draw_traces(request: CompileRequest) -> dict[str, str]:
    """Kernel key to the first random schedule of each heavy kernel: layouts of weights as tuning draws them."""
    import tvm

    from nas.compile.traces import trace_to_text
    from nas.compile.tvm_import import import_intrinsics

    import_intrinsics()
    target = compile_worker._target(request.target)
    traces = {}
    for task in compile_worker.plan(request).tasks:
        if task.is_heavy:
            _, schedule = next(iter(kernel_tuner._schedules(tvm.ir.load_json(task.workload_json), target, 1)))
            traces[task.key] = trace_to_text(schedule.trace)
    return traces


def scheduled_module(request: CompileRequest, traces: dict[str, str]) -> Any:
    """The module with its schedules, its weights not yet rearranged."""
    import tvm
    from tvm import relax

    lowered, target, passes = compile_worker._lower(request), compile_worker._target(request.target), relax.transform
    with (
        target,
        apply_schedules.schedule_database(lowered.module, target, traces),
        tvm.transform.PassContext(opt_level=3),
    ):
        return tvm.transform.Sequential(
            [passes.MetaScheduleApplyDatabase(), passes.SplitLayoutRewritePreproc(), passes.LiftTransformParams()]
        )(lowered.module)


def rearrangements(request: CompileRequest, traces: dict[str, str]) -> tuple[int, int, int]:
    """Weight rearrangements in the module; those numpy understood; those that equal what the kernel computes."""
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    from nas.compile.prepack import rearrange

    total = understood = equal = 0
    generator = np.random.default_rng(0)
    for name, function in scheduled_module(request, traces).functions.items():
        if not name.name_hint.endswith("_weight_prepack"):
            continue
        total += 1
        shapes = [[int(size) for size in info.shape] for info in ArgInfo.from_prim_func(function)]
        inputs = [generator.standard_normal(shape, dtype=np.float32) for shape in shapes[: len(shapes) // 2]]
        ours = rearrange(function, inputs)
        if ours is None:
            continue
        understood += 1
        kernel = tvm.tirx.build(tvm.IRModule({"f": function.with_attr("global_symbol", "f")}), target="llvm")
        outputs = [tvm.runtime.tensor(np.zeros(shape, dtype=np.float32)) for shape in shapes[len(inputs) :]]
        kernel["f"](*[tvm.runtime.tensor(array) for array in inputs], *outputs)
        equal += all(np.array_equal(left, right.numpy()) for left, right in zip(ours, outputs, strict=True))
    return total, understood, equal


def is_copy_with_arithmetic_understood() -> bool:
    """Whether a kernel that computes something is taken for a rearrangement."""
    import tvm
    from tvm import te

    from nas.compile.prepack import rearrange

    x = te.placeholder((4,), "float32", name="x")
    y = te.compute((4,), lambda i: x[i] * 2.0, name="y")
    function = te.create_prim_func([x, y])
    assert isinstance(function, tvm.tirx.PrimFunc)
    return rearrange(function, [np.ones(4, dtype=np.float32)]) is not None


def build_into(request: CompileRequest, traces: dict[str, str], folder: str, objects: str) -> set[str]:
    """Builds, and says which object files there are afterwards."""
    Path(folder).mkdir()
    compile_worker.build(request, traces, folder, objects)
    return {path.name for path in Path(objects).iterdir()}
