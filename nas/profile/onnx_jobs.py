"""Makes artifacts of an ONNX file, in a worker process with a time limit: the file is a stranger's."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nas.profile.onnx_file import ModelFileError, Shapes, fix_shapes, fold, planned_memory_bytes, read_model

if TYPE_CHECKING:
    from profilers.artifact import Artifact

FIXED_NAME, FOLDED_NAME = "fixed.onnx", "folded.onnx"
INT8 = "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """An ONNX file made ready in a folder of ours.

    Attributes:
        artifact_folder: its artifact for ONNX Runtime in float32, with the reference answers.
        folded: the model with fixed shapes and constants folded, for compilers.
        num_operators: in the folded model.
        planned_memory_bytes: see `planned_memory_bytes`.
    """

    artifact_folder: str
    folded: str
    num_operators: int
    planned_memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why there is no artifact: one line for people."""

    reason: str


def prepare_model(path: str, shapes: Shapes, folder: str, num_threads: int) -> PreparedModel | Refused:
    """Checks `path`, fixes its shapes and makes its float32 artifact in `folder`/float32.

    The artifact's answers are ONNX Runtime's without graph optimisation.
    """
    try:
        return _prepared(path, shapes, folder, num_threads)
    except ModelFileError as error:
        return Refused(reason=str(error))


def _prepared(path: str, shapes: Shapes, folder: str, num_threads: int) -> PreparedModel:
    import onnx

    from profilers.errors import ProfilerError
    from profilers.runtimes.onnxruntime import make_onnx_artifact

    source, place = Path(path), Path(folder)
    model = read_model(source)
    fix_shapes(model, shapes, source)
    onnx.save(model, place / FIXED_NAME)
    try:
        artifact = make_onnx_artifact(place / FIXED_NAME, place / "float32", num_threads=num_threads)
        folded = fold(place / FIXED_NAME, place / FOLDED_NAME)
    except ProfilerError as error:
        raise ModelFileError(str(error).replace(str(place / FIXED_NAME), path)) from error
    except Exception as error:  # whatever an operator raises when it runs
        reason = f"it cannot be run ({_first_line(error)}); try other sizes with --input"
        raise ModelFileError(f"{path}: {reason}") from error
    planned = planned_memory_bytes(folded)
    replace(artifact, activation_bytes=planned).save()
    return PreparedModel(
        artifact_folder=str(artifact.folder),
        folded=str(place / FOLDED_NAME),
        num_operators=len(folded.graph.node),
        planned_memory_bytes=planned,
    )


def quantise(artifact_folder: str, folded: str, folder: str) -> str | Refused:
    """Makes an int8 artifact in `folder` of a float32 one: int8 weights, activations scaled at run time.

    Its reference answers stay those of float32: what quantisation changes is then seen, and limited.
    """
    from profilers.artifact import Artifact

    float32 = Artifact.load(Path(artifact_folder))
    try:
        return str(_quantised(float32, Path(folded), Path(folder)).folder)
    except ModelFileError as error:
        return Refused(reason=str(error))
    except Exception as error:  # the quantiser's own complaints are of many types
        return Refused(reason=f"int8: ONNX Runtime cannot quantise this model ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _quantised(float32: Artifact, folded: Path, folder: Path) -> Artifact:
    import numpy as np
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from profilers.runtimes.onnxruntime import PARITY_NAME, make_onnx_artifact

    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "quantised.onnx"
    logging.disable(logging.WARNING)  # advice to fold the model first, which it is
    # Of the folded model, whose weights are all constants. ConvInteger on the CPU takes unsigned ones only.
    quantize_dynamic(folded, target, weight_type=QuantType.QUInt8)
    operators = {node.op_type for node in onnx.load(target).graph.node}
    if not any("Integer" in name or "Quantize" in name for name in operators):
        raise ModelFileError(
            f"int8: none of this model's operators can be quantised ({', '.join(sorted(operators))});"
            " dynamic quantisation covers Conv, MatMul and Gemm"
        )
    with np.load(float32.path(PARITY_NAME), allow_pickle=False) as arrays:
        inputs = [arrays[f"input_{i}"] for i in range(len(float32.inputs))]
        outputs = [arrays[f"output_{i}"] for i in range(len(float32.outputs))]
    artifact = make_onnx_artifact(
        target,
        folder,
        inputs=inputs,
        outputs=outputs,
        candidate_id=float32.candidate_id,
        phase=float32.phase,
        precision=INT8,
        num_threads=float32.num_threads,
        activation_bytes=float32.activation_bytes,
    )
    target.unlink()
    return artifact
