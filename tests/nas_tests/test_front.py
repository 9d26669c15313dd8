from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna._hypervolume import compute_hypervolume

from nas.front import Direction, hypervolume, non_dominated

# Few distinct values, so that ties and duplicates are common.
_value = st.integers(0, 6).map(float) | st.floats(0, 6)


def _points(num_objectives: int, max_size: int) -> st.SearchStrategy[list[list[float]]]:
    return st.lists(st.lists(_value, min_size=num_objectives, max_size=num_objectives), max_size=max_size)


_cases = st.integers(1, 4).flatmap(
    lambda n: st.tuples(
        _points(n, 20), st.lists(st.sampled_from(["minimize", "maximize"]), min_size=n, max_size=n), st.randoms()
    )
)
Case = tuple[list[list[float]], list[Direction], random.Random]


def _dominates(one: list[float], other: list[float], directions: list[Direction]) -> bool:
    pairs = [(a, b) if d == "minimize" else (b, a) for a, b, d in zip(one, other, directions, strict=True)]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


@given(_cases)
def test_the_front_is_what_a_comparison_of_all_pairs_finds(case: Case) -> None:
    points, directions, _ = case
    expected = [not any(_dominates(other, point, directions) for other in points) for point in points]
    assert non_dominated(points, directions).tolist() == expected


@given(_cases)
def test_no_member_of_the_front_dominates_another_and_every_other_point_is_dominated_by_one(case: Case) -> None:
    points, directions, _ = case
    mask = non_dominated(points, directions)
    front = [point for point, member in zip(points, mask, strict=True) if member]
    assert not any(_dominates(a, b, directions) for a in front for b in front)
    for point, member in zip(points, mask, strict=True):
        assert member or any(_dominates(better, point, directions) for better in front)


@given(_cases)
def test_the_order_of_the_points_never_changes_the_front_or_its_volume(case: Case) -> None:
    points, directions, generator = case
    order = list(range(len(points)))
    generator.shuffle(order)
    shuffled = [points[i] for i in order]
    assert non_dominated(shuffled, directions).tolist() == [bool(non_dominated(points, directions)[i]) for i in order]
    reference = [7.0 if direction == "minimize" else -1.0 for direction in directions]
    assert hypervolume(shuffled, reference, directions) == pytest.approx(hypervolume(points, reference, directions))


def _inclusion_exclusion(points: list[list[float]], reference: list[float]) -> float:
    total = 0.0
    for size in range(1, len(points) + 1):
        for chosen in itertools.combinations(points, size):
            corner = np.max(chosen, axis=0)
            total -= (-1) ** size * float(np.prod(np.maximum(0.0, np.array(reference) - corner)))
    return total


@settings(max_examples=60)
@given(st.integers(1, 4).flatmap(lambda n: _points(n, 7)))
def test_the_volume_is_what_inclusion_and_exclusion_of_boxes_finds(points: list[list[float]]) -> None:
    reference = [5.0] * (len(points[0]) if points else 2)
    assert hypervolume(points, reference) == pytest.approx(_inclusion_exclusion(points, reference), abs=1e-8)


@settings(max_examples=60)
@given(st.integers(2, 3).flatmap(lambda n: _points(n, 30)))
def test_the_volume_is_what_optuna_finds(points: list[list[float]]) -> None:
    reference = [7.0] * (len(points[0]) if points else 2)
    expected = compute_hypervolume(np.array(points).reshape(len(points), -1), np.array(reference)) if points else 0.0
    assert hypervolume(points, reference) == pytest.approx(float(expected), abs=1e-8)


@given(_cases)
def test_points_off_the_front_add_no_volume(case: Case) -> None:
    points, directions, _ = case
    reference = [7.0 if direction == "minimize" else -1.0 for direction in directions]
    mask = non_dominated(points, directions)
    front = [point for point, member in zip(points, mask, strict=True) if member]
    assert hypervolume(front, reference, directions) == pytest.approx(hypervolume(points, reference, directions))


def test_every_copy_of_a_front_member_is_in_the_front() -> None:
    assert non_dominated([[1.0, 1.0], [1.0, 1.0], [2.0, 2.0]], ["minimize"] * 2).tolist() == [True, True, False]


def test_nothing_has_an_empty_front_without_volume() -> None:
    assert non_dominated([], ["minimize", "maximize"]).tolist() == []
    assert hypervolume([], [1.0, 1.0]) == 0.0


def test_infinite_values_can_be_compared_but_have_no_volume() -> None:
    points = [[1.0, float("inf")], [2.0, 3.0]]
    assert non_dominated(points, ["minimize", "minimize"]).tolist() == [True, True]
    with pytest.raises(ValueError, match="infinite"):
        hypervolume(points, [5.0, 5.0])


@pytest.mark.parametrize(
    ("values", "directions", "words"),
    [
        ([[1.0, float("nan")]], ["minimize", "minimize"], "NaN in point 0"),
        ([[1.0, 2.0]], ["minimize"], "one column a direction"),
        ([1.0, 2.0], ["minimize", "minimize"], "one column a direction"),
        ([[1.0]], ["upwards"], "allowed: minimize, maximize"),
        ([], [], "shape"),
    ],
)
def test_what_cannot_be_compared_is_refused(values: list[list[float]], directions: list[Direction], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        non_dominated(values, directions)
