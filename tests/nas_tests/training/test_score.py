from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from nas.training.score import ratio_interval


def obvious(totals: list[float], sizes: list[int], groups: list[int]) -> tuple[float, float]:
    """The formula written out, one group after the other."""
    names = sorted(set(groups))
    y = [sum(total for total, group in zip(totals, groups, strict=True) if group == name) for name in names]
    x = [sum(size for size, group in zip(sizes, groups, strict=True) if group == name) for name in names]
    ratio, m = sum(y) / sum(x), len(names)
    variance = m / (m - 1) * sum((a - ratio * b) ** 2 for a, b in zip(y, x, strict=True)) / sum(x) ** 2
    margin = float(t.ppf(0.975, m - 1)) * math.sqrt(variance)
    return ratio - margin, ratio + margin


EXAMPLES = st.lists(st.tuples(st.floats(0, 100), st.integers(1, 50), st.integers(0, 4)), min_size=3, max_size=30)


@given(EXAMPLES, st.randoms(use_true_random=False))
def test_the_interval_is_the_formula_in_any_order_of_examples(
    examples: list[tuple[float, int, int]], random: object
) -> None:
    if len({group for _, _, group in examples}) < 2:
        examples = [*examples, (1.0, 1, 7)]
    expected = obvious(*(list(column) for column in zip(*examples, strict=True)))
    random.shuffle(examples)  # type: ignore[attr-defined]
    totals, sizes, groups = (np.array(column) for column in zip(*examples, strict=True))
    assert ratio_interval(totals, sizes, groups) == pytest.approx(expected)


def test_without_groups_each_example_stands_for_itself_and_one_group_is_none() -> None:
    totals, sizes = np.array([1.0, 2.0, 4.0]), np.array([1, 1, 2])
    alone = ratio_interval(totals, sizes, np.array([5, 6, 7]))
    assert ratio_interval(totals, sizes, None) == alone == ratio_interval(totals, sizes, np.array([3, 3, 3]))
    assert ratio_interval(totals[:1], sizes[:1], None) == (1.0, 1.0)


def test_the_interval_covers_the_truth_as_often_as_it_says_when_files_differ() -> None:
    """60 files of 1 to 8 sequences, whose means differ more than their sequences."""
    generator = np.random.default_rng(0)
    covered = plain = 0
    for _ in range(400):
        counts = generator.integers(1, 9, size=60)
        groups = np.repeat(np.arange(60), counts)
        sizes = np.full(len(groups), 512)
        bits = (2.5 + 0.4 * generator.standard_normal(60)[groups] + 0.2 * generator.standard_normal(len(groups))) * 512
        lower, upper = ratio_interval(bits, sizes, groups)
        covered += lower < 2.5 < upper
        lower, upper = ratio_interval(bits, sizes, None)
        plain += lower < 2.5 < upper
    assert 0.92 < covered / 400 < 0.98
    assert plain / 400 < 0.8
