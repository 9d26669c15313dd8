"""Kernels that only move or map elements: reshapes, transposes, activations on their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.compile.schedules.workload import Registers, blocks_of, extent, is_reduction, vectorize

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """One way to schedule such a kernel.

    Attributes:
        is_fused: everything in one pass, or block by block.
        vectors: length of what is vectorised, in vectors; 0 for scalar code, which wins where the
            elements come from everywhere.
    """

    is_fused: bool
    vectors: int


def fits(schedule: tvm.s_tir.Schedule) -> bool:
    """Nothing is reduced."""
    return not any(is_reduction(schedule, block) for block in blocks_of(schedule))


def maps(schedule: tvm.s_tir.Schedule) -> list[Map]:
    """One pass of vectors first."""
    options = [Map(is_fused=True, vectors=1), Map(is_fused=True, vectors=4), Map(is_fused=True, vectors=0)]
    if len(blocks_of(schedule)) > 1:
        options.append(Map(is_fused=False, vectors=1))
    return options


def apply(schedule: tvm.s_tir.Schedule, way: Map, registers: Registers, num_cores: int) -> None:
    """Schedules the kernel in place."""
    for block in blocks_of(schedule)[:-1] if way.is_fused else ():
        schedule.compute_inline(block)
    for block in blocks_of(schedule):
        loops = schedule.get_loops(block)
        if not loops:
            continue
        if num_cores > 1 and len(loops) > 1:
            schedule.parallel(schedule.fuse(*loops[:-1]))
        last = schedule.get_loops(block)[-1]
        length = registers.lanes * way.vectors
        if way.vectors and extent(schedule, last) > length and extent(schedule, last) % length == 0:
            _, last = schedule.split(last, [None, length])
        if way.vectors:
            vectorize(schedule, last, registers.lanes)
