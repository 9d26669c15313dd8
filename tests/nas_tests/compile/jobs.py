"""What tests run inside workers: module-level functions that take and return plain values."""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nas.compile import compile_worker
from nas.compile.compile_worker import CompileRequest
from search_spaces.candidate import Candidate
from search_spaces.space import Phase

if TYPE_CHECKING:
    import tvm
    from torch import nn

Array = np.ndarray[Any, Any]


# Of workers.


def double(number: int) -> int:
    return 2 * number


def process_id() -> int:
    return os.getpid()


def sleep(duration_s: float) -> None:
    time.sleep(duration_s)


def write_pid_and_sleep(path: str) -> None:
    """Says through a file (whole, or not there) which process sleeps now."""
    Path(path + ".tmp").write_text(str(os.getpid()))
    Path(path + ".tmp").replace(path)
    time.sleep(600)


def leave(code: int) -> None:
    os._exit(code)


def leave_politely(code: int) -> None:
    sys.exit(code)


def segfault() -> None:
    ctypes.string_at(0)


def raise_value_error(text: str) -> None:
    raise ValueError(text)


def raise_timeout_error() -> None:
    raise TimeoutError("of the job itself")


def has_torch() -> bool:
    return sys.modules.get("torch") is not None


# Of export.


def digest_of(arrays: Sequence[Array]) -> str:
    """SHA-256 of the arrays' shapes and bytes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def weights_of(model: nn.Module) -> list[Array]:
    return [tensor.detach().numpy() for _, tensor in sorted(model.state_dict().items())]


def digest_of_reference(candidate_json: str, phase: Phase, seed: int) -> str:
    from nas.compile.export import make_reference

    reference = make_reference(Candidate.from_json(json.loads(candidate_json)), phase, None, seed)
    return digest_of([*reference.inputs, *weights_of(reference.model)])
