from __future__ import annotations

import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profilers.measurement import Block
from profilers.noise import Noise
from profilers.statistics import (
    compare,
    drop_disturbed,
    medians_by_process,
    needs_more,
    paired_log_ratios,
    reject_for_drops,
    reject_for_starvation,
    summarise,
)

FLOOR = Noise(floor=0.01)

latencies = st.lists(st.floats(0.01, 100), min_size=1, max_size=9)


def block(process: int, *latencies_ms: float, cpu: float = 1.0, dropped: str | None = None) -> Block:
    return Block(process=process, latencies_ms=latencies_ms, cpu_over_wall=cpu, dropped_because=dropped)


def noisy(processes: int, blocks: int, seed: int, shift: float = 0.0, spread: float = 0.01) -> list[Block]:
    noise = random.Random(seed)
    return [block(p, 1 + shift + noise.gauss(0, spread)) for p in range(processes) for _ in range(blocks)]


@given(st.lists(st.tuples(st.integers(0, 2), latencies, st.booleans()), min_size=2, max_size=12))
def test_the_latency_is_the_median_of_medians_of_blocks_that_count(made: list[tuple[int, list[float], bool]]) -> None:
    blocks = [block(p, *values, dropped="x" if drop else None) for p, values, drop in made]
    medians = [statistics.median(values) for _, values, drop in made if not drop]
    if len(medians) < 2:
        with pytest.raises(ValueError, match="fewer than 2"):
            summarise(blocks)
        return
    seen = summarise(blocks)
    runs = [value for _, values, drop in made if not drop for value in values]
    assert seen.latency_ms == pytest.approx(statistics.median(medians))
    assert seen.best_ms == min(runs)
    assert seen.p90_ms == pytest.approx(float(np.quantile(runs, 0.9)))
    assert 0 < seen.lower_ms <= seen.latency_ms <= seen.upper_ms


@pytest.mark.parametrize(("processes", "blocks"), [(2, 6), (3, 8)])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(processes: int, blocks: int) -> None:
    seen = [summarise(noisy(processes, blocks, seed)) for seed in range(300)]
    covered = sum(each.lower_ms <= 1 <= each.upper_ms for each in seen) / len(seen)
    assert covered > 0.9


def shifting(processes: int, blocks: int, seed: int, spread: float) -> list[Block]:
    """Processes that differ by `spread`, whose blocks agree."""
    noise = random.Random(seed)
    return [block(p, shift) for p in range(processes) for shift in [1 + noise.gauss(0, spread)] * blocks]


@pytest.mark.parametrize("processes", [2, 3, 4, 6])
@pytest.mark.parametrize("spread", [0.0025, 0.005])
def test_processes_that_differ_are_allowed_for(processes: int, spread: float) -> None:
    seen = [summarise(shifting(processes, 6, seed, spread)) for seed in range(300)]
    covered = sum(each.lower_ms <= 1 <= each.upper_ms for each in seen) / len(seen)
    # Of a program twice as noisy as the device leads one to expect, two processes say little.
    assert covered > (0.9 if spread == 0.0025 else 0.8)


def test_more_processes_make_the_interval_narrower() -> None:
    def width(processes: int) -> float:
        seen = [summarise(noisy(processes, 6, seed)) for seed in range(30)]
        return statistics.median(each.upper_ms - each.lower_ms for each in seen)

    assert width(2) > width(4) > width(12)


def test_what_drifts_within_a_run_widens_the_interval_although_more_processes_would_not_help() -> None:
    quiet, restless = noisy(20, 6, 0, spread=0.001), noisy(20, 6, 0, spread=0.02)
    assert not needs_more(quiet, 0.01) and not needs_more(restless, 0.02)
    seen = summarise(restless)
    assert (seen.upper_ms - seen.lower_ms) / 2 > 0.04


def test_an_enrolled_floor_is_the_least_half_width() -> None:
    blocks = noisy(3, 6, 0, spread=0.0001)
    assert (summarise(blocks).upper_ms / summarise(blocks).latency_ms - 1) < 0.008
    seen = summarise(blocks, noise=Noise(floor=0.03))
    assert seen.upper_ms / seen.latency_ms - 1 == pytest.approx(0.0305, abs=1e-3)


