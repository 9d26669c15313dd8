"""Collects what every gate says of a finished search, in the order in which they ran."""

from __future__ import annotations

from typing import Protocol

from nas.gates import publish
from nas.gates.controls import controls_gate
from nas.gates.parity import RELATIVE_TOLERANCE
from nas.gates.proxy_audit import order_gate
from nas.gates.result import GateResult
from nas.ledger import Ledger
from nas.report.summary import FrontMember
from nas.search.audit_run import known_audit, latency_audit
from nas.search.controls_run import known_controls
from nas.search.finalists import Finalist, SettledFront
from nas.search.path_run import path_result
from nas.search.smoke_run import smoke_result
from nas.training.audit import Finding
from nas.training.baselines import baseline_of, constant_score
from nas.training.task import Task
from profilers.device import DeviceSpec


class JudgedBench(Protocol):
    """What the gates ask of a study's tools: the timed phases, the primary one first, and the device."""

    phases: tuple[str, ...]
    device: DeviceSpec


def collect_gates(
    settled: SettledFront,
    members: tuple[FrontMember, ...],
    findings: tuple[Finding, ...],
    task: Task,
    bench: JudgedBench,
    ledger: Ledger,
) -> dict[str, GateResult]:
    """Name -> result. Those about members are there only where there are members."""
    costs = [member.cost for member in members]
    opened = ledger.events("test_opened")
    asked = {"smoke": smoke_result(ledger), "fast_path": path_result(ledger)}
    gates = {
        **{name: result for name, result in asked.items() if result is not None},
        "data": publish.data_gate(findings),
        "infrastructure": publish.infrastructure_gate(ledger.records(), accepted_reason(ledger)),
        "parity": publish.parity_gate(costs, RELATIVE_TOLERANCE),
        "tuned": publish.tuned_gate(costs),
        "measured": publish.measured_gate(costs, len(settled.dropped)),
        "device": publish.device_gate(
            {each.record.trial: _fingerprint_of(each, bench.device.fingerprint) for each in settled.finalists},
            bench.device.fingerprint,
        ),
    }
    if members:
        constant = constant_score(task)
        gates["learning"] = publish.learning_gate(
            {member.record.trial: member.val_score for member in members},
            {finalist.record.trial: finalist.weights.untrained_score for finalist in settled.finalists},
            constant,
            task.direction,
        )
        controls = known_controls(ledger)
        if controls is not None:
            gates["controls"] = controls_gate(controls, baseline_of(task).value, task.direction)
        gates["held_out"] = publish.held_out_gate(
            {member.record.trial: member.test_score for member in members}, opened[0].at if opened else None
        )
        gates["proxy"] = order_gate(known_audit(ledger))
    for phase in bench.phases:
        latency = latency_audit(ledger, phase, bench.phases[0])
        if latency is not None:
            name = "predicted_latency" if phase == bench.phases[0] else f"predicted_latency {phase}"
            gates[name] = order_gate(latency)
    return gates


def _fingerprint_of(finalist: Finalist, device: str) -> str:
    """Of the device that measured it: of several phases, the one that another device measured, if any did."""
    seen = [look.measurement.fingerprint for look in finalist.looks]
    return next((fingerprint for fingerprint in seen if fingerprint != device), device)


def failed_trials(ledger: Ledger) -> list[int]:
    """Trials that failed for reasons of the infrastructure."""
    return [record.trial for record in ledger.records() if record.outcome.is_infrastructure]


def accepted_reason(ledger: Ledger) -> str | None:
    """Why the failed trials were accepted; None when one failed that nobody has seen yet."""
    accepted = ledger.events("failures_accepted")
    seen = {trial for event in accepted for trial in event.detail.get("trials", ())}
    return accepted[-1].detail["reason"] if accepted and seen.issuperset(failed_trials(ledger)) else None
