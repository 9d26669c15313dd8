"""Whether an artifact gives the reference's answers, in a sandboxed child, without timing it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from profilers.artifact import Artifact
from profilers.errors import ProfileFailure
from profilers.runtimes.runtime import RUNTIMES, find_runtime
from profilers.sandbox import Limits, run_child, thread_environment
from profilers.timing import open_sealed

_ROOM_BYTES = 4 << 30
"""Address space beyond the model's: what `MeasureProtocol` gives a child for everything."""

_COPIES = 4
"""Of the weights, in address space: the mapped file, the tensors read from it, and what the runtime packs them into;
one more to be sure. It is no limit on resident memory."""

_START_S = 60.0
_SECONDS_PER_GB = 90.0
"""Hashing, reading and packing weights from a slow disk on a slow core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityCheck:
    """An artifact that gave the right answers.

    Attributes:
        parity_max_abs: largest absolute difference to the reference.
        peak_memory_bytes: what loading and running it twice added to a process with its runtime.
        duration_s: wall clock, hashing and loading included.
        sandbox: what the child had given up.
    """

    parity_max_abs: float
    peak_memory_bytes: int
    duration_s: float
    sandbox: str


def check_parity(artifact: Artifact, *, tolerance: float) -> ParityCheck | ProfileFailure:
    """Verifies the artifact's files, runs it on its fixed inputs and compares with the reference's answers.

    Args:
        artifact: for any runtime; limits on memory and time grow with its size.
        tolerance: difference allowed, per unit of `max(1, largest absolute reference value)`.
    """
    started = time.monotonic()
    wall_s = _START_S + _SECONDS_PER_GB * artifact.model_bytes / 1e9
    job = {
        "artifact": str(artifact.folder.resolve()),
        "digest": artifact.digest,
        "runtime": find_runtime(artifact.runtime, RUNTIMES),
        "num_threads": artifact.num_threads,
        "parity_tolerance": tolerance,
        "started_s": started,
    }
    limits = Limits(
        wall_s=wall_s,
        cpu_s=wall_s * artifact.num_threads,
        memory_bytes=_ROOM_BYTES + _COPIES * artifact.model_bytes,
    )
    environment = thread_environment(artifact.num_threads)
    answer = run_child("profilers.parity_check:check", job, limits=limits, environment=environment)
    if isinstance(answer, ProfileFailure):
        return answer
    return ParityCheck(
        parity_max_abs=float(answer["parity_max_abs"]),
        peak_memory_bytes=int(answer["peak_memory_bytes"]),
        duration_s=time.monotonic() - started,
        sandbox=str(answer["sandbox"]),
    )


def check(job: Mapping[str, Any], seal: Callable[..., str]) -> dict[str, Any]:
    """Entry point for `run_child`; see `profilers.timing.open_sealed` for the job."""
    opened = open_sealed(job, seal)
    return {
        "parity_max_abs": opened.check.worst,
        "peak_memory_bytes": opened.peak_memory_bytes,
        "sandbox": opened.sandbox,
    }
