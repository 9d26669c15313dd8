"""What each kernel of a network does and moves, and how near to the device's limits it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nas.compile.compile_worker import CompileRequest
from nas.compile.database import KernelRecord
from nas.compile.kernels import KernelTask
from profilers.roofline import Bound, DevicePeaks


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCost:
    """A kernel's work.

    Attributes:
        key, name, num_uses, num_operations, is_heavy: of the `KernelTask`.
        num_bytes: of its arguments and results, each once: what must be moved at least.
    """

    key: str
    name: str
    num_uses: int
    num_operations: float
    is_heavy: bool
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShare:
    """A kernel of one network beside its roofline.

    Attributes:
        cost: the kernel.
        latency_us: of one call, as the tuner measured it.
        share: of the time of all timed kernels of the network, 0 to 1.
        bound: which of operations and bytes bounds it.
        roofline_share: least possible time over `latency_us`; 1 is as fast as the device allows.
    """

    cost: KernelCost
    latency_us: float
    share: float
    bound: Bound
    roofline_share: float


def kernel_costs(request: CompileRequest) -> tuple[KernelCost, ...]:
    """The distinct kernels of a network with their work. Runs inside a compile worker."""
    from nas.compile import compile_worker

    return tuple(_cost(task) for task in compile_worker.plan(request).tasks)


def _cost(task: KernelTask) -> KernelCost:
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    infos = ArgInfo.from_prim_func(tvm.ir.load_json(task.workload_json)["main"])
    num_bytes = 0
    for info in infos:
        count = 1
        for size in info.shape:
            count *= int(size)
        num_bytes += count * _width_bytes(str(info.dtype))
    return KernelCost(
        key=task.key,
        name=task.name,
        num_uses=task.num_uses,
        num_operations=task.num_operations,
        is_heavy=task.is_heavy,
        num_bytes=num_bytes,
    )


def _width_bytes(dtype: str) -> int:
    """Bytes of one element.

    >>> _width_bytes("float32"), _width_bytes("int8"), _width_bytes("bool")
    (4, 1, 1)
    """
    digits = "".join(character for character in dtype if character.isdigit())
    return max(1, int(digits or 8) // 8)


def shares(
    costs: Sequence[KernelCost], records: Mapping[str, KernelRecord], peaks: DevicePeaks
) -> tuple[KernelShare, ...]:
    """The timed kernels of a network, the largest share of its time first."""
    timed = [(cost, records[cost.key].latency_s) for cost in costs if cost.key in records]
    total_s = sum(cost.num_uses * seconds for cost, seconds in timed)
    found = []
    for cost, seconds in timed:
        floor_s, bound = peaks.floor_s(cost.num_operations, cost.num_bytes)
        share = KernelShare(
            cost=cost,
            latency_us=seconds * 1e6,
            share=cost.num_uses * seconds / total_s,
            bound=bound,
            roofline_share=floor_s / seconds,
        )
        found.append(share)
    return tuple(sorted(found, key=lambda each: (-each.share, each.cost.key)))


def to_json(costs: Sequence[KernelCost]) -> str:
    """The costs as JSON that `from_json` reads."""
    return json.dumps([[getattr(cost, name) for name in KernelCost.__slots__] for cost in costs])


def from_json(text: str) -> tuple[KernelCost, ...]:
    """The inverse of `to_json`; raises `ValueError` or `TypeError` for anything else."""
    return tuple(KernelCost(**dict(zip(KernelCost.__slots__, row, strict=True))) for row in json.loads(text))


def reuse(networks: Sequence[Sequence[KernelCost]], num_first: int) -> float | None:
    """Of the heavy kernels of each network after the first, the share that an earlier network had.

    None when there are no networks after the first `num_first`.

    >>> make = lambda key: KernelCost(
    ...     key=key, name="k", num_uses=1, num_operations=1.0, is_heavy=True, num_bytes=1)
    >>> reuse([[make("a"), make("b")], [make("a"), make("c")], [make("c")]], num_first=1)
    0.6666666666666666
    """
    seen: set[str] = set()
    num_known = num_all = 0
    for number, network in enumerate(networks):
        keys = {cost.key for cost in network if cost.is_heavy}
        if number >= num_first:
            num_known += len(keys & seen)
            num_all += len(keys)
        seen |= keys
    return num_known / num_all if num_all else None
