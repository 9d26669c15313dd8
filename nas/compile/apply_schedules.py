"""Gives each kernel of a lowered network its schedule: the tuned one, or the first that was written for its kind."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nas.compile.traces import SCHEDULE_ERRORS

if TYPE_CHECKING:
    import tvm


def apply_schedules(
    module: tvm.IRModule, target: tvm.target.Target, traces: Mapping[str, str], without: frozenset[str] = frozenset()
) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """The module with its schedules applied, and the keys of those that do not fit their kernels.

    One schedule that does not fit (of a stranger's file, or another kernel's) fails the whole pass: then each is
    tried alone, and those that fail are left out.

    Args:
        module: lowered.
        target: see `CompileRequest`.
        traces: kernel key to the JSON of a trace.
        without: keys of kernels that stay as they are.
    """
    import tvm
    from tvm import relax

    passes = relax.transform

    def apply(chosen: Mapping[str, str]) -> tvm.IRModule:
        with target, schedule_database(module, target, chosen, without), tvm.transform.PassContext(opt_level=3):
            return tvm.transform.Sequential(
                [passes.MetaScheduleApplyDatabase(), passes.SplitLayoutRewritePreproc(), passes.LiftTransformParams()]
            )(module)

    try:
        return apply(traces), ()
    except SCHEDULE_ERRORS:
        fitting = _fitting(module, target, traces)
        unusable = tuple(sorted(set(traces) - set(fitting)))
        if not unusable:
            raise
        return apply(fitting), unusable


def _fitting(module: tvm.IRModule, target: tvm.target.Target, traces: Mapping[str, str]) -> dict[str, str]:
    """Those traces that can be replayed on their kernel of the module; others of the module are left out."""
    import tvm
    from tvm.s_tir import meta_schedule

    from nas.compile.kernels import workload_key
    from nas.compile.traces import trace_from_text

    fitting = {}
    for task in meta_schedule.relax_integration.extract_tasks(module, target):
        workload = task.dispatched[0]
        key = workload_key(workload)
        if key in traces:
            with contextlib.suppress(*SCHEDULE_ERRORS):
                schedule = tvm.s_tir.Schedule(workload)
                trace_from_text(traces[key]).apply_to_schedule(schedule, remove_postproc=False)
                fitting[key] = traces[key]
    return fitting


def schedule_database(
    module: tvm.IRModule, target: tvm.target.Target, traces: Mapping[str, str], without: frozenset[str] = frozenset()
) -> tvm.s_tir.meta_schedule.database.MemoryDatabase:
    """One schedule for each kernel: the one of `traces`, else the most promising one that was written for its kind."""
    from tvm.s_tir import meta_schedule

    from nas.compile.kernels import workload_key

    database = meta_schedule.database.MemoryDatabase()
    for task in meta_schedule.relax_integration.extract_tasks(module, target):
        workload = task.dispatched[0]
        key = workload_key(workload)
        trace = None if key in without else _trace_of(workload, target, traces.get(key))
        if trace is None:
            continue
        record = meta_schedule.database.TuningRecord(
            trace,
            database.commit_workload(workload),
            [1.0],  # the only record of its workload, so nothing is compared
            target,
            meta_schedule.arg_info.ArgInfo.from_prim_func(workload["main"]),
        )
        database.commit_tuning_record(record)
    return database


def _trace_of(workload: tvm.IRModule, target: tvm.target.Target, text: str | None) -> Any:
    """The trace in `text`; without one, that of the most promising schedule written for the kernel's kind, or None."""
    from nas.compile.schedules.proposals import first_schedule
    from nas.compile.traces import trace_from_text

    if text is not None:
        return trace_from_text(text)
    proposed = first_schedule(workload, target)
    return None if proposed is None else proposed.trace


def schedules_that_do_not_build(
    module: tvm.IRModule, target: tvm.target.Target, traces: Mapping[str, str]
) -> frozenset[str]:
    """Keys of those kernels that build as they are, and not with the schedule that they would get.

    Takes some 0.2 s a kernel: for when a network did not build.
    """
    import tvm
    from tvm.s_tir import meta_schedule

    from nas.compile.kernels import workload_key

    broken = set()
    for task in meta_schedule.relax_integration.extract_tasks(module, target):
        workload = task.dispatched[0]
        key = workload_key(workload)
        try:
            trace = _trace_of(workload, target, traces.get(key))
            if trace is None:
                continue
            schedule = tvm.s_tir.Schedule(workload)
            trace.apply_to_schedule(schedule, remove_postproc=False)
            tvm.tirx.build(schedule.mod, target=target)
        except SCHEDULE_ERRORS:
            broken.add(key)
    return frozenset(broken)
