"""Which architectures to measure: every second at random, the others where the model knows least."""

from __future__ import annotations

import numpy as np

from profilers.cost_model.terms import Encoded

_ERROR = 0.05
_POOL = 2000
_LARGEST = 3.0
"""Architectures with more than this many times the typical amount of everything are no good measure."""


def choose(encoded: Encoded, num_samples: int, generator: np.random.Generator) -> np.ndarray:
    """Rows of `encoded` to measure, in the order in which to measure them.

    Greedy D-optimal design (Fedorov 1972) under the prior of the terms, summed over the ways of running
    a network, so that samples also tell those ways apart. Every second sample is drawn at random: the
    intervals are about random architectures, and chosen ones alone are not like those.

    Args:
        encoded: what can be measured.
        num_samples: how many to choose.
        generator: decides the random ones and, of many architectures, which are looked at.

    Raises:
        ValueError: more samples than architectures.
    """
    if num_samples > len(encoded):
        raise ValueError(f"{num_samples} samples of {len(encoded)} architectures; ask for fewer")
    pool = generator.permutation(len(encoded))[: max(_POOL, num_samples)]
    values = [variant.values[pool] for variant in encoded.variants]
    spreads = [np.array([term.spread for term in variant.terms]) for variant in encoded.variants]
    covariances = [np.diag(spread**2) for spread in spreads]
    is_free = np.ones(len(pool), bool)
    typical = np.max([np.abs(each).mean(1) for each in values], axis=0) <= _LARGEST
    chosen: list[int] = []
    for turn in range(num_samples):
        open_rows = np.flatnonzero(is_free)
        if turn % 2:
            best = int(open_rows[0])  # the pool is in random order
        else:
            gain = sum(
                np.log1p(np.einsum("nk,kl,nl->n", each[open_rows], covariance, each[open_rows]) / _ERROR**2)
                for each, covariance in zip(values, covariances, strict=True)
            )
            best = int(open_rows[np.argmax(np.where(typical[open_rows], gain, -np.inf))])
        is_free[best] = False
        chosen.append(best)
        for at, each in enumerate(values):
            seen = covariances[at] @ each[best]
            covariances[at] = covariances[at] - np.outer(seen, seen) / (_ERROR**2 + each[best] @ seen)
    result: np.ndarray = pool[chosen]
    return result
