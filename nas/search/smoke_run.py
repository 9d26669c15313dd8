"""Runs the smoke gate of a study: once, before its first trial."""

from __future__ import annotations

import time
from typing import Protocol

from nas.errors import NasError
from nas.gates.result import GateResult
from nas.gates.smoke import SmokeFault, rehearsal_fault, smoke_gate
from nas.gates.smoke_reinforcement import reinforcement_fault
from nas.ledger import Ledger
from nas.phases import reference_of
from nas.search.gate_seconds import record_gate_seconds
from nas.search.pipeline import Proposal, Stopped, Workbench, measure_phases
from nas.search.progress import Watcher
from nas.training.result import Rehearsal, TrainFailure
from nas.trial import Outcome
from search_spaces.candidate import Candidate
from search_spaces.space import SearchSpace

EVENT = "smoke"
_CAUSES = {
    Outcome.COMPILE_FAILED: ("compile", "the compiler or its versions; try `nas compile` on one network"),
    Outcome.PARITY_FAILED: ("parity", "weights or code damaged on the way from torch to the device"),
    Outcome.PROFILE_FAILED: ("measure", "a busy or throttled device, or a crash of the compiled code"),
}


class SmokeFailedError(NasError):
    """The smoke gate stopped a study before its first trial."""


class SmokeBench(Workbench, Protocol):
    """The tools of the gate."""

    def rehearse(self, candidate: Candidate) -> Rehearsal | TrainFailure:
        """A few training steps and one scoring."""
        ...


def run_smoke(space: SearchSpace, bench: SmokeBench, ledger: Ledger, watcher: Watcher) -> None:
    """Takes the space's reference through every stage and timed phase in small; a study that passed is not asked again.

    Training first: it takes seconds, while compiling may first have kernels to tune. What is compiled
    and measured here is in the caches when the search comes to the reference.

    Raises:
        SmokeFailedError: names the stage, what was seen, and the likely cause.
    """
    if any(event.detail["passed"] for event in ledger.events(EVENT)):
        return
    started = time.monotonic()
    watcher.stage("smoke")
    name, candidate = reference_of(space)
    seen = bench.rehearse(candidate)
    record_gate_seconds(EVENT, time.monotonic() - started, ledger)
    fault = rehearsal_fault(seen) or _updates_fault(seen) or _stage_fault(Proposal(trial=0, candidate=candidate), bench)
    result = smoke_gate(fault, seen if isinstance(seen, Rehearsal) else None, time.monotonic() - started)
    ledger.add_event(EVENT, {"passed": result.passed, "reason": result.reason, "figures": dict(result.figures)})
    if not result.passed:
        raise SmokeFailedError(
            f"smoke gate, reference network {name!r}: {result.reason}."
            " No trial was started; mend the cause and run the same command again"
        )


def _updates_fault(seen: Rehearsal | TrainFailure) -> SmokeFault | None:
    if isinstance(seen, TrainFailure) or seen.updates is None:
        return None
    return reinforcement_fault(seen.updates)


def _stage_fault(proposal: Proposal, bench: Workbench) -> SmokeFault | None:
    measured = measure_phases(proposal, bench)
    if not isinstance(measured, Stopped):
        return None
    stage, cause = _CAUSES[measured.outcome]
    return SmokeFault(stage=stage, seen=measured.reason, likely_cause=cause)


def smoke_result(ledger: Ledger) -> GateResult | None:
    """What the gate of this study said last; None for a study of before there was one."""
    events = ledger.events(EVENT)
    if not events:
        return None
    detail = events[-1].detail
    return GateResult(passed=detail["passed"], reason=detail["reason"], figures=tuple(detail["figures"].items()))
