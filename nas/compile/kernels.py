"""The kernels of a lowered module: what is tuned, and what the tuning database is keyed by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm

HEAVY_SHARE = 0.002
"""A kernel with at least this share of a network's operations counts as heavy. In a network of
45 kernels 23 are, and they hold 99.8% of the operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTask:
    """One fused kernel of one network.

    Attributes:
        key: identity of the workload: the same in every network, process and study.
        name: what TVM calls it, for people.
        num_uses: how often the network calls it.
        num_operations: floating-point operations of one call, as TVM counts them.
        is_heavy: whether it has real work (`HEAVY_SHARE`).
        workload_json: the unscheduled kernel, as TVM's JSON.
    """

    key: str
    name: str
    num_uses: int
    num_operations: float
    is_heavy: bool
    workload_json: str


def kernels_of(module: tvm.IRModule, target: tvm.target.Target) -> tuple[KernelTask, ...]:
    """The distinct kernels of a lowered module, most work first."""
    import tvm
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.analysis import estimate_tir_flops

    extracted = meta_schedule.relax_integration.extract_tasks(module, target)
    operations = [float(estimate_tir_flops(task.dispatched[0])) for task in extracted]
    total = sum(count * task.weight for count, task in zip(operations, extracted, strict=True)) or 1.0
    tasks = [
        KernelTask(
            key=workload_key(task.dispatched[0]),
            name=task.task_name,
            num_uses=int(task.weight),
            num_operations=count,
            is_heavy=count * task.weight >= HEAVY_SHARE * total,
            workload_json=tvm.ir.save_json(task.dispatched[0]),
        )
        for count, task in zip(operations, extracted, strict=True)
    ]
    return tuple(sorted(tasks, key=lambda task: (-task.num_operations * task.num_uses, task.key)))


def workload_key(workload: tvm.IRModule) -> str:
    """First 24 hex digits of the SHA-256 of TVM's structural hash, argument shapes and block names.

    The structural hash ignores names, those of variables (which differ from network to network)
    and those of blocks (which a schedule needs to find); it has 64 bits, so the shapes stand beside.
    """
    import tvm
    import tvm_ffi
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    names: list[str] = []

    def note_name(block: tvm.s_tir.SBlock) -> None:
        names.append(block.name_hint)

    tvm_ffi.structural_walk(workload["main"].body, (tvm.s_tir.SBlock, note_name))
    shapes = [str(info) for info in ArgInfo.from_prim_func(workload["main"])]
    text = f"{tvm_ffi.structural_hash(workload)}:{shapes}:{names}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def tuned_coverage(tasks: tuple[KernelTask, ...], known: frozenset[str]) -> float:
    """Share of operations in kernels whose key is in `known`.

    >>> task = KernelTask(key="a", name="n", num_uses=2, num_operations=3.0, is_heavy=True, workload_json="")
    >>> tuned_coverage((task,), frozenset({"a"})), tuned_coverage((task,), frozenset())
    (1.0, 0.0)
    """
    total = sum(task.num_operations * task.num_uses for task in tasks)
    covered = sum(task.num_operations * task.num_uses for task in tasks if task.key in known)
    return covered / total if total else 1.0
