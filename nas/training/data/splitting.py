"""Which examples go where: drawn per class, copies of one example never apart."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def example_digests(inputs: NDArray[Any]) -> list[bytes]:
    """A 16-byte hash of each example's values: equal exactly when the examples are (but for a clash)."""
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in inputs]


def identical_groups(inputs: NDArray[Any]) -> NDArray[np.int64]:
    """A group number for each example; copies share one.

    >>> [int(group) for group in identical_groups(np.array([[1], [2], [1]]))]
    [0, 1, 0]
    """
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(digest, len(numbers)) for digest in example_digests(inputs)], dtype=np.int64)


def draw_per_class(
    labels: NDArray[Any], groups: NDArray[Any], quotas: Sequence[int], generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Draws about `quotas[label]` examples of each class at random, whole groups only.

    A group counts for the class of its first member, and is left out where it would overshoot
    the quota, so that a class with few distinct examples gives fewer, never more.

    Returns:
        True for each drawn example, shape (examples,).
    """
    _, first, members = np.unique(groups, return_index=True, return_counts=True)
    chosen = []
    for label, quota in enumerate(quotas):
        of_class = np.flatnonzero(labels[first] == label)
        for group in generator.permutation(of_class):
            if members[group] <= quota:
                chosen.append(group)
                quota -= int(members[group])
    position = np.searchsorted(np.unique(groups), groups)
    return np.isin(position, np.array(chosen, dtype=np.int64))
