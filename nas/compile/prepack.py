"""Rearranges weights into the layouts that tuned kernels want, once, at compile time.

TVM's own `FoldConstant` compiles and runs a kernel for each weight: 60 ms apiece, 1.3 s a network.
A rearrangement only moves elements, so numpy does it from the index expressions alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import tvm

Array = NDArray[Any]

_SUFFIX = "_weight_prepack"
"""How `SplitLayoutRewritePreproc` names the kernels that only rearrange weights."""


def prepack_weights(module: tvm.IRModule) -> tvm.IRModule:
    """Replaces each rearrangement of constants with the rearranged constants.

    Whatever it does not recognise stays as it is, for `FoldConstant` to compute.
    """
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Prepacker(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            arrays = constant_arguments(call, self.lookup_binding)
            if arrays is None or not call.args[0].name_hint.endswith(_SUFFIX):
                return call
            results = rearrange(module[call.args[0]], arrays)
            if results is None:
                return call
            constants = [relax.const(result) for result in results]
            return constants[0] if len(constants) == 1 else relax.Tuple(constants)

    prepacker = Prepacker(module)
    for name, function in list(module.functions.items()):
        if isinstance(function, relax.Function):
            prepacker.builder_.update_func(name, prepacker.visit_expr(function))
    return prepacker.builder_.get()


def constant_arguments(call: Any, lookup: Any) -> list[Array] | None:
    """The arguments of a `call_tir` whose arguments are all constants, else None."""
    import tvm
    from tvm import relax

    if not (isinstance(call.op, tvm.ir.Op) and call.op.name == "relax.call_tir"):
        return None
    arrays = []
    for argument in call.args[1].fields:
        bound = lookup(argument) if isinstance(argument, relax.Var) else argument
        if not isinstance(bound, tvm.ir.GenericConst):
            return None
        arrays.append(bound.value.numpy())
    return arrays


def rearrange(function: tvm.tirx.PrimFunc, inputs: list[Array]) -> list[Array] | None:
    """Runs a kernel of plain copies, `output[f(v)] = input[g(v)]`; None where it is anything else.

    Args:
        function: inputs first, then outputs, in the order of its parameters.
        inputs: one array for each input.
    """
    import tvm_ffi
    from tvm.s_tir import SBlock
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    infos = list(ArgInfo.from_prim_func(function))
    names = [str(parameter.name) for parameter in function.params]
    outputs = [np.zeros([int(size) for size in info.shape], str(info.dtype)) for info in infos[len(inputs) :]]
    arrays = dict(zip(names, [*inputs, *outputs], strict=True))
    is_written: set[str] = set()
    is_understood = [True]

    def visit(block: SBlock) -> None:
        if block.name_hint != "root":
            written = _copy_block(block, arrays)
            is_understood[0] = is_understood[0] and written is not None
            is_written.add(written or "")

    tvm_ffi.structural_walk(function.body, (SBlock, visit))
    complete = is_written == set(names[len(inputs) :])
    return outputs if is_understood[0] and complete else None


def _copy_block(block: Any, arrays: dict[str, Array]) -> str | None:
    """Carries out one copying block; the name of what it wrote, or None."""
    from tvm.ir import TensorLoad
    from tvm.tirx.stmt import BufferStore

    store = block.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, TensorLoad):
        return None
    source, destination = str(store.value.source.name), str(store.buffer.name)
    if source not in arrays or destination not in arrays:
        return None
    extents = [int(variable.dom.extent) for variable in block.iter_vars]
    grid = np.indices(extents, sparse=True)
    values = {str(variable.var.name): axis for variable, axis in zip(block.iter_vars, grid, strict=True)}
    try:
        read = tuple(_index(expression, values) for expression in store.value.indices)
        write = tuple(_index(expression, values) for expression in store.indices)
    except _UnknownExpressionError:
        return None
    arrays[destination][write] = arrays[source][read]
    return destination


class _UnknownExpressionError(Exception):
    """An index expression that is none of the arithmetic a layout needs."""


def _index(expression: Any, values: dict[str, Array]) -> Array | int:
    """An index expression over whole axes at once."""
    import tvm

    kind = type(expression).__name__
    if isinstance(expression, tvm.tirx.IntImm):
        return int(expression.value)
    if kind == "Var" and str(expression.name) in values:
        return values[str(expression.name)]
    if kind not in _ARITHMETIC:
        raise _UnknownExpressionError
    left, right = _index(expression.a, values), _index(expression.b, values)
    result: Array | int = _ARITHMETIC[kind](left, right)
    return result


_ARITHMETIC: dict[str, Any] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
}
