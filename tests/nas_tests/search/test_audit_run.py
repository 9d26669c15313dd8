from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nas.gates.proxy_audit import order_gate
from nas.ledger import Ledger
from nas.search.audit_run import choose_sample, latency_audit, spread
from nas.search.finalists import front_of
from nas.search.screening import AUDIT_EVENT
from nas.trial import Outcome
from tests.nas_tests.trials import make_cost, make_record, make_score


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(f"sqlite:///{tmp_path}/study.db") as opened:
        yield opened


def test_items_are_spread_with_both_ends() -> None:
    items = [make_record(number) for number in range(10)]
    assert [record.trial for record in spread(items, 4)] == [0, 3, 6, 9]
    assert spread(items, 10) == items
    assert [record.trial for record in spread(items, 1)] == [5]
    assert spread(items, 0) == []


def test_a_sample_is_spread_over_the_front_and_off_it_and_has_nothing_else() -> None:
    records = [
        replace(
            make_record(number), cost=make_cost(1.0 + number), score=make_score(200 + 10 * number + 30 * (number % 2))
        )
        for number in range(12)
    ]
    records += [make_record(12, Outcome.OVER_BUDGET), replace(records[3], trial=13, duplicate_of=3)]
    phase = records[0].cost.latencies[0][0]  # type: ignore[union-attr]
    front = {record.trial for record in front_of(tuple(records[:12]), "maximize", phase)}
    sample = choose_sample(tuple(records), "maximize", phase, 6)
    trials = [record.trial for record in sample]
    assert len(set(trials)) == 6 and not {12, 13} & set(trials)
    assert sum(trial in front for trial in trials) == 3
    assert {min(front), max(front)} <= set(trials)


def test_predicted_and_measured_order_are_compared_for_what_screening_measured_as_a_check(ledger: Ledger) -> None:
    assert latency_audit(ledger, "infer") is None
    predicted = (5.0, 1.0, 3.0, 4.0, 2.0, 6.0)
    for number, prediction in enumerate(predicted):
        ledger.record(replace(make_record(number), cost=make_cost(10.0 - number)))
        ledger.add_event(AUDIT_EVENT, {"trial": number, "predicted_ms": prediction, "probability": 0.01})
    phase = ledger.records()[0].cost.latencies[0][0]  # type: ignore[union-attr]
    audit = latency_audit(ledger, phase)
    assert audit is not None and len(audit.candidates) == 6
    assert audit.tau is not None and audit.tau < 0.6
    assert not order_gate(audit).passed and "predicted and measured latency" in order_gate(audit).reason
