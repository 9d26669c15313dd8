"""Runs the proxy audit of a study: trains a sample of its candidates much longer, and remembers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nas.errors import NasError
from nas.front import Direction
from nas.gates.proxy_audit import OrderAudit, compare_orders
from nas.ledger import Ledger
from nas.search.finalists import front_of
from nas.search.progress import Watcher
from nas.search.screening import AUDIT_EVENT
from nas.training.recipe import Recipe
from nas.training.result import TrainFailure, TrainResult
from nas.trial import Outcome, TrialRecord
from search_spaces.candidate import Candidate

EVENT = "proxy_audit"


class AuditError(NasError):
    """A study that cannot be audited."""


class AuditBench(Protocol):
    """The tool of an audit, and the timed phases, the primary one first."""

    phases: tuple[str, ...]

    def train_apart(self, candidate: Candidate, recipe: Recipe, seed: int, folder: str) -> TrainResult | TrainFailure:
        """Trains a candidate in a folder of its own, beside the study's trials."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
    """How a proxy is audited.

    Attributes:
        num_candidates: trained again.
        factor: how many times longer.
    """

    num_candidates: int = 10
    factor: int = 8


def run_audit(
    plan: AuditPlan, records: tuple[TrialRecord, ...], direction: Direction, recipe: Recipe, seed: int,
    bench: AuditBench, ledger: Ledger, watcher: Watcher,
) -> OrderAudit:  # fmt: skip
    """Trains the sample and compares; what an interrupted audit has trained is not trained again.

    Raises:
        AuditError: fewer than two scored networks, or a long training that failed.
    """
    sample = choose_sample(records, direction, bench.phases[0], plan.num_candidates)
    if len(sample) < 2:
        raise AuditError(f"proxy audit: {len(sample)} scored networks; at least 2 are needed, so run more trials first")
    long = recipe.model_copy(
        update={"epochs": recipe.epochs * plan.factor, "timeout_s": recipe.timeout_s * plan.factor}
    )
    cheap, dear, curves = [], [], []
    for number, record in enumerate(sample):
        watcher.stage("audit", number, len(sample))
        value, curve = _long_value(record, long, seed, bench, ledger)
        assert record.score is not None
        cheap.append(record.score.value)
        dear.append(value)
        curves.append(curve)
    audit = compare_orders(
        "proxy", [record.candidate.candidate_id for record in sample], cheap, dear, direction,
        seed=seed, cost_share=1 / plan.factor, curves=curves,
    )  # fmt: skip
    ledger.add_event(EVENT, audit.to_json())
    return audit


def _long_value(
    record: TrialRecord, long: Recipe, seed: int, bench: AuditBench, ledger: Ledger
) -> tuple[float, list[float]]:
    stage = f"audit@{long.epochs}"
    known = next((each.payload for each in ledger.stages(record.trial) if each.stage == stage), None)
    if known is None:
        folder = f"audit-{record.candidate.candidate_id}-{long.epochs}"
        trained = bench.train_apart(record.candidate, long, seed, folder)
        if isinstance(trained, TrainFailure):
            raise AuditError(
                f"proxy audit: trial {record.trial}, trained for {long.epochs} epochs: {trained.kind}: {trained.reason}"
            )
        known = {"value": trained.score.value, "curve": [epoch.val_value for epoch in trained.history]}
        ledger.record_stage(record.trial, stage, known, trained.duration_s)
    return float(known["value"]), list(known["curve"])


def choose_sample(
    records: tuple[TrialRecord, ...], direction: Direction, phase: str, size: int
) -> tuple[TrialRecord, ...]:
    """Half of the sample spread over the front by latency, the rest over the other scored networks by score."""
    scored = tuple(record for record in records if record.outcome is Outcome.SCORED and record.duplicate_of is None)
    front = sorted(front_of(scored, direction, phase), key=lambda record: _latency_ms(record, phase))
    others = sorted((record for record in scored if record not in front), key=_value)
    on_front = spread(front, max(size // 2, size - len(others)))
    return (*on_front, *spread(others, size - len(on_front)))


def spread(items: list[TrialRecord], size: int) -> list[TrialRecord]:
    """At most `size` of the items, both ends among them, evenly by position."""
    if size >= len(items):
        return items
    if size <= 1:
        return items[len(items) // 2 :][:size]
    return [items[round(index * (len(items) - 1) / (size - 1))] for index in range(size)]


def _latency_ms(record: TrialRecord, phase: str) -> float:
    assert record.cost is not None
    estimate = record.cost.latency(phase)
    assert estimate is not None, "a scored trial was measured"
    return estimate.latency_ms


def _value(record: TrialRecord) -> float:
    assert record.score is not None
    return record.score.value


def known_audit(ledger: Ledger) -> OrderAudit | None:
    """The last proxy audit of a study."""
    events = ledger.events(EVENT)
    return OrderAudit.from_json(events[-1].detail) if events else None


def latency_audit(ledger: Ledger, phase: str, primary: str | None = None) -> OrderAudit | None:
    """Predicted against measured order, in one phase, of the candidates that screening measured as a check.

    Args:
        ledger: of the study.
        phase: of which latencies are compared: those of the candidates that were ruled out or trusted on its account.
        primary: the study's primary phase, which audits of before there were several are of; None means `phase`.
    """
    records = {record.trial: record for record in ledger.records()}
    pairs = []
    for event in ledger.events(AUDIT_EVENT):
        record = records.get(event.detail["trial"])
        is_mine = event.detail.get("phase", primary or phase) == phase and "predicted_ms" in event.detail
        estimate = None if record is None or record.cost is None else record.cost.latency(phase)
        if is_mine and record is not None and estimate is not None and estimate.source == "measured":
            pairs.append((record.candidate.candidate_id, float(event.detail["predicted_ms"]), estimate.latency_ms))
    if len(pairs) < 2:
        return None
    names, predicted, measured = zip(*pairs, strict=True)
    return compare_orders("latency", names, predicted, measured, "minimize")
