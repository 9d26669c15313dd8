"""The smallest child there is: what the sandbox lets it keep, and how long it takes to start."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


def probe(job: Mapping[str, Any], seal: Callable[..., str]) -> dict[str, Any]:
    """Entry point for `run_child`: imports what a measuring child imports, seals itself, and says so.

    Args:
        job: `started_s`, the parent's monotonic clock, and `runtime` (`package.module:Class`) or None.
        seal: see `profilers.seal`.
    """
    import profilers.timing  # noqa: F401  its imports are most of a child's start
    from profilers.runtimes.runtime import make_runtime

    if job["runtime"] is not None:
        make_runtime(job["runtime"])
    level = seal()
    return {"sandbox": level, "started_s": time.monotonic() - job["started_s"]}
