"""What finished studies spent on the device: figures checked by hand, and studies that may not be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nas.bench.contenders import BenchError
from nas.bench.device_time import LATENCY_MARGIN, bench_device_time
from nas.ledger import Ledger
from nas.search.study import write_manifest
from nas.training.data.sources import load_task
from nas.trial import Outcome
from profilers.testing import FAKE_DEVICE
from tests.nas_tests.search.small_studies import configure
from tests.nas_tests.trials import make_record

PER_TRIAL_S = 11.5 + 3.25 + 4.0  # tuning, compiling and measuring of a made-up trial


def study(
    folder: Path,
    outcomes: Sequence[Outcome],
    front: Sequence[tuple[float, float]],
    *,
    winner_seconds: Sequence[float] = (),
    **settings: object,
) -> Path:
    """A results folder as a finished search leaves it, as far as the bench reads it."""
    config = configure(folder, **settings)
    write_manifest(folder, config, load_task(config.task), FAKE_DEVICE, {})
    with Ledger(config.storage_url) as ledger:
        for number, outcome in enumerate(outcomes):
            record = make_record(number, outcome)
            if outcome is Outcome.PREDICTED_OVER_BUDGET:
                record = replace(record, seconds=(("screen", 0.5),))
            ledger.record(record)
        for seconds in winner_seconds:
            ledger.add_event("winner_measured", {"trial": 0, "measurement": {"duration_s": seconds}})
    rows = [f"{score},{latency}" for score, latency in front]
    (folder / "front.csv").write_text("\n".join(["val_score,latency_ms", *rows]) + "\n")
    return folder


def test_seconds_and_hypervolume_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    scored, ruled_out = Outcome.SCORED, Outcome.PREDICTED_OVER_BUDGET
    everything = study(tmp_path / "all", [scored] * 6, [(0.99, 2.0), (0.95, 1.0)], winner_seconds=(5.0, 7.5))
    screened = study(
        tmp_path / "screened", [scored, scored, *[ruled_out] * 4], [(0.99, 2.0)], winner_seconds=(5.0,),
        sampler="random",
    )  # fmt: skip
    result = bench_device_time([everything, screened])
    spent, less = 6 * PER_TRIAL_S + 12.5, 2 * PER_TRIAL_S + 5.0
    assert result.figures["device_seconds"] == {"all": pytest.approx(spent), "screened": pytest.approx(less)}
    assert result.figures["saved_factor"] == {"screened": pytest.approx(spent / less)}
    worst, slowest = 330 / 360, LATENCY_MARGIN * 2.0
    first = (0.99 - worst) * (slowest - 2.0) + (0.95 - worst) * (2.0 - 1.0)
    second = (0.99 - worst) * (slowest - 2.0)
    assert result.figures["hypervolume"] == {"screened": pytest.approx(second / first)}
    assert [(row["trials"], row["ruled_out"], row["front"]) for row in result.rows] == [(6, 0, 2), (6, 4, 1)]


def test_studies_are_refused_that_ask_for_different_things(tmp_path: Path) -> None:
    first = study(tmp_path / "a", [Outcome.SCORED], [(0.9, 1.0)])
    other = study(tmp_path / "b", [Outcome.SCORED], [(0.9, 1.0)], budgets=["infer=6ms"])
    with pytest.raises(BenchError, match=r"b: budgets .*6.*, .*a has .*5.*; allowed: studies that differ only"):
        bench_device_time([first, other])


def test_one_study_is_not_compared(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="1 results folders; allowed: two or more"):
        bench_device_time([tmp_path])


@pytest.mark.parametrize(
    ("outcomes", "finished", "reason"),
    [
        ([Outcome.SCORED], False, r"no front.csv; the search has not ended"),
        ([Outcome.OVER_BUDGET], True, r"no network was scored"),
    ],
)
def test_a_study_without_a_front_is_named(
    tmp_path: Path, outcomes: Sequence[Outcome], finished: bool, reason: str
) -> None:
    whole = study(tmp_path / "whole", [Outcome.SCORED], [(0.9, 1.0)])
    broken = study(tmp_path / "broken", outcomes, [(0.9, 1.0)])
    if not finished:
        (broken / "front.csv").unlink()
    with pytest.raises(BenchError, match=rf"broken: {reason}"):
        bench_device_time([whole, broken])
