"""Candidate to ONNX: the second runtime, the export a winner ships with, and a cross-check."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path

from nas.compile.compile_worker import PARITY_NAME, BuiltFiles, CompileRequest, output_specs, reference_of

MODEL_NAME = "model.onnx"
OPSET = 18
"""Newest opset that all runtimes we know of read without conversion."""


def export_onnx(request: CompileRequest, folder: str) -> BuiltFiles:
    """Writes `model.onnx` (weights inside) and the fixed inputs and answers into `folder`.

    Runs inside a compile worker. `request.target` does not matter: the file is portable.
    """
    import numpy as np
    import torch

    reference, inputs = reference_of(request)
    tensors = tuple(torch.from_numpy(array) for array in reference.inputs)
    # The exporter reports its progress on stdout, and warns that torchvision is absent.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            reference.model,
            tensors,
            str(Path(folder) / MODEL_NAME),
            dynamo=True,
            opset_version=OPSET,
            external_data=False,
            input_names=[spec.name for spec in inputs],
            output_names=[spec.name for spec in output_specs(reference)],
            verbose=False,
        )
    arrays = {f"input_{index}": array for index, array in enumerate(reference.inputs)}
    arrays |= {f"output_{index}": array for index, array in enumerate(reference.outputs)}
    np.savez(Path(folder) / PARITY_NAME, **arrays)  # type: ignore[arg-type]
    return BuiltFiles(names=(MODEL_NAME, PARITY_NAME), inputs=inputs, outputs=output_specs(reference))
