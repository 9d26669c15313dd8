"""What a runtime library has to offer to be measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from profilers.artifact import Artifact
from profilers.errors import ProfilerError

Array = npt.NDArray[Any]


class Session(Protocol):
    """A loaded artifact whose inputs are set."""

    def run(self) -> object:
        """One inference: what is timed. Inputs are in place, the runtime allocates the outputs.

        Returns what `outputs` needs to read the result; dropping it frees the outputs.
        """
        ...

    def outputs(self, result: object) -> list[Array]:
        """Copies of what the latest `run` computed, in calling order; `result` is what it returned."""
        ...


class Runtime(Protocol):
    """Loads artifacts. The class is made without arguments, which imports the library.

    Making one must not load the artifact: between the two the child gives up its rights.
    """

    file_name: str
    """The artifact's file that `load` opens."""

    def load(self, artifact: Artifact, inputs: Sequence[Array], num_threads: int) -> Session:
        """Opens the artifact and sets its inputs, given in calling order."""
        ...


RUNTIMES: dict[str, str] = {
    "tvm": "profilers.runtimes.tvm:TvmRuntime",
    "onnxruntime": "profilers.runtimes.onnxruntime:OnnxRuntime",
}
"""`Artifact.runtime` -> `package.module:Class`. Text, because it is a fresh process that imports it."""

PACKAGES: dict[str, tuple[str, ...]] = {"tvm": ("apache-tvm", "apache-tvm-ffi"), "onnxruntime": ("onnxruntime",)}
"""Distributions whose versions are part of a device's fingerprint."""

LIBRARIES: dict[str, str] = {
    "tvm": "lib/libtvm_runtime.so",
    "onnxruntime": "capi/onnxruntime_pybind11_state*.so",
}
"""Import package -> pattern of the shared library whose content is part of a device's fingerprint."""


def find_runtime(name: str, runtimes: Mapping[str, str] = RUNTIMES) -> str:
    """Where the runtime's class is; an unknown name lists the known ones.

    >>> find_runtime("tvm")
    'profilers.runtimes.tvm:TvmRuntime'
    """
    if name not in runtimes:
        raise ProfilerError(f"runtime {name!r} is not known; known: {sorted(runtimes)}")
    return runtimes[name]


def make_runtime(place: str) -> Runtime:
    """An instance of the class at `package.module:Class`."""
    module, _, name = place.partition(":")
    runtime: Runtime = getattr(import_module(module), name)()
    return runtime


def aligned(array: Array, boundary_bytes: int = 64) -> Array:
    """A copy whose data starts at a multiple of `boundary_bytes`.

    Compiled code assumes the alignment of TVM's own allocator (64); numpy promises 16.

    >>> aligned(np.ones(3)).ctypes.data % 64
    0
    """
    raw = np.empty(array.nbytes + boundary_bytes, np.uint8)
    start = -raw.ctypes.data % boundary_bytes
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
