"""Compiled kernels as object files that every network with the same kernel links.

LLVM takes 0.2 s for a kernel and 6 s for a network of thirty; the kernels of a space recur, so
each is compiled once a device. A network is then its Relax byte code and the objects it calls:
0.2 s to put together, the same machine code as compiled in one piece.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm


def link_kernels(
    module: tvm.IRModule, target: tvm.target.Target, folder: Path
) -> tuple[tvm.IRModule, tuple[Path, ...]]:
    """Replaces kernels with calls to object files, compiling those that `folder` does not have.

    Args:
        module: scheduled kernels and the function that calls them.
        target: what the kernels are compiled for; `folder` is of this target and TVM version alone.
        folder: where object files are kept, shared by all networks and processes.

    Returns:
        The module that is left, and the object files to link with it.
    """
    import tvm
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    objects: dict[str, Path] = {}
    kept: list[str] = []

    @mutator
    class Linker(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if not (isinstance(call.op, tvm.ir.Op) and call.op.name == "relax.call_tir"):
                return call
            name = call.args[0].name_hint
            # One kernel stays in the module: without any there is no library that the objects'
            # symbols could be looked up in.
            kept.extend([] if kept else [name])
            if name == kept[0]:
                return call
            symbol = kernel_symbol(module[call.args[0]])
            if symbol not in objects:
                objects[symbol] = object_file(module[call.args[0]], symbol, target, folder)
            outputs = call.ty_args[0]
            return relax.op.call_dps_packed(
                symbol, call.args[1], list(outputs.fields) if isinstance(outputs, tvm.ir.TupleType) else outputs
            )

    linker = Linker(module)
    for name, function in list(module.functions.items()):
        if isinstance(function, relax.Function):
            linker.builder_.update_func(name, linker.visit_expr(function))
    left = relax.transform.DeadCodeElimination()(linker.builder_.get())
    return left, tuple(objects.values())


def kernel_symbol(kernel: tvm.tirx.PrimFunc) -> str:
    """A name for a scheduled kernel that is the same wherever the kernel is the same."""
    import tvm_ffi
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    shapes = [str(info) for info in ArgInfo.from_prim_func(kernel)]
    return "nas_" + hashlib.sha256(f"{tvm_ffi.structural_hash(kernel)}:{shapes}".encode()).hexdigest()[:24]


def object_file(kernel: tvm.tirx.PrimFunc, symbol: str, target: tvm.target.Target, folder: Path) -> Path:
    """The kernel's object file, compiled now when there is none; its name holds its hash."""
    import tvm

    for path in folder.glob(f"{symbol}-*.o"):
        if _digest(path) == path.stem.rpartition("-")[2]:
            return path
        path.unlink(missing_ok=True)  # cut short or changed: make it again
    folder.mkdir(parents=True, exist_ok=True)
    library = tvm.tirx.build(tvm.IRModule({symbol: kernel.with_attr("global_symbol", symbol)}), target=target)
    temporary = folder / f".{symbol}.{os.getpid()}.o"
    library.write_to_file(str(temporary), "o")
    path = folder / f"{symbol}-{_digest(temporary)}.o"
    temporary.replace(path)
    return path


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
