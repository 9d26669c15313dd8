"""What the language bench concludes from trainings and latencies."""

from __future__ import annotations

import pytest

from nas.bench.contenders import BenchError
from nas.bench.language import LanguageBench, Speed, Trained, best_mix, figures_of
from nas.bench.language_plot import draw_language, points_of
from nas.config import StudyConfig


def speed(speedup: float) -> Speed:
    return Speed(
        latency_ms=1 / speedup, lower_ms=0.9 / speedup, upper_ms=1.1 / speedup, speedup=speedup,
        speedup_lower=0.9 * speedup, speedup_upper=1.1 * speedup, rejected_because=None,
    )  # fmt: skip


SPEEDS = {name: (speed(a), speed(b)) for name, a, b in [("attention_only", 1, 1), ("mix", 3, 2), ("conv", 9, 9)]}


def runs(*pairs: tuple[float, float]) -> list[Trained]:
    return [Trained(val=val, test=test) for val, test in pairs]


def test_the_mix_is_chosen_on_val_and_reported_on_test() -> None:
    trained = {
        "attention_only": runs((2.0, 2.1), (2.2, 2.3)),
        "mix": runs((2.0, 2.3), (2.1, 2.3)),  # better on val, worse on test: it is chosen, and the figures say so
        "conv": runs((2.1, 1.0), (2.2, 1.0)),  # worse on val: its test does not save it
    }
    figures = figures_of(trained, SPEEDS)
    assert figures["best_decode_speedup"] == 3
    assert figures["best_prefill_speedup"] == 2
    assert figures["best_test_bits_per_byte"] == pytest.approx(2.3)
    assert figures["baseline_test_bits_per_byte"] == pytest.approx(2.2)
    assert figures["test_margin"] == pytest.approx(0.1)
    assert float(figures["test_margin_half_width"]) == pytest.approx(1.27, abs=0.01)  # type: ignore[arg-type]


def test_without_a_mix_that_is_as_good_there_is_no_speed_up() -> None:
    trained = {name: runs((1.0 if name == "attention_only" else 1.01, 1.0)) for name in SPEEDS}
    assert best_mix(trained, SPEEDS) is None
    figures = figures_of(trained, SPEEDS)
    assert figures["best_decode_speedup"] is None
    assert figures["test_margin"] is None


def test_a_bench_without_its_baseline_is_refused() -> None:
    with pytest.raises(BenchError, match="attention_only"):
        LanguageBench(config=StudyConfig(), candidates={}, phases=("decode@8", "prefill@8"), seeds=(0,))


def test_the_picture_shows_each_network_in_both_phases() -> None:
    row = {"name": "attention_only", "test_bits_per_byte": 2.5, "test_half_width": 0.1}
    for phase in ("decode", "prefill"):
        row |= {f"{phase}_ms": 2.0, f"{phase}_lower_ms": 1.5, f"{phase}_upper_ms": 3.0}
    assert [point.latency_range_ms for point in points_of([row], "prefill")] == [(0.5, 1.0)]
    assert draw_language([row]).startswith(b"\x89PNG")
