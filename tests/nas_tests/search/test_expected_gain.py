from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.front import hypervolume
from nas.search.expected_gain import CostFront, expected_gain, gain

numbers = st.floats(0.0, 1.0, allow_nan=False, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(numbers, numbers), max_size=8), numbers, numbers)
def test_the_gain_is_the_difference_of_two_hypervolumes(
    known: list[tuple[float, float]], quality: float, cost: float
) -> None:
    """Compared with the slow and obvious way."""
    reference, directions = [0.1, 0.9], ["maximize", "minimize"]
    with_it = hypervolume([*known, (quality, cost)], reference, directions)  # type: ignore[arg-type]
    without = hypervolume(known, reference, directions)  # type: ignore[arg-type]
    points = np.array(known, dtype=float).reshape(-1, 2)
    front = CostFront.of(points[:, 0], points[:, 1:], worst=0.1, lowest=np.zeros(1), maximum=np.array([0.9]))
    seen = gain(front, np.array([quality]), np.array([[cost]]))[0]
    assert seen == pytest.approx(with_it - without, abs=1e-9)


def test_two_costs_are_a_mean_over_limits_that_comes_close_to_the_hypervolume() -> None:
    rng = np.random.default_rng(0)
    qualities, costs = rng.random(6), rng.random((6, 2))
    directions = ["maximize", "minimize", "minimize"]
    exact = hypervolume(np.column_stack([qualities, costs]), [0.0, 1.0, 1.0], directions)  # type: ignore[arg-type]
    front = CostFront.of(qualities[:0], costs[:0], worst=0.0, lowest=np.zeros(2), maximum=np.ones(2))
    total = 0.0
    for number in range(6):
        total += gain(front, qualities[number : number + 1], costs[number : number + 1])[0]
        front = CostFront.of(
            qualities[: number + 1], costs[: number + 1], worst=0.0, lowest=np.zeros(2), maximum=np.ones(2)
        )
    assert total == pytest.approx(exact, rel=0.05)


def test_the_expected_gain_is_the_mean_over_what_the_quality_may_be() -> None:
    front = CostFront.of(
        np.array([0.4, 0.6]), np.array([[1.0], [3.0]]), worst=0.0, lowest=np.zeros(1), maximum=np.array([5.0])
    )
    costs = np.array([[2.0], [0.5]])
    means, deviations = np.array([0.55, 0.3]), np.array([0.1, 0.2])
    draws = means + deviations * np.random.default_rng(0).normal(size=(40_000, 2))
    simulated = np.mean([gain(front, draw, costs) for draw in draws[:4000]], axis=0)
    seen = expected_gain(front, means, deviations, lambda warped: warped, costs)
    assert seen == pytest.approx(simulated, rel=0.08)


def test_over_budget_nothing_is_gained() -> None:
    front = CostFront.of(np.zeros(0), np.zeros((0, 1)), worst=0.0, lowest=np.zeros(1), maximum=np.array([2.0]))
    assert gain(front, np.array([1.0, 1.0]), np.array([[2.5], [1.5]])).tolist() == [0.0, 0.5]
