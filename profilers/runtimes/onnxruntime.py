"""Runs an ONNX model with ONNX Runtime on the CPU, and makes an artifact of a model file."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from profilers.artifact import Artifact, hash_file
from profilers.errors import ProfilerError
from profilers.runtimes.runtime import Array, aligned
from search_spaces.candidate import TensorSpec

MODEL_NAME = "model.onnx"
PARITY_NAME = "parity.npz"
_ID_LENGTH = 12
_DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(int8)": "int8", "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}  # fmt: skip


class OnnxRuntime:
    """`model.onnx`, run on the CPU with all graph optimisations."""

    file_name = MODEL_NAME

    def __init__(self) -> None:
        import onnxruntime

        self._library = onnxruntime

    def load(self, artifact: Artifact, inputs: Sequence[Array], num_threads: int) -> OnnxSession:
        """Opens the model, sequential execution, `num_threads` threads within an operator."""
        options = _options(self._library, num_threads)
        model = str(artifact.path(self.file_name))
        session = self._library.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [spec.name for spec in artifact.inputs]
        if sorted(names) != sorted(value.name for value in session.get_inputs()):
            raise ProfilerError(f"model inputs {[v.name for v in session.get_inputs()]}, the artifact lists {names}")
        return OnnxSession(self._library, session, dict(zip(names, inputs, strict=True)))


class OnnxSession:
    """A session whose inputs are bound and whose outputs the runtime allocates, as TVM does."""

    def __init__(self, library: Any, session: Any, inputs: dict[str, Array]) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._values = [library.OrtValue.ortvalue_from_numpy(aligned(array), "cpu", 0) for array in inputs.values()]
        for name, value in zip(inputs, self._values, strict=True):
            self._binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            self._binding.bind_output(output.name, "cpu")

    def run(self) -> object:
        """One `run_with_iobinding`."""
        return self._session.run_with_iobinding(self._binding)

    def outputs(self, result: object) -> list[Array]:
        """Copies of what the last run computed; the binding holds it."""
        return list(self._binding.copy_outputs_to_cpu())


def make_onnx_artifact(
    model: Path,
    folder: Path,
    *,
    inputs: Sequence[Array] | None = None,
    outputs: Sequence[Array] | None = None,
    candidate_id: str | None = None,
    phase: str = "infer",
    precision: str = "float32",
    num_threads: int = 1,
    activation_bytes: int | None = None,
    seed: int = 0,
) -> Artifact:
    """Makes `folder` an artifact that runs `model` with ONNX Runtime.

    Args:
        model: an `.onnx` file in one piece (weights inside).
        folder: made when missing; files of the artifact in it are replaced.
        inputs: in the model's order; None draws normal floats, and zeros for other types. That
            needs fixed sizes, but for the first, the batch, which is 1 when it is open.
        outputs: the reference's answers; None takes ONNX Runtime's own without any graph
            optimisation, which checks its optimiser and nothing else.
        candidate_id: None takes the start of the file's SHA-256.
        phase, precision, num_threads, activation_bytes: see `Artifact`.
        seed: for the drawn inputs.

    Raises:
        ProfilerError: no such file, not a model, or shapes that are not fixed.
    """
    session = _plain_session(model, num_threads)
    if inputs is None:
        inputs = _draw_inputs(model, session.get_inputs(), seed)
    names = [value.name for value in session.get_inputs()]
    if outputs is None:
        outputs = session.run(None, dict(zip(names, inputs, strict=True)))
    _store(folder, model, inputs, outputs)
    digest = hash_file(folder / MODEL_NAME)
    artifact = Artifact(
        folder=folder,
        candidate_id=candidate_id or digest[:_ID_LENGTH],
        phase=phase,
        runtime="onnxruntime",
        target="any",
        precision=precision,
        num_threads=num_threads,
        inputs=_specs(names, inputs),
        outputs=_specs([value.name for value in session.get_outputs()], outputs),
        files=((MODEL_NAME, digest), (PARITY_NAME, hash_file(folder / PARITY_NAME))),
        tuned_coverage=None,
        model_bytes=(folder / MODEL_NAME).stat().st_size,
        activation_bytes=activation_bytes,
    )
    artifact.save()
    return artifact


def _plain_session(model: Path, num_threads: int) -> Any:
    """The model without any graph optimisation, or one line on why it cannot be loaded."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    if not model.is_file():
        raise ProfilerError(f"{model}: no such file; give the path of an .onnx model")
    options = _options(onnxruntime, num_threads)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except (
        state.Fail, state.InvalidArgument, state.InvalidGraph, state.InvalidProtobuf, state.NoModel,
        state.NotImplemented, state.RuntimeException,
    ) as error:  # fmt: skip
        raise ProfilerError(f"{model}: ONNX Runtime cannot load it ({error}); export it again") from error


def _store(folder: Path, model: Path, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if model.resolve() != (folder / MODEL_NAME).resolve():
        shutil.copyfile(model, folder / MODEL_NAME)
    arrays: dict[str, Any] = {f"input_{i}": array for i, array in enumerate(inputs)}
    arrays |= {f"output_{i}": array for i, array in enumerate(outputs)}
    np.savez(folder / PARITY_NAME, **arrays)


def _options(library: Any, num_threads: int) -> Any:
    options = library.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.execution_mode = library.ExecutionMode.ORT_SEQUENTIAL
    # Waiting threads spin, as TVM's do: sleeping ones would add a wake-up to every operator.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.log_severity_level = 3
    return options


def _draw_inputs(model: Path, values: Sequence[Any], seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    arrays: list[Array] = []
    for value in values:
        shape = [1 if place == 0 and not isinstance(size, int) else size for place, size in enumerate(value.shape)]
        if value.type not in _DTYPES or not all(isinstance(size, int) for size in shape):
            raise ProfilerError(
                f"{model}: input {value.name!r} has shape {value.shape} and type {value.type}; needs fixed sizes and"
                f" a type among {sorted(_DTYPES)}; export it with fixed shapes or give the inputs"
            )
        dtype = np.dtype(_DTYPES[value.type])
        drawn = random.standard_normal(shape) if dtype.kind == "f" else np.zeros(shape)
        arrays.append(drawn.astype(dtype))
    return arrays


def _specs(names: Sequence[str], arrays: Sequence[Array]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=name, shape=tuple(array.shape), dtype=str(array.dtype))
        for name, array in zip(names, arrays, strict=True)
    )
