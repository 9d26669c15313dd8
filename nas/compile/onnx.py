"""Candidate to ONNX: the second runtime, the export a winner ships with, and a cross-check."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import resource
import warnings
from dataclasses import dataclass
from pathlib import Path

from nas.compile.compile_worker import PARITY_NAME, BuiltFiles, CompileRequest, output_specs, reference_of
from nas.compile.memory import (
    ONE_PIECE_BYTES,
    ONE_PIECE_COPIES,
    SPLIT_COPIES,
    require_memory,
    require_one_piece,
    weights_bytes,
)
from nas.errors import NasError
from profilers.artifact import Artifact, hash_file
from search_spaces.candidate import Candidate
from search_spaces.layers import activation_bytes

MODEL_NAME = "model.onnx"
DATA_NAME = "model.onnx.data"
"""Weights of a model that does not fit into one file, beside it."""

OPSET = 18
"""Newest opset that all runtimes we know of read without conversion."""


class ContradictionError(NasError):
    """A network whose entry point contradicts its whole pass: nothing of it is worth a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableFiles:
    """An export that may have its weights beside the model, and what making it took.

    Attributes:
        built: the files.
        peak_memory_bytes: largest resident size of the process.
    """

    built: BuiltFiles
    peak_memory_bytes: int


def export_onnx(request: CompileRequest, folder: str) -> BuiltFiles:
    """Writes `model.onnx` (weights inside) and the fixed inputs and answers into `folder`.

    Runs inside a compile worker. `request.target` does not matter: the file is portable.

    Raises:
        ModelTooLargeError: weights that one file or this machine's memory cannot hold.
        ContradictionError: an entry point that contradicts the network's whole pass.
    """
    candidate = Candidate.from_json(json.loads(request.candidate_json))
    require_one_piece(candidate)
    require_memory(candidate, ONE_PIECE_COPIES)
    return _export(request, Path(folder), is_split=False)


def export_portable(request: CompileRequest, folder: str) -> PortableFiles:
    """As `export_onnx`, with the weights in `model.onnx.data` where one file cannot hold them.

    Raises:
        ModelTooLargeError: weights that this machine's memory cannot hold.
        ContradictionError: an entry point that contradicts the network's whole pass.
    """
    candidate = Candidate.from_json(json.loads(request.candidate_json))
    is_split = weights_bytes(candidate) > ONE_PIECE_BYTES
    require_memory(candidate, SPLIT_COPIES if is_split else ONE_PIECE_COPIES)
    built = _export(request, Path(folder), is_split=is_split)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return PortableFiles(built=built, peak_memory_bytes=kilobytes * 1024)


def _export(request: CompileRequest, folder: Path, *, is_split: bool) -> BuiltFiles:
    import numpy as np
    import torch

    reference, inputs = reference_of(request)
    if reference.disagreement is not None:
        raise ContradictionError(reference.disagreement)
    tensors = tuple(torch.from_numpy(array) for array in reference.inputs)
    # The exporter reports its progress on stdout, and warns that torchvision is absent.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            reference.model,
            tensors,
            str(folder / MODEL_NAME),
            dynamo=True,
            opset_version=OPSET,
            external_data=is_split,
            input_names=[spec.name for spec in inputs],
            output_names=[spec.name for spec in output_specs(reference)],
            verbose=False,
        )
    arrays = {f"input_{index}": array for index, array in enumerate(reference.inputs)}
    arrays |= {f"output_{index}": array for index, array in enumerate(reference.outputs)}
    np.savez(folder / PARITY_NAME, **arrays)  # type: ignore[arg-type]
    names = (MODEL_NAME, DATA_NAME, PARITY_NAME) if is_split else (MODEL_NAME, PARITY_NAME)
    return BuiltFiles(names=names, inputs=inputs, outputs=output_specs(reference))


def onnx_artifact(candidate: Candidate, phase: str, folder: Path, built: BuiltFiles, num_threads: int) -> Artifact:
    """The artifact of an export that lies in `folder`, its manifest written."""
    artifact = Artifact(
        folder=folder,
        candidate_id=candidate.candidate_id,
        phase=phase,
        runtime="onnxruntime",
        target="any",
        precision="float32",
        num_threads=num_threads,
        inputs=built.inputs,
        outputs=built.outputs,
        files=tuple(sorted((name, hash_file(folder / name)) for name in built.names)),
        tuned_coverage=None,
        model_bytes=sum((folder / name).stat().st_size for name in built.names if name != PARITY_NAME),
        activation_bytes=activation_bytes(candidate, phase),
    )
    artifact.save()
    return artifact
