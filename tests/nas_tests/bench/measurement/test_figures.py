from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nas.bench.measurement.figures import coverage, figures_of, is_detected
from nas.bench.measurement.parts import PARTS, Row, naive_differs
from nas.bench.measurement.plots import aa_figure_data, draw_aa, draw_rejected
from nas.search.testing import made_up_measurement
from profilers.measurement import Block


def pair(ratio: float, half: float, **more: Any) -> dict[str, Any]:
    return {"part": "aa", "model": "chain", "ratio": ratio, "lower": ratio - half, "upper": ratio + half,
            "rejected_because": None, "naive_differs": False, "verdict": "tied", **more}  # fmt: skip


def run(latency_ms: float, half: float, model: str = "chain", reason: str | None = None) -> dict[str, Any]:
    return {"part": "coverage", "model": model, "latency_ms": latency_ms, "lower": latency_ms - half,
            "upper": latency_ms + half, "rejected_because": reason}  # fmt: skip


def test_false_alarms_are_counted_with_and_without_the_floor_and_rejected_pairs_are_not() -> None:
    rows = [
        pair(1.0, 0.01),
        pair(1.004, 0.002, naive_differs=True),
        pair(1.05, 0.01, naive_differs=True),
        pair(0.99, 0.02),
        {"part": "aa", "model": "chain", "rejected_because": "hog", "naive_differs": True},
    ]
    figures = figures_of(rows, 0.01, 20)
    assert figures["false_alarm"] == 0.5
    assert figures["false_alarm_with_floor"] == 0.25
    assert figures["false_alarm_naive"] == 0.5
    assert figures["aa_rejected"] == 0.2


def test_a_part_that_was_not_run_has_no_figure() -> None:
    figures = figures_of([], 0.01, 20)
    assert {
        "false_alarm", "false_alarm_with_floor", "false_alarm_naive", "hog_detected", "quiet_rejected",
        "coverage95", "told_apart_3pct", "child_start_s", "first_look_s", "finalist_s",
    } <= figures.keys()  # fmt: skip
    assert set(figures.values()) == {None}
    assert set(PARTS) == {"aa", "apart", "hogs", "quiet", "coverage", "speed"}


def test_runs_that_somebody_else_worked_beside_do_not_count_as_quiet() -> None:
    shares = [(0.0, None), (0.0, "canary"), (0.04, None), (0.5, "CPU over wall"), (0.9, "CPU over wall")]
    rows: list[Row] = [{"part": "quiet", "foreign_share": share, "rejected_because": why} for share, why in shares]
    assert figures_of(rows, 0.01, 20)["quiet_rejected"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("condition", "reason", "found"),
    [
        ("same core", "9 of 12 blocks were disturbed (most often: CPU over wall 0.5, needs 0.97)", True),
        ("same core", "9 of 12 blocks were disturbed (most often: bandwidth canary 9% slower)", False),
        ("memory", "9 of 12 blocks were disturbed (most often: bandwidth canary 99% slower)", True),
        ("memory", "9 of 12 blocks were disturbed (most often: CPU over wall 0.5, needs 0.97)", False),
        ("memory", None, False),
    ],
)
def test_a_hog_is_found_when_the_rejection_names_what_it_did(condition: str, reason: str | None, found: bool) -> None:
    assert is_detected({"condition": condition, "rejected_because": reason}) is found


def test_coverage_asks_for_the_median_of_later_runs_of_the_same_program() -> None:
    steady = [run(1.0, 0.1) for _ in range(4)]
    assert coverage(steady, "", 2) == 1.0
    jumping = [run(1.0, 0.1), run(5.0, 0.1), run(1.0, 0.1), run(1.0, 0.1)]
    assert coverage(jumping, "", 2) == 0.0
    mixed = [run(1.0, 0.1), run(9.0, 0.1, "wide")] * 3
    assert coverage(mixed, "", 2) == 1.0
    assert coverage([run(1.0, 0.1, reason="hog"), *steady], "", 3) == 1.0
    assert coverage(steady, "", 20) is None


def test_the_naive_control_tells_equal_programs_apart_when_a_process_is_a_little_off() -> None:
    noise = np.random.default_rng(0)

    def blocks(centre: float) -> tuple[Block, ...]:
        return (Block(process=0, latencies_ms=tuple(noise.normal(centre, 0.01, 200)), cpu_over_wall=1.0),)

    assert naive_differs(blocks(1.0), blocks(1.004))
    assert not naive_differs(blocks(1.0), blocks(1.0))


def test_pictures_show_gaps_by_model_and_which_blocks_were_dropped() -> None:
    data = aa_figure_data([pair(1.01, 0.02), pair(1.05, 0.01, model="wide"), pair(9.0, 1.0, rejected_because="hog")])
    assert {name: len(gaps) for name, gaps in data.gaps_percent.items()} == {"chain": 1, "wide": 1}
    assert data.gaps_percent["chain"][0] == pytest.approx(1.0)
    assert data.num_false_alarms == 1
    assert draw_aa(data).startswith(b"\x89PNG")
    assert draw_rejected(made_up_measurement(1.0, rejected_because="a hog; go away")).startswith(b"\x89PNG")
