from __future__ import annotations

import pytest

from profilers.canary import (
    Canaries,
    CanaryBaseline,
    CanaryHistory,
    CanaryReading,
    drift_cause,
    footprint_bytes,
    quiet_level,
    worst_drift,
)
from profilers.measurement import CAUSE_SEPARATOR


def reading(compute: float = 1.0, bandwidth: float = 1.0) -> CanaryReading:
    return CanaryReading(compute_ms=compute, bandwidth_ms=bandwidth)


QUIET = reading()
BASELINE = CanaryBaseline(compute_ms=1.0, bandwidth_ms=1.0)


def test_canaries_take_time() -> None:
    seen = Canaries(4 << 20).read()
    assert seen.compute_ms > 0 and seen.bandwidth_ms > 0


@pytest.mark.parametrize(
    ("compute", "bandwidth", "word"),
    [(1.02, 1.04, None), (1.04, 1.0, "compute"), (1.0, 1.06, "bandwidth"), (0.8, 0.5, None)],
)
def test_a_canary_that_slows_names_itself_and_a_faster_one_is_no_cause(
    compute: float, bandwidth: float, word: str | None
) -> None:
    cause = drift_cause([reading(compute, bandwidth)] * 2, BASELINE)
    assert cause is None if word is None else cause is not None and word in cause


def test_drift_is_the_worst_slowdown() -> None:
    assert worst_drift([reading(1.1), reading(1.0, 1.3)], BASELINE) == pytest.approx(0.3)
    assert worst_drift([reading(0.5, 0.5)], BASELINE) == 0.0


def test_a_disturbed_minority_does_not_move_the_quiet_level() -> None:
    assert quiet_level([reading(value) for value in (5.0, 1.0, 1.01, 5.0, 1.0)]).compute_ms == 1.0


def told(history: CanaryHistory, readings: list[CanaryReading], at_s: float = 0.0) -> str | None:
    """Lets a history judge and remember a run, as a profiler does; the cause when it was refused."""
    cause = drift_cause(readings, history.baseline(readings))
    if cause is None:
        history.count(readings)
    else:
        history.refuse(readings, at_s)
    return cause


def quiet_history() -> CanaryHistory:
    history = CanaryHistory()
    for _ in range(9):
        assert told(history, [QUIET] * 4) is None
    return history


def test_a_disturbance_that_lasts_a_whole_run_is_seen_against_the_runs_before() -> None:
    history = CanaryHistory()
    assert history.baseline([QUIET] * 4) == BASELINE
    history.count([QUIET] * 4)
    assert drift_cause([reading(1.0, 1.9)], history.baseline([reading(1.0, 1.9)] * 4)) is not None


def test_a_host_that_is_slower_for_some_minutes_is_not_taken_for_the_device() -> None:
    history, slow = quiet_history(), [reading(1.12)] * 4
    assert all(told(history, slow, at_s=3.0 * number) is not None for number in range(150))
    assert history.known_baseline() == BASELINE
    assert told(history, [QUIET] * 4) is None


def test_a_lasting_change_becomes_the_baseline_after_ten_minutes_without_a_run_that_counted() -> None:
    history, warm = quiet_history(), [reading(1.2)] * 4
    refused = [told(history, warm, at_s=40.0 * number) is not None for number in range(20)]
    assert refused == [True] * 16 + [False] * 4
    assert history.spell is None


def test_one_good_run_ends_a_slow_spell() -> None:
    history, slow = quiet_history(), [reading(1.2)] * 4
    for number in range(14):
        told(history, slow, at_s=40.0 * number)
    told(history, [QUIET] * 4)
    assert told(history, slow, at_s=700.0) is not None
    assert history.known_baseline() == BASELINE and history.spell is not None and history.spell.since_s == 700.0


@pytest.mark.parametrize("gap_s", [7200.0, -5.0])
def test_slow_runs_that_are_hours_apart_or_whose_clock_was_set_back_are_no_spell(gap_s: float) -> None:
    history, slow = quiet_history(), [reading(1.2)] * 4
    for number in range(12):
        told(history, slow, at_s=1e6 + gap_s * number)
    assert history.known_baseline() == BASELINE


def test_fewer_than_nine_slow_runs_are_no_lasting_change() -> None:
    history, slow = quiet_history(), [reading(1.2)] * 4
    for number in range(8):
        told(history, slow, at_s=300.0 * number)
    assert history.known_baseline() == BASELINE
    told(history, slow, at_s=2400.0)
    assert history.known_baseline() != BASELINE


def test_every_canary_that_was_slow_is_named() -> None:
    cause = drift_cause([reading(1.05, 1.9)], BASELINE)
    assert cause is not None
    assert [part.partition(" slower")[0] for part in cause.split(CAUSE_SEPARATOR)] == [
        "compute canary 5.0%",
        "bandwidth canary 90.0%",
    ]


def test_a_canary_that_is_noisy_by_itself_may_drift_by_its_own_noise_and_not_by_more() -> None:
    history = CanaryHistory()
    noisy = [reading(1.0, value) for value in (0.9, 1.0, 1.1, 0.85, 1.0, 1.15, 1.0)]
    for _ in range(3):
        history.count(noisy)
    baseline = history.baseline(noisy)
    assert 0.3 < baseline.bandwidth_allowed < 1.0
    assert baseline.compute_allowed == BASELINE.compute_allowed
    assert drift_cause([reading(1.0, 1.2)], baseline) is None
    assert drift_cause([reading(1.0, 2.0)], baseline) is not None


def test_a_history_goes_on_where_an_earlier_one_stopped() -> None:
    history = CanaryHistory()
    history.count([QUIET] * 4)
    slow = [reading(1.0, 1.9)] * 4
    assert drift_cause(slow, CanaryHistory(history.levels).baseline(slow)) is not None
    assert drift_cause(slow, CanaryHistory().baseline(slow)) is None


def test_one_slow_reading_beside_a_good_one_is_cause_enough() -> None:
    assert drift_cause([QUIET, reading(9.0, 1.0)], BASELINE) is not None
    assert drift_cause([reading(1.0, 9.0), QUIET], BASELINE) is not None


def test_limits_are_the_slowest_readings_that_are_still_nothing() -> None:
    limits = CanaryBaseline(compute_ms=2.0, bandwidth_ms=1.0, bandwidth_allowed=0.5).limits()
    assert (limits.compute_ms, limits.bandwidth_ms) == pytest.approx((2.06, 1.5))
    assert reading(2.05, 1.49).is_within(limits)
    assert not reading(2.07, 1.0).is_within(limits) and not reading(2.0, 1.51).is_within(limits)


def test_a_program_of_the_private_cache_has_its_canary_there_and_any_other_beyond_it() -> None:
    l2_bytes = 1 << 20
    assert footprint_bytes(300_000, l2_bytes, 400_000) == l2_bytes // 2
    assert footprint_bytes(300_000, l2_bytes, 600_000) == 4 << 20, "together they do not fit"
    assert footprint_bytes(300_000, l2_bytes) == 4 << 20, "how large its values are is not known"
    assert footprint_bytes(0, l2_bytes, 60_000_000) == 4 << 20
