"""What the gates of a study cost: wall seconds of each, over all its runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from nas.ledger import Ledger

EVENT = "gate_seconds"


def record_gate_seconds(gate: str, seconds: float, ledger: Ledger) -> None:
    """Remembers what a gate took."""
    ledger.add_event(EVENT, {"gate": gate, "seconds": seconds})


@contextmanager
def timed_gate(gate: str, ledger: Ledger) -> Iterator[None]:
    """Remembers what the block took, when it ends well."""
    started = time.monotonic()
    yield
    record_gate_seconds(gate, time.monotonic() - started, ledger)


def gate_seconds(ledger: Ledger) -> dict[str, float]:
    """Gate -> seconds.

    Work that the search needs anyhow is not in it: parity is checked by the process that measures, and what the smoke
    gate compiled and measured, the first trial finds in the caches. An audit of the proxy is not in it either: it is
    asked for, and trains several times longer than the search.
    """
    sums: dict[str, float] = {}
    for event in ledger.events(EVENT):
        sums[event.detail["gate"]] = sums.get(event.detail["gate"], 0.0) + event.detail["seconds"]
    return sums


def gate_share(ledger: Ledger) -> float | None:
    """Share of a study's wall clock, audits of the proxy left out, that its gates took; None before a run ended."""
    audits = sum(
        stage.seconds
        for record in ledger.records()
        for stage in ledger.stages(record.trial)
        if stage.stage.startswith("audit@")
    )
    total = sum(event.detail["seconds"] for event in ledger.events("run_ended")) - audits
    return sum(gate_seconds(ledger).values()) / total if total > 0 else None
