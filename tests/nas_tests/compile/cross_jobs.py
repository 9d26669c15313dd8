"""Worker jobs of `test_targets`: what a compiled network calls, in order, written down for `run_network.c`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.compile import compile_worker
from nas.compile.compile_worker import BuiltFiles, CompileRequest


def build_and_plan(request: CompileRequest, folder: str) -> BuiltFiles:
    """Builds the library as the product does, and writes `plan.txt` and `data.bin` beside it."""
    import tvm

    modules: list[Any] = []
    compile_module = tvm.compile

    def remembering(module: Any, target: Any) -> Any:
        modules.append(module)
        return compile_module(module, target=target)

    tvm.compile = remembering
    try:
        built = compile_worker.build(request, {}, folder, f"{folder}/objects")
    finally:
        tvm.compile = compile_module
    with np.load(Path(folder) / compile_worker.PARITY_NAME) as arrays:
        inputs = [arrays[f"input_{index}"] for index in range(len(built.inputs))]
    _Plan(modules[0]["main"], inputs).write(Path(folder))
    return built


class _Plan:
    """The calls of a Relax function without control flow."""

    def __init__(self, main: Any, inputs: list[NDArray[np.float32]]) -> None:
        self.tensors = list(inputs)
        self.calls: list[tuple[str, list[int]]] = []
        # By identity: `==` of variables builds an expression, and two may have one name.
        self._places: dict[int, list[int]] = {_identity(v): [i] for i, v in enumerate(main.params)}
        for block in main.body.blocks:
            for binding in block.bindings:
                self._places[_identity(binding.var)] = self._value(binding.value)
        (self.answer,) = self._places[_identity(main.body.body)]

    def write(self, folder: Path) -> None:
        lines = [f"{len(self.tensors)} {len(self.calls)}"]
        lines += [" ".join(str(size) for size in (array.ndim, *array.shape)) for array in self.tensors]
        lines += [" ".join([name, str(len(args)), *map(str, args)]) for name, args in self.calls]
        (folder / "plan.txt").write_text("\n".join([*lines, str(self.answer)]) + "\n")
        content = np.concatenate([np.ascontiguousarray(array, np.float32).ravel() for array in self.tensors])
        content.tofile(folder / "data.bin")

    def _value(self, value: Any) -> list[int]:
        from tvm import relax

        if not isinstance(value, relax.TupleGetItem) and not hasattr(value, "op"):
            return self._argument(value)
        if isinstance(value, relax.TupleGetItem):
            return [self._places[_identity(value.tuple_value)][value.index]]
        name = value.args[0].name_hint if value.op.name == "relax.call_tir" else str(value.args[0].global_symbol)
        arguments = [place for argument in value.args[1].fields for place in self._argument(argument)]
        outputs = value.ty_args[0]
        shapes = outputs.fields if hasattr(outputs, "fields") else [outputs]
        places = []
        for shape in shapes:
            places.append(len(self.tensors))
            self.tensors.append(np.zeros([int(size) for size in shape.shape.values], np.float32))
        self.calls.append((f"__tvm_ffi_{name}", [*arguments, *places]))
        return places

    def _argument(self, argument: Any) -> list[int]:
        import tvm

        if isinstance(argument, tvm.relax.Tuple):
            return [place for field in argument.fields for place in self._argument(field)]
        if isinstance(argument, tvm.ir.GenericConst):
            self.tensors.append(argument.value.numpy())
            return [len(self.tensors) - 1]
        return self._places[_identity(argument)]


def _identity(variable: Any) -> int:
    return hash(variable)
