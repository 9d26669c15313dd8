"""Reductions across vectors: softmax, layer normalisation, norms along the innermost axis.

One row is read, reduced and written before the next, so that it stays in the first-level cache;
each sum keeps one partial sum a vector lane, as floating-point sums may not be reordered by LLVM.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.compile.schedules.workload import (
    Registers,
    blocks_of,
    extent,
    is_reduction,
    loops_of,
    vector_length,
    vectorize,
)

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way to schedule such a kernel.

    Attributes:
        lanes: partial sums of each reduction; 1 for none.
    """

    lanes: int


def fits(schedule: tvm.s_tir.Schedule) -> bool:
    """At least one reduction; all over their last axis, and as many axes before it as the others have."""
    blocks = blocks_of(schedule)
    reductions = [loops_of(schedule, block) for block in blocks if is_reduction(schedule, block)]
    if not reductions or is_reduction(schedule, blocks[-1]):
        return False
    num_rows = {len(_long(schedule, loops.spatial)) for loops in reductions}
    return len(num_rows) == 1 and all(len(loops.reduction) == 1 for loops in reductions)


def rows(schedule: tvm.s_tir.Schedule, registers: Registers) -> list[Row]:
    """Vectors of partial sums first, then plain sums."""
    lengths = [
        vector_length(extent(schedule, loops_of(schedule, block).reduction[0]), registers.lanes)
        for block in blocks_of(schedule)
        if is_reduction(schedule, block)
    ]
    return [Row(lanes=min(lengths)), Row(lanes=1)] if min(lengths) > 1 else [Row(lanes=1)]


def apply(schedule: tvm.s_tir.Schedule, row: Row, registers: Registers, num_cores: int) -> None:
    """Schedules the kernel in place.

    Raises:
        tvm.s_tir.schedule.ScheduleError: the blocks do not share rows.
    """
    depth = _num_rows_axes(schedule)
    partial_names = {_sum_by_lane(schedule, block, row.lanes) for block in blocks_of(schedule)}
    *before, output = blocks_of(schedule)
    over_rows = schedule.get_loops(output)[:depth]
    for block in reversed(before):
        schedule.compute_at(block, over_rows[-1], preserve_unit_loops=True)
    for block in before:
        if _is_partial(schedule, block, partial_names):
            lane, *_, over = schedule.get_loops(block)[depth:]
            schedule.reorder(over, lane)
            schedule.vectorize(lane)
        elif is_reduction(schedule, block):
            if row.lanes > 1:
                schedule.unroll(schedule.get_loops(block)[depth])
        else:
            vectorize(schedule, schedule.get_loops(block)[-1], registers.lanes)
    vectorize(schedule, schedule.get_loops(output)[-1], registers.lanes)
    if num_cores > 1:
        schedule.parallel(schedule.fuse(*over_rows))
        depth = 1
    for block in before:  # last: a reduction in two parts is none that other steps would accept beside it
        if _is_partial(schedule, block, partial_names):
            schedule.decompose_reduction(block, schedule.get_loops(block)[depth])


def _num_rows_axes(schedule: tvm.s_tir.Schedule) -> int:
    """Leading axes that reductions and output share; an axis that a reduction keeps with size 1 is not one of them."""
    *_, output = blocks_of(schedule)
    first = next(block for block in blocks_of(schedule) if is_reduction(schedule, block))
    sizes = [
        [extent(schedule, loop) for loop in loops]
        for loops in (loops_of(schedule, first).spatial, loops_of(schedule, output).spatial)
    ]
    shared = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*sizes, strict=False))
    return len(list(shared))


def _sum_by_lane(schedule: tvm.s_tir.Schedule, block: Any, lanes: int) -> str | None:
    """Splits a reduction into one partial sum a lane and the sum of those; the name of the block of the former."""
    if lanes == 1 or not is_reduction(schedule, block):
        return None
    _, within = schedule.split(loops_of(schedule, block).reduction[0], [None, lanes])
    partial = schedule.rfactor(within, 0)
    schedule.set_scope(partial, 0, "local")
    return str(schedule.get(partial).name_hint)


def _is_partial(schedule: tvm.s_tir.Schedule, block: Any, names: set[str | None]) -> bool:
    """Whether `_sum_by_lane` made the block."""
    return schedule.get(block).name_hint in names


def _long(schedule: tvm.s_tir.Schedule, loops: tuple[Any, ...]) -> list[Any]:
    return [loop for loop in loops if extent(schedule, loop) > 1]
