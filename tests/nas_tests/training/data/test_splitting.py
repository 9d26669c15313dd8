from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nas.training.data.splitting import draw_per_class, identical_groups


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=60), st.integers(0, 6))
def test_a_draw_keeps_copies_together_and_never_exceeds_its_quota(rows: list[tuple[int, int]], quota: int) -> None:
    labels = np.array([label for label, _ in rows])
    groups = identical_groups(np.array([value for _, value in rows])[:, None])
    taken = draw_per_class(labels, groups, [quota] * 3, np.random.default_rng(0))
    assert not set(groups[taken]) & set(groups[~taken])
    assert taken.sum() <= 3 * quota


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(0, 30), st.integers(0, 5))
def test_without_copies_each_class_gives_exactly_its_quota(labels: list[int], quota: int, seed: int) -> None:
    array = np.array(labels)
    taken = draw_per_class(array, np.arange(len(array)), [quota] * 3, np.random.default_rng(seed))
    for label in range(3):
        assert taken[array == label].sum() == min(quota, labels.count(label))


@given(st.lists(st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=1, max_size=20))
def test_examples_share_a_group_exactly_when_they_are_equal(rows: list[list[int]]) -> None:
    groups = identical_groups(np.array(rows))
    for i, left in enumerate(rows):
        for j, right in enumerate(rows):
            assert (groups[i] == groups[j]) == (left == right)
