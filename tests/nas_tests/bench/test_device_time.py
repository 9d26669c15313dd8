"""What two finished studies spent on the device: figures checked by hand, and studies that may not be compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nas.bench.contenders import BenchError
from nas.bench.device_time import LATENCY_MARGIN, bench_device_time
from nas.config import StudyConfig
from nas.ledger import Ledger
from nas.search.screening import AUDIT_EVENT
from tests.nas_tests.bench.made_up import PREDICTED, Trial, record_of, write_config


def study(
    folder: Path,
    trials: Sequence[Trial],
    front: Sequence[tuple[float, float]],
    *,
    winner_seconds: Sequence[float] = (),
    audited: Sequence[int] = (),
    **settings: Any,
) -> Path:
    """A results folder as a finished search leaves it, as far as the bench reads it."""
    config: StudyConfig = write_config(folder, **settings)
    with Ledger(config.storage_url) as ledger:
        for number in audited:
            ledger.add_event(AUDIT_EVENT, {"trial": number, "phase": "infer", "predicted_ms": 9.0, "probability": 0.01})
        for number, trial in enumerate(trials):
            ledger.record(record_of(number, trial))
        for seconds in winner_seconds:
            ledger.add_event("winner_measured", {"trial": 0, "measurement": {"duration_s": seconds}})
    rows = [f"{score},{latency}" for score, latency in front]
    (folder / "front.csv").write_text("\n".join(["val_score,latency_ms", *rows]) + "\n")
    return folder
