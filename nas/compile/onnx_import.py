"""ONNX model to Relax module: what the compile worker lowers when there is no candidate to export."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.errors import NasError
from search_spaces.candidate import TensorSpec

if TYPE_CHECKING:
    import onnx
    import tvm


class OnnxImportError(NasError):
    """TVM's frontend cannot read a model; the message names the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxRequest:
    """One ONNX model to compile for one target.

    Attributes:
        model: file of a model with fixed shapes and constants folded (`nas.profile.onnx_file`).
        arrays: `.npz` with `input_<i>` and `output_<i>`, the answers that the compiled code must give.
        phase: entry point's name.
        target: target string.
    """

    model: str
    arrays: str
    target: str
    phase: str = "infer"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxAnswers:
    """Fixed inputs of a model and the answers to them, in calling order."""

    inputs: tuple[NDArray[Any], ...]
    outputs: tuple[NDArray[Any], ...]


def import_onnx(request: OnnxRequest) -> tuple[tvm.IRModule, OnnxAnswers, tuple[TensorSpec, ...]]:
    """The model as a Relax module whose `main` takes its inputs only, its answers, and its inputs' specs.

    Raises:
        OnnxImportError: the frontend lacks an operator, or one form of it.
    """
    import onnx

    model = onnx.load(request.model)
    with np.load(request.arrays, allow_pickle=False) as arrays:
        answers = OnnxAnswers(inputs=_numbered(arrays, "input"), outputs=_numbered(arrays, "output"))
    names = [value.name for value in model.graph.input]
    specs = tuple(
        TensorSpec(name=name, shape=tuple(array.shape), dtype=str(array.dtype))
        for name, array in zip(names, answers.inputs, strict=True)
    )
    return _read(model), answers, specs


def _read(model: onnx.ModelProto) -> tvm.IRModule:
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    said = io.StringIO()  # the frontend prints which operator it stumbled over, and raises something else
    try:
        with contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = from_onnx(model, keep_params_in_input=False)
            return relax.transform.DeadCodeElimination()(module)
    except Exception as error:  # the frontend raises whatever its converters do
        raise OnnxImportError(explain(str(error), said.getvalue())) from error


def explain(error: str, said: str) -> str:
    """One line that names the operator TVM could not import.

    >>> explain("The following operators are not supported for frontend ONNX: Foo, Bar", "")
    'TVM cannot import the operators Foo, Bar of this model; measure it with --runtime onnxruntime'
    >>> explain("bad shape", "Error converting operator Reshape, with inputs: [...]")
    "TVM cannot import this model's operator Reshape (bad shape); measure it with --runtime onnxruntime"
    """
    advice = "measure it with --runtime onnxruntime"
    first_line = (error.strip().splitlines() or ["no reason given"])[0]
    if missing := re.search(r"not supported for frontend ONNX: (.+)", error):
        return f"TVM cannot import the operators {missing[1].strip()} of this model; {advice}"
    if stumbled := re.search(r"Error converting operator (\S+?),", said):
        return f"TVM cannot import this model's operator {stumbled[1]} ({first_line}); {advice}"
    return f"TVM cannot import this model ({first_line}); {advice}"


def _numbered(arrays: Any, stem: str) -> tuple[NDArray[Any], ...]:
    count = sum(name.startswith(f"{stem}_") for name in arrays.files)
    return tuple(arrays[f"{stem}_{index}"] for index in range(count))
