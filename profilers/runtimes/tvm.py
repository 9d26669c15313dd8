"""Runs an exported Relax library with TVM's runtime alone: no `import tvm`, no torch, 0.3 s to start."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from profilers.artifact import Artifact
from profilers.errors import ProfilerError
from profilers.runtimes.runtime import Array, aligned

_CPU, _DEVICE_NUMBER = 1, 0
"""DLPack's kDLCPU, and the only one there is."""

_POOLED_ALLOCATOR = 2
"""`tvm.runtime.vm.VirtualMachine.POOLED_ALLOCATOR`, its default."""

_TIMED = "profilers_timed"


def runtime_library() -> Path:
    """`libtvm_runtime.so` of the installed wheel, found without importing tvm (3 s with torch there)."""
    package = find_spec("tvm")
    for folder in (package.submodule_search_locations if package else None) or ():
        path = Path(folder) / "lib" / "libtvm_runtime.so"
        if path.is_file():
            return path
    raise ProfilerError("libtvm_runtime.so was not found in an installed tvm; install apache-tvm")


class TvmRuntime:
    """`model.so`: a library from `tvm.compile(...).export_library`, entry point the phase or `main`."""

    file_name = "model.so"

    def __init__(self) -> None:
        import tvm_ffi

        self._ffi = tvm_ffi
        # Global, as `tvm.base` does it: the model library resolves its symbols against it.
        self._library = ctypes.CDLL(str(runtime_library()), ctypes.RTLD_GLOBAL)

    def load(self, artifact: Artifact, inputs: Sequence[Array], num_threads: int) -> TvmSession:
        """Opens the library and binds the inputs to its entry point.

        The number of threads is read by TVM from `TVM_NUM_THREADS`, which the parent has set.
        """
        module = self._ffi.load_module(str(artifact.path(self.file_name)))
        machine = module["vm_load_executable"]()
        machine["vm_initialization"](_CPU, _DEVICE_NUMBER, _POOLED_ALLOCATOR)
        known = [name for name in (artifact.phase, "main") if machine.implements_function(name)]
        if not known:
            raise ProfilerError(f"{self.file_name} has neither a function {artifact.phase!r} nor 'main'")
        tensors = [self._ffi.from_dlpack(aligned(array)) for array in inputs]
        # A closure with its arguments bound: calling it skips the look-up by name.
        machine["save_function"](known[0], _TIMED, 1, *tensors)
        return TvmSession(machine[_TIMED], tensors)


class TvmSession:
    """The entry point with its inputs bound."""

    def __init__(self, call: Any, tensors: Sequence[Any]) -> None:
        self.run = call
        """One call into the virtual machine, which takes its outputs from a pool."""
        self._tensors = tensors

    def outputs(self, result: object) -> list[Array]:
        """Copies of the result's tensors, nested tuples flattened."""
        return _flat(result)


def _flat(value: Any) -> list[Array]:
    if hasattr(value, "__dlpack__"):
        return [np.from_dlpack(value).copy()]
    return [array for part in value for array in _flat(part)]
