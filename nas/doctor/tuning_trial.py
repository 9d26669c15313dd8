"""The least piece of tuning: it crashes with the versions of TVM that cannot tune."""

from __future__ import annotations


def build_tune_context() -> int:
    """Builds a TuneContext for a tiny kernel, in a worker process; returns how many designs it proposed."""
    from nas.compile.tvm_import import import_intrinsics

    import_intrinsics()
    import tvm
    from tvm import te
    from tvm.s_tir import meta_schedule

    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    context = meta_schedule.TuneContext(
        mod=tvm.IRModule({"main": te.create_prim_func([a, b])}),
        target=tvm.target.Target({"kind": "llvm", "num-cores": 1}),
        space_generator="post-order-apply",
        search_strategy="replay-trace",
    )
    return len(context.generate_design_space())
