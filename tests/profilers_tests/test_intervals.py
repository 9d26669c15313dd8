from __future__ import annotations

import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from profilers.intervals import bootstrap_interval, half_width, process_t_interval, t_interval, t_quantile_975
from profilers.noise import Noise

latencies = st.lists(st.floats(0.01, 100), min_size=1, max_size=9)


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 10, 11, 12, 19, 30, 100, 10_000])
def test_t_quantiles_are_those_of_scipy(degrees: int) -> None:
    assert t_quantile_975(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), abs=1e-4)


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


def test_the_t_interval_over_processes_is_students_over_their_medians() -> None:
    groups = [np.array([1.0, 1.1, 5.0]), np.array([1.2]), np.array([1.0, 1.3])]
    medians = [1.1, 1.2, 1.15]
    half = stats.t.ppf(0.975, 2) * statistics.stdev(medians) / 3**0.5
    assert process_t_interval(groups) == pytest.approx(
        (statistics.mean(medians) - half, statistics.mean(medians) + half), abs=1e-3
    )


def test_with_many_processes_the_moderated_interval_becomes_students() -> None:
    noise = random.Random(5)
    groups = [np.full(3, noise.gauss(0, 0.01)) for _ in range(400)]
    low, high = process_t_interval(groups)
    assert half_width(groups, Noise(), with_drift=False) == pytest.approx((high - low) / 2, rel=0.02)


def test_expectation_counts_for_as_many_processes_as_it_says() -> None:
    apart = [np.full(3, 0.0), np.full(3, 0.02)]
    trusting, doubting = Noise(degrees=40, least_spread=0.001), Noise(degrees=1, least_spread=0.001)
    assert half_width(apart, trusting, with_drift=False) < half_width(apart, doubting, with_drift=False) / 5
