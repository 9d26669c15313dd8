from __future__ import annotations

import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from profilers.measurement import Block
from profilers.statistics import (
    bootstrap_interval,
    compare,
    drop_disturbed,
    medians_by_process,
    reject_for_drops,
    summarise,
    t_interval,
    t_quantile_975,
)

latencies = st.lists(st.floats(0.01, 100), min_size=1, max_size=9)


def block(process: int, *latencies_ms: float, cpu: float = 1.0, dropped: str | None = None) -> Block:
    return Block(process=process, latencies_ms=latencies_ms, cpu_over_wall=cpu, dropped_because=dropped)


def noisy(processes: int, blocks: int, seed: int, shift: float = 0.0, spread: float = 0.01) -> list[Block]:
    noise = random.Random(seed)
    return [block(p, 1 + shift + noise.gauss(0, spread)) for p in range(processes) for _ in range(blocks)]


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 10, 11, 12, 19, 30, 100, 10_000])
def test_t_quantiles_are_those_of_scipy(degrees: int) -> None:
    assert t_quantile_975(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), abs=1e-4)


@given(st.lists(st.tuples(st.integers(0, 2), latencies, st.booleans()), min_size=2, max_size=12))
def test_the_latency_is_the_median_of_medians_of_blocks_that_count(made: list[tuple[int, list[float], bool]]) -> None:
    blocks = [block(p, *values, dropped="x" if drop else None) for p, values, drop in made]
    medians = [statistics.median(values) for _, values, drop in made if not drop]
    if len(medians) < 2:
        with pytest.raises(ValueError, match="fewer than 2"):
            summarise(blocks, seed=0)
        return
    seen = summarise(blocks, seed=0)
    runs = [value for _, values, drop in made if not drop for value in values]
    assert seen.latency_ms == pytest.approx(statistics.median(medians))
    assert seen.best_ms == min(runs)
    assert seen.p90_ms == pytest.approx(float(np.quantile(runs, 0.9)))
    assert 0 < seen.lower_ms <= seen.latency_ms <= seen.upper_ms


@given(latencies.filter(lambda values: len(values) > 1))
def test_the_t_interval_of_one_process_is_students(values: list[float]) -> None:
    lower, upper = t_interval([np.asarray(values)])
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    assert lower == pytest.approx(statistics.mean(values) - half, abs=1e-2, rel=1e-4)
    assert upper == pytest.approx(statistics.mean(values) + half, abs=1e-2, rel=1e-4)


def test_processes_that_differ_widen_the_t_interval() -> None:
    alike = [np.array([1.0, 1.01, 0.99]), np.array([1.0, 1.01, 0.99])]
    apart = [np.array([1.0, 1.01, 0.99]), np.array([1.1, 1.11, 1.09])]
    (low, high), (low_apart, high_apart) = t_interval(alike), t_interval(apart)
    pooled = np.concatenate(apart)
    naive = 2 * t_quantile_975(5) * pooled.std(ddof=1) / len(pooled) ** 0.5
    assert high_apart - low_apart > 1.5 * naive > high - low


def test_the_bootstrap_agrees_with_an_obvious_one() -> None:
    noise = random.Random(1)
    groups = [[noise.gauss(shift, 0.01) for _ in range(8)] for shift in (1.0, 1.005, 1.01)]
    medians = []
    for _ in range(4000):
        drawn = [noise.choice(groups) for _ in groups]
        medians.append(statistics.median(noise.choice(group) for group in drawn for _ in range(8)))
    low, high = np.quantile(medians, [0.025, 0.975])
    centre = statistics.median(value for group in groups for value in group)
    stretch = (3 / 2) ** 0.5
    seen = bootstrap_interval([np.asarray(group) for group in groups], seed=0)
    assert seen[0] == pytest.approx(centre - stretch * (centre - low), abs=0.003)
    assert seen[1] == pytest.approx(centre + stretch * (high - centre), abs=0.003)


def test_the_bootstrap_repeats_itself_and_takes_processes_of_unlike_size() -> None:
    groups = [np.array([1.0, 1.1, 1.2]), np.array([1.05])]
    assert bootstrap_interval(groups, seed=3) == bootstrap_interval(groups, seed=3)
    low, high = bootstrap_interval(groups, seed=3)
    # Padding of the shorter row must never be drawn: it would pull the bound to 0.
    assert 0.9 < low <= 1.075 <= high < 1.3


@pytest.mark.parametrize(("processes", "blocks"), [(2, 6), (3, 8)])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(processes: int, blocks: int) -> None:
    seen = [summarise(noisy(processes, blocks, seed), seed=seed) for seed in range(300)]
    covered = sum(each.lower_ms <= 1 <= each.upper_ms for each in seen) / len(seen)
    assert covered > 0.9


def test_more_blocks_make_the_interval_narrower() -> None:
    def width(blocks: int) -> float:
        seen = [summarise(noisy(3, blocks, seed), seed=0) for seed in range(30)]
        return statistics.median(each.upper_ms - each.lower_ms for each in seen)

    assert width(4) > width(8) > width(24)


def test_a_block_that_waited_for_a_processor_is_dropped_but_kept() -> None:
    blocks = drop_disturbed([block(0, 1.0, cpu=0.5), block(0, 2.0), block(0, 3.0, dropped="drift")], 0.97)
    assert [each.dropped_because for each in blocks] == ["CPU over wall 0.500, needs 0.97", None, "drift"]
    assert [list(group) for group in medians_by_process(blocks)] == [[2.0]]


def test_a_share_that_is_not_a_number_drops_the_block() -> None:
    assert drop_disturbed([block(0, 1.0, cpu=float("nan"))], 0.97)[0].dropped_because is not None


def test_a_fifth_of_dropped_blocks_is_bearable_and_more_is_not() -> None:
    bearable = [block(0, 1.0, dropped="x"), *[block(0, 1.0)] * 4]
    assert reject_for_drops(bearable) is None
    reason = reject_for_drops([block(0, 1.0, dropped="x"), *[block(0, 1.0)] * 3])
    assert reason is not None and "1 of 4 blocks" in reason and "x" in reason
    assert "1 block left" in (reject_for_drops([block(0, 1.0)]) or "")


def test_equal_programs_are_tied_and_a_slower_one_is_told_apart() -> None:
    first, same, slower = (noisy(3, 8, seed, shift, 0.002) for seed, shift in ((1, 0), (2, 0), (3, 0.05)))
    assert compare(first, same, noise_floor=0.01).verdict == "tied"
    seen = compare(first, slower, noise_floor=0.01)
    assert seen.verdict == "faster" and seen.lower < seen.ratio < seen.upper < 1
    assert compare(slower, first, noise_floor=0.01).verdict == "slower"
    assert compare(slower, first, noise_floor=0.1).verdict == "tied"


def test_pairing_cancels_what_both_programs_share() -> None:
    shared = [1.0, 1.3, 0.8, 1.1, 1.6, 0.9]
    first = [block(i % 3, value) for i, value in enumerate(shared)]
    second = [block(i % 3, value * 1.03) for i, value in enumerate(shared)]
    assert compare(first, second, noise_floor=0.01).ratio == pytest.approx(1 / 1.03)
    assert compare(first, second, noise_floor=0.01).verdict == "faster"


def test_programs_without_pairs_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="interleaved"):
        compare([block(0, 1.0)], [block(1, 1.0)], noise_floor=0.01)
