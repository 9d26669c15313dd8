"""Reads an ONNX file from anywhere: checks it, fixes its shapes, and folds its constants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import NasError

if TYPE_CHECKING:
    import onnx

_FIRST_BYTE = 0x08
"""Of every ONNX file we know: field 1 (`ir_version`) of `ModelProto`, a varint (onnx.proto)."""

_LEAST_IR_VERSION = 4
"""From here on a weight need not be listed among the inputs as well, where a caller could replace it."""

Shapes = Mapping[str, tuple[int, ...]]


class ModelFileError(NasError):
    """A file that cannot be profiled: not ONNX, damaged, data elsewhere, or open shapes."""


def read_model(path: Path) -> onnx.ModelProto:
    """The model with its weights, or one line on why it is none.

    Raises:
        ModelFileError: no such file, not ONNX, damaged, or weights outside its folder.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}; give the path of an .onnx model") from error
    is_onnx = content[:1] == bytes([_FIRST_BYTE])
    try:
        model = onnx.load_from_string(content)
    except DecodeError as error:
        what = "damaged or truncated" if is_onnx else "not an ONNX model"
        raise ModelFileError(f"{path}: {what} ({len(content)} bytes); export or download it again") from error
    if not is_onnx or not model.graph.output:
        seen = "empty" if not content else f"{len(content)} bytes without a graph"
        raise ModelFileError(f"{path}: not an ONNX model ({seen}); give the path of an .onnx model")
    _load_external_data(model, path)
    return model


def _load_external_data(model: onnx.ModelProto, path: Path) -> None:
    """Reads weights kept in other files, which must lie in the model's own folder or below."""
    from onnx.checker import ValidationError
    from onnx.external_data_helper import load_external_data_for_tensor

    folder = path.resolve().parent
    for tensor in model.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if tensor.data_location != tensor.EXTERNAL:
            continue
        location = entries.get("location", "")
        place = (folder / location).resolve()
        if not location or Path(location).is_absolute() or not place.is_relative_to(folder):
            raise ModelFileError(
                f"{path}: weights {tensor.name!r} are kept in {location!r}, outside the model's folder;"
                " allowed: files beside it. Save the model in one piece"
            )
        if not place.is_file():
            raise ModelFileError(f"{path}: weights {tensor.name!r} are kept in {location!r}, which is missing")
        try:
            load_external_data_for_tensor(tensor, str(folder))
        except (OSError, ValueError, RuntimeError, ValidationError) as error:
            raise ModelFileError(f"{path}: weights {tensor.name!r} in {location!r}: {_first_line(error)}") from error
        tensor.data_location = tensor.DEFAULT
        del tensor.external_data[:]


def fix_shapes(model: onnx.ModelProto, shapes: Shapes, path: Path) -> None:
    """Gives every input a fixed shape, in place: the given one, or its own with a batch of 1.

    Raises:
        ModelFileError: an unknown input, a shape that contradicts the model's, or one that stays open.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    names = [value.name for value in inputs]
    if unknown := [name for name in shapes if name not in names]:
        raise ModelFileError(f"{path}: no input {unknown[0]!r}; its inputs: {', '.join(names)}")
    for value in inputs:
        dimensions = value.type.tensor_type.shape.dim
        own = tuple(each.dim_value if each.dim_value > 0 else None for each in dimensions)
        shape = _settle(path, value.name, own, shapes.get(value.name))
        del dimensions[:]
        for size in shape:
            dimensions.add().dim_value = size
    # Weights that are inputs as well could be replaced by a caller, so nothing could be folded.
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, _LEAST_IR_VERSION)
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")


def _settle(path: Path, name: str, own: tuple[int | None, ...], given: tuple[int, ...] | None) -> tuple[int, ...]:
    shown = "x".join("?" if size is None else str(size) for size in own) or "unknown"
    if given is None:
        settled = [1 if place == 0 and size is None else size for place, size in enumerate(own)]
        if not own or None in settled:
            example = "x".join(str(size or 224) for size in settled) or "1x3x224x224"
            raise ModelFileError(
                f"{path}: input {name!r} has shape {shown}; give its sizes, for instance --input {name}:{example}"
            )
        return tuple(size for size in settled if size is not None)
    fits = len(given) == len(own) and all(size in (None, wanted) for size, wanted in zip(own, given, strict=True))
    if own and not fits:
        raise ModelFileError(
            f"{path}: --input {name}:{'x'.join(map(str, given))} does not fit its shape {shown}; only ? may be chosen"
        )
    return given


def fold(fixed: Path, folded: Path) -> onnx.ModelProto:
    """Writes the model with everything computed that needs no input, in standard operators only.

    ONNX Runtime's basic optimisations do it: constants and shapes folded, batch norm merged into
    convolutions, nothing fused into operators of its own.
    """
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(fixed), options, providers=["CPUExecutionProvider"])
    return onnx.load(folded)


def planned_memory_bytes(model: onnx.ModelProto) -> int | None:
    """Largest sum of inputs, outputs and intermediate values alive at once, running nodes in file order.

    Weights and an operator's own scratch memory are not part of it. None where a shape is unknown.
    """
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model).graph
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    sizes = {value.name: _size_bytes(value.type.tensor_type) for value in values}
    weights = {tensor.name for tensor in inferred.initializer}
    last_use = {name: place for place, node in enumerate(inferred.node) for name in node.input}
    last_use |= {output.name: len(inferred.node) for output in inferred.output}
    alive = {value.name for value in inferred.input}
    peak = 0
    for place, node in enumerate(inferred.node):
        alive |= {name for name in node.output if name}
        needed = [sizes.get(name) for name in alive - weights]
        if None in needed:
            return None
        peak = max(peak, sum(size for size in needed if size is not None))
        alive = {name for name in alive if last_use.get(name, -1) > place}
    return peak


def _size_bytes(tensor: onnx.TypeProto.Tensor) -> int | None:
    import onnx

    count = 1
    for dimension in tensor.shape.dim:
        if dimension.dim_value <= 0:
            return None
        count *= dimension.dim_value
    return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize if tensor.elem_type else None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
