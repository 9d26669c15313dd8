"""Which hand-written schedules a kernel has, the most promising first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.compile.schedules import elementwise, rows, tiled
from nas.compile.schedules.workload import registers_of

if TYPE_CHECKING:
    import tvm

PARALLEL_OPERATIONS = 200_000
"""Below, waking a thread (some 5 microseconds) costs more than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One schedule of one kernel, not yet made.

    Attributes:
        label: what it does, for people.
        apply: schedules a fresh schedule of the kernel in place; may raise `ScheduleError`.
        packs_weights: whether constant operands are stored in the order that the schedule reads them. Only products
            read one more than once, and some indices of maps have no inverse that TVM can write down.
    """

    label: str
    apply: Callable[[tvm.s_tir.Schedule], None]
    packs_weights: bool = False


def proposals(workload: tvm.IRModule, target: tvm.target.Target) -> tuple[Proposal, ...]:
    """Nothing where no family fits."""
    from tvm import s_tir
    from tvm.s_tir.analysis import estimate_tir_flops

    schedule = s_tir.Schedule(workload)
    registers = registers_of(target)
    num_cores = int(target.attrs.get("num-cores", 1)) if estimate_tir_flops(workload) >= PARALLEL_OPERATIONS else 1
    if tiled.fits(schedule):
        return tuple(
            Proposal(
                label=str(tile),
                apply=lambda fresh, tile=tile: tiled.apply(fresh, tile, registers, num_cores),  # type: ignore[misc]
                packs_weights=True,
            )
            for tile in tiled.tiles(schedule, registers)
        )
    if rows.fits(schedule):
        return tuple(
            Proposal(label=str(row), apply=lambda fresh, row=row: rows.apply(fresh, row, registers, num_cores))  # type: ignore[misc]
            for row in rows.rows(schedule, registers)
        )
    if elementwise.fits(schedule):
        return tuple(
            Proposal(label=str(way), apply=lambda fresh, way=way: elementwise.apply(fresh, way, registers, num_cores))  # type: ignore[misc]
            for way in elementwise.maps(schedule)
        )
    return ()


def scheduled(workload: tvm.IRModule, proposal: Proposal) -> tvm.s_tir.Schedule | None:
    """The kernel scheduled as proposed; None where that cannot be."""
    from tvm import s_tir
    from tvm.s_tir import meta_schedule

    from nas.compile.traces import SCHEDULE_ERRORS

    schedule = s_tir.Schedule(workload)
    try:
        proposal.apply(schedule)
        if proposal.packs_weights and not meta_schedule.postproc.RewriteLayout().apply(schedule):
            return None
    except SCHEDULE_ERRORS:
        return None
    return schedule


def first_schedule(workload: tvm.IRModule, target: tvm.target.Target) -> tvm.s_tir.Schedule | None:
    """The most promising schedule that can be made; None where no family fits, or none of its schedules."""
    for proposal in proposals(workload, target):
        schedule = scheduled(workload, proposal)
        if schedule is not None:
            return schedule
    return None