def test_two_processes_that_happen_to_agree_are_no_certainty() -> None:
    agreeing = [block(process, 1.0) for process in (0, 0, 1, 1)]
    seen = summarise(agreeing)
    assert seen.upper_ms > 1.004


def test_more_is_needed_until_the_processes_settle_it() -> None:
    assert needs_more(noisy(2, 6, 0, spread=0.02), 0.01)
    assert not needs_more(noisy(40, 6, 0, spread=0.02), 0.02)


def test_a_block_that_waited_for_a_processor_is_dropped_but_kept() -> None:
    blocks = drop_disturbed([block(0, 1.0, cpu=0.5), block(0, 2.0), block(0, 3.0, dropped="drift")], 0.97)
    assert [each.dropped_because for each in blocks] == ["CPU over wall 0.500, needs 0.97", None, "drift"]
    assert [list(group) for group in medians_by_process(blocks)] == [[2.0]]


def test_a_share_that_is_not_a_number_drops_the_block() -> None:
    assert drop_disturbed([block(0, 1.0, cpu=float("nan"))], 0.97)[0].dropped_because is not None


def test_a_fifth_of_starved_blocks_is_bearable_and_more_is_not() -> None:
    bearable = [block(0, 1.0, dropped="x"), *[block(0, 1.0)] * 4]
    assert reject_for_starvation(bearable) is None
    reason = reject_for_starvation([block(0, 1.0, dropped="x"), *[block(0, 1.0)] * 3])
    assert reason is not None and "1 of 4 blocks" in reason and "x" in reason and "allowed: 20%" in reason
    assert "1 block left" in (reject_for_starvation([block(0, 1.0)]) or "")


def test_three_quarters_of_dropped_blocks_are_bearable_and_more_are_not() -> None:
    assert reject_for_drops([*[block(0, 1.0, dropped="x")] * 6, *[block(0, 1.0)] * 2]) is None
    reason = reject_for_drops([*[block(0, 1.0, dropped="x")] * 7, *[block(0, 1.0)] * 2])
    assert reason is not None and "7 of 9 blocks" in reason
    assert "1 block left" in (reject_for_drops([block(0, 1.0)]) or "")


def test_blocks_that_count_are_paired_in_order_whichever_were_lost() -> None:
    first = [block(0, 9.0, dropped="x"), block(0, 1.0), block(0, 1.0)]
    second = [block(0, 2.0), block(0, 2.0), block(0, 9.0, dropped="x")]
    [logs] = paired_log_ratios(first, second)
    assert logs == pytest.approx([-0.6931, -0.6931], abs=1e-3)


def test_equal_programs_are_tied_and_a_slower_one_is_told_apart() -> None:
    first, same, slower = (noisy(3, 8, seed, shift, 0.002) for seed, shift in ((1, 0), (2, 0), (3, 0.05)))
    assert compare(first, same, noise=FLOOR).verdict == "tied"
    seen = compare(first, slower, noise=FLOOR)
    assert seen.verdict == "faster" and seen.lower < seen.ratio < seen.upper < 1
    assert compare(slower, first, noise=FLOOR).verdict == "slower"
    assert compare(slower, first, noise=Noise(floor=0.1)).verdict == "tied"


def test_pairing_cancels_what_both_programs_share() -> None:
    shared = [1.0, 1.3, 0.8, 1.1, 1.6, 0.9]
    first = [block(i % 3, value) for i, value in enumerate(shared)]
    second = [block(i % 3, value * 1.03) for i, value in enumerate(shared)]
    assert compare(first, second, noise=FLOOR).ratio == pytest.approx(1 / 1.03)
    assert compare(first, second, noise=FLOOR).verdict == "faster"


def test_programs_without_pairs_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="interleaved"):
        compare([block(0, 1.0)], [block(1, 1.0)], noise=FLOOR)
