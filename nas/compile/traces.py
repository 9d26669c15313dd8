"""Schedules as text: a trace of scheduling steps that another process can replay.

TVM's JSON form of a trace cannot be read back when it holds the index maps of prepacked weights
(0.27: `TranslateInputRVs` expects a string where it wrote a map). Its JSON of objects can, but the
kinds of instructions come back as copies without their functions, and applying one crashes: here
each is replaced with the registered kind of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm


SCHEDULE_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError)
"""What TVM raises for a trace that it cannot read or apply: its own kinds of errors become Python's by name."""


def trace_to_text(trace: tvm.s_tir.schedule.Trace) -> str:
    """The trace as text."""
    import tvm

    text: str = tvm.ir.save_json(trace)
    return text


def trace_from_text(text: str) -> tvm.s_tir.schedule.Trace:
    """The inverse of `trace_to_text`, ready to be applied."""
    import tvm
    from tvm.s_tir.schedule import Instruction, InstructionKind, Trace

    loaded = tvm.ir.load_json(text)
    steps, decisions = [], {}
    for step in loaded.insts:
        replaced = Instruction(InstructionKind.get(step.kind.name), step.inputs, step.attrs, step.outputs)
        steps.append(replaced)
        decision = loaded.get_decision(step)
        if decision is not None:
            decisions[replaced] = decision
    return Trace(steps, decisions)
