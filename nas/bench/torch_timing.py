"""Torch eager and torch.compile as baselines: block by block in turn, in a process of their own."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from nas.compile.compile_worker import CompileRequest
from profilers.device import DeviceSpec
from profilers.lock import device_lock
from profilers.measurement import MeasureProtocol

EAGER, COMPILED = "torch", "torch.compile"
_AGREEMENT = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchTimes:
    """Median of block medians in ms by baseline, and why one is missing."""

    latency_ms: dict[str, float]
    missing_because: dict[str, str]


def missing_compiler() -> str | None:
    """Why torch.compile cannot work here; None when it can. It needs a C++ compiler for the CPU."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    if any(shutil.which(name) for name in wanted):
        return None
    return f"torch.compile needs a C++ compiler: none of {', '.join(wanted)} is on the PATH; install g++"


def time_torch(request: CompileRequest, protocol: MeasureProtocol, device: DeviceSpec, is_compiled: bool) -> TorchTimes:
    """Times the request's folded network. Runs inside a worker process with torch.

    Args:
        request: the network; its target does not matter.
        protocol: blocks as in `profilers.timing`; all blocks in this one process.
        device: whose lock is held while timing, and whose cores are used, one a thread.
        is_compiled: whether to time torch.compile as well.
    """
    import torch

    from nas.compile.compile_worker import reference_of

    # Quiet, as deprecations of torch's own internals are nothing a reader could act on.
    warnings.simplefilter("ignore")
    torch.set_num_threads(device.num_threads)
    reference, _ = reference_of(request)
    inputs = [torch.from_numpy(array) for array in reference.inputs]
    runs: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    with torch.inference_mode():
        runs[EAGER] = _bound(reference.model, inputs)
        if is_compiled and (reason := missing_compiler()) is not None:
            missing[COMPILED] = reason
        elif is_compiled:
            runs[COMPILED] = _bound(torch.compile(reference.model), inputs)
            if not torch.allclose(_first(runs[COMPILED]()), _first(runs[EAGER]()), rtol=_AGREEMENT, atol=_AGREEMENT):
                missing[COMPILED] = "torch.compile gives other outputs than torch"
                del runs[COMPILED]
        allowed = os.sched_getaffinity(0)
        with device_lock(device.id):
            os.sched_setaffinity(0, device.cores)
            try:
                latency_ms = _time_in_turn(runs, protocol, device.num_threads)
            finally:
                os.sched_setaffinity(0, allowed)
    return TorchTimes(latency_ms=latency_ms, missing_because=missing)


def _time_in_turn(
    runs: Mapping[str, Callable[[], Any]], protocol: MeasureProtocol, num_threads: int
) -> dict[str, float]:
    from profilers.timing import batch_size, time_block, warm_up

    for run in runs.values():
        warm_up(run, protocol)
    batches = {name: batch_size(run) for name, run in runs.items()}
    blocks: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(protocol.num_processes * protocol.blocks_per_process):
        for name, run in runs.items():
            block, _ = time_block(run, protocol.block_ms, batches[name], num_threads)
            blocks[name].append(median(block["latencies_ms"]))
    return {name: median(values) for name, values in blocks.items()}


def _bound(model: Callable[..., Any], inputs: list[Any]) -> Callable[[], Any]:
    return lambda: model(*inputs)


def _first(answer: Any) -> Any:
    return answer[0] if isinstance(answer, tuple) else answer
