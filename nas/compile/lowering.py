"""From an exported torch program to a Relax module of fused kernels, ready to be tuned.

The order of the passes decides which kernels exist, and with them the keys of the tuning
database: change it and every record is out of date (bump `PIPELINE_VERSION`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from nas.compile.exponential import use_polynomials

if TYPE_CHECKING:
    import torch
    import tvm

PIPELINE_VERSION = 3
"""Part of every cache key: kernels of another version are other kernels."""

CONVOLUTION_LAYOUT = {"relax.nn.conv2d": ["NHWC", "HWIO"]}
"""Channels last: the innermost loop runs over channels, which are many and a multiple of the
vector width, where the maps of a small network are only 2 to 16 pixels wide. With 16 random
samples a kernel it ran 1.6 times faster than NCHW on an AVX-512 core."""


def lower(program: torch.export.ExportedProgram, target: tvm.target.Target) -> tvm.IRModule:
    """Imports, simplifies, lays out, fuses, and marks weights as free to be prepacked.

    Args:
        program: static shapes, batch norm folded.
        target: decides which library dispatch and legalisation apply.

    Returns:
        A module whose `main` takes the phase's inputs only: weights are constants inside.
    """
    from tvm.relax.frontend.torch import from_exported_program

    return lower_module(
        from_exported_program(program, keep_params_as_input=False, unwrap_unit_return_tuple=True), target
    )


def lower_module(module: tvm.IRModule, target: tvm.target.Target, *, must_convert_layout: bool = True) -> tvm.IRModule:
    """The same for a module that a frontend has imported, with static shapes and constant weights.

    Args:
        module: with a `main` that takes the phase's inputs.
        target: see `lower`.
        must_convert_layout: False keeps a model channels first whose operators the layout pass
            cannot carry (it fails on the five-dimensional shuffles of ShuffleNet).
    """
    import tvm
    from tvm import relax

    passes = relax.transform
    with target, tvm.transform.PassContext(opt_level=3):
        module = tvm.transform.Sequential([passes.DecomposeOpsForInference(), passes.CanonicalizeBindings()])(module)
        module = simplify(module)
        convert = tvm.transform.Sequential([passes.ConvertLayout(CONVOLUTION_LAYOUT), passes.Normalize()])
        try:
            module = convert(module)
        except tvm.error.InternalError:
            if must_convert_layout:
                raise
        module = simplify(module)
        module = tvm.transform.Sequential(
            [
                passes.DeadCodeElimination(),
                passes.LegalizeOps(),
                passes.AnnotateTIROpPattern(),
                passes.FoldConstant(),
                passes.FuseOps(),
                passes.FuseTIR(),
                passes.DeadCodeElimination(),
            ]
        )(module)
        return passes.AttachAttrLayoutFreeBuffers()(use_polynomials(name_blocks(module)))


def name_blocks(module: tvm.IRModule) -> tvm.IRModule:
    """Gives the blocks of each kernel names that do not depend on the network around it.

    Legalisation names a reduction after its input variable (`lv94_red`). A schedule finds blocks
    by name, so without this a mean tuned in one network could not be built in another, although
    their structural hashes are equal.
    """
    import tvm
    import tvm_ffi

    renamed = tvm.IRModule({}, attrs=module.attrs)
    for name, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            names = _BlockNames()
            body = tvm_ffi.structural_map(function.body, (tvm.s_tir.SBlock, names.rename), order="post")
            function = function.with_body(body)
        renamed[name] = function
    return renamed


class _BlockNames:
    """Hands out block names within one kernel: the operation, then a count."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def rename(self, block: tvm.s_tir.SBlock) -> tvm.s_tir.SBlock:
        import tvm

        stem = block_stem(block.name_hint)
        number = self._counts[stem]
        self._counts[stem] += 1
        return tvm.s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, stem if number == 0 else f"{stem}_{number}", block.body,
            block.init, block.alloc_buffers, block.match_buffers, block.annotations,
        )  # fmt: skip


def block_stem(name: str) -> str:
    """A block's name without what depends on the network: variable numbers and counts.

    >>> block_stem("lv94_red"), block_stem("T_add_12"), block_stem("root")
    ('x_red', 'T_add', 'root')
    """
    return re.sub(r"_\d+$", "", re.sub(r"^lv\d*", "x", name))


def simplify(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrites what would otherwise block fusion, or cost a compilation each time.

    - `clip` has no layout rule, so a layout change puts two transposes around it: `minimum` and
      `maximum` have one.
    - division by a constant becomes multiplication by its reciprocal (at most one rounding more).
    - looking up a row checks its number: what the frontend imports reads outside the table for a token that is not
      in the vocabulary, and may crash. Constant numbers below zero count from the end, as in torch.
    - transposes and reshapes of constants are computed here; TVM's own constant folding compiles
      a kernel for each, 30 to 60 ms apiece.
    """
    import tvm
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Simplifier(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if not isinstance(call.op, tvm.ir.Op):
                return call
            arguments = [self._constant(argument) for argument in call.args]
            if call.op.name == "relax.clip":
                return self._clip(call)
            divisor = arguments[1] if call.op.name == "relax.divide" else None
            if divisor is not None and divisor.ndim == 0 and float(divisor) != 0.0:
                scale = relax.const(np.asarray(1.0 / divisor, dtype=divisor.dtype))
                return relax.op.multiply(call.args[0], scale)
            if call.op.name == "relax.take" and call.attrs.mode == "fast":
                return self._take(call, arguments[1])
            if call.op.name == "relax.permute_dims" and arguments[0] is not None:
                axes = None if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]
                return relax.const(np.ascontiguousarray(np.transpose(arguments[0], axes)))
            if call.op.name == "relax.reshape" and arguments[0] is not None:
                shape = [int(size) for size in call.ty.shape.values]
                return relax.const(arguments[0].reshape(shape))
            return call

        def _constant(self, expression: Any) -> np.ndarray[Any, Any] | None:
            if isinstance(expression, relax.Var):
                bound = self.lookup_binding(expression)
                expression = expression if bound is None else bound  # `or` asks an expression for its truth
            return expression.value.numpy() if isinstance(expression, tvm.ir.GenericConst) else None

        def _take(self, call: Any, numbers: np.ndarray[Any, Any] | None) -> Any:
            table, indices = call.args
            axis = call.attrs.axis
            if numbers is not None and (numbers < 0).any():
                size = int(table.ty.shape.values[0 if axis is None else int(axis)])
                indices = relax.const(np.where(numbers < 0, numbers + size, numbers).astype(numbers.dtype))
            return relax.op.take(table, indices, axis=axis, mode="clip")

        def _clip(self, call: Any) -> Any:
            value, low, high = call.args
            if float(low.value) != -math.inf:
                value = self.builder_.emit(relax.op.maximum(value, relax.const(float(low.value), "float32")))
            if float(high.value) != math.inf:
                value = relax.op.minimum(value, relax.const(float(high.value), "float32"))
            return value

    simplifier = Simplifier(module)
    for name, function in list(module.functions.items()):
        if isinstance(function, relax.Function):
            simplifier.builder_.update_func(name, simplifier.visit_expr(function))
    return simplifier.builder_.get()
