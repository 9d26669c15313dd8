"""Which of a pool of candidates to try next, from numbers alone: features, believed costs, known results.

First a few candidates spread over the believed cost, so that the whole front is seen at once; then
the one with the largest expected gain in hypervolume, in turn with the best one of a function drawn from
what the surrogate holds possible (Thompson sampling), which looks where the mean alone would not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.search.expected_gain import CostFront, expected_gain, gain
from nas.search.gaussian_process import GaussianProcesses
from nas.search.transfer import Earlier, Transfer
from nas.search.warp import Warp

Floats = NDArray[np.floating[Any]]

NUM_SPREAD = 8
"""Results before the surrogate is asked."""

SHARE_DRAWN = 0.5
"""Of the proposals that follow a drawn function instead of the mean."""

MAX_OBSERVATIONS = 400
"""Results that the surrogate learns from, half of them the best: its cost grows with their cube."""

NUM_DRAWN = 400
"""Candidates at which a function is drawn: those of the largest expected gain."""

BEYOND = 0.1
"""Hypervolume is counted up to so much beyond the budget, as a share of the costs there are: up to the budget itself
the best network within it adds next to nothing, as it is seldom much cheaper, and a search does not look for it."""

MIN_WITHIN = 0.25
"""Candidates that meet the budgets with a smaller probability are not proposed while others are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Networks with a quality.

    Attributes:
        features: shape (networks, features).
        qualities: larger is better.
        costs: of the costs that are objectives, shape (networks, costs).
        is_within: whether each meets every budget.
    """

    features: Floats
    qualities: Floats
    costs: Floats
    is_within: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Candidates that may be proposed: none of them is known.

    Attributes:
        features: shape (candidates, features).
        costs: believed costs that are objectives, shape (candidates, costs).
        within: probability that a candidate meets every budget.
    """

    features: Floats
    costs: Floats
    within: Floats

    def at(self, indices: NDArray[np.intp]) -> Pool:
        """The candidates at these positions."""
        return Pool(
            features=self.features[indices],
            costs=self.costs[indices],
            within=self.within[indices],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The candidate to try, and what is expected of it.

    Attributes:
        index: its position in the pool.
        gain: largest expected gain in hypervolume, as a share of what the best quality at the lowest costs
            would cover; None during the starting design.
    """

    index: int
    gain: float | None


class Proposer:
    """What the results so far say about any pool of candidates.

    Args:
        known: results so far; the latest fits are as good as what is passed in here.
        pending: features and believed costs of candidates that other workers are at; they are taken to
            come out as the surrogate expects, so that workers do not try the same thing.
        num_tried: candidates tried so far, whatever became of them; the starting design goes by it.
        lowest: smallest costs that count; `maximum`: the costs from which hypervolume does not, usually the budgets.
        worst: the quality from which hypervolume counts; None: the worst seen.
        earlier: what earlier studies of the space scored: evidence of quality, never results.
        rng: decides ties and draws; the same state gives the same answers.
    """

    def __init__(
        self,
        known: Known,
        pending: tuple[Floats, Floats],
        *,
        num_tried: int,
        lowest: Floats,
        maximum: Floats,
        worst: float | None,
        earlier: Sequence[Earlier] = (),
        rng: np.random.Generator,
    ) -> None:
        self._rng = rng
        self._num_tried = num_tried
        self._processes: GaussianProcesses | None = None
        self._transfer = Transfer(earlier, rng)
        if len(known.qualities) < NUM_SPREAD:
            return
        self._warp, self._processes = self._learn(known, _learned(known, rng), rng)
        maximum = maximum + BEYOND * np.maximum(maximum - lowest, 0.0)
        self._floor = float(known.qualities.min()) if worst is None else worst
        qualities, costs = known.qualities[known.is_within], known.costs[known.is_within]
        if len(pending[0]):
            means, _ = self._processes.predict(pending[0])
            qualities, costs = np.append(qualities, self._warp.undo(means)), np.vstack([costs, pending[1]])
        self._front = CostFront.of(qualities, costs, worst=self._floor, lowest=lowest, maximum=maximum)
        ideal = np.array([float(known.qualities.max())])
        empty = CostFront.of(ideal[:0], costs[:0], worst=self._floor, lowest=lowest, maximum=maximum)
        self._whole = float(gain(empty, ideal, lowest[None])[0])

    def _learn(
        self, known: Known, learned: NDArray[np.intp], rng: np.random.Generator
    ) -> tuple[Warp, GaussianProcesses]:
        """Fits the surrogate to these results and to what earlier studies have to say beside them."""
        features, qualities, studies = known.features[learned], known.qualities[learned], None
        room = MAX_OBSERVATIONS - len(learned)
        if self._transfer.has_evidence and room > 0:
            carried = self._transfer.carried(features, qualities)
            studies = np.repeat(
                np.arange(1 + len(carried)), [len(qualities), *(len(each.qualities) for each in carried)]
            )
            features = np.vstack([features, *(each.features for each in carried)])
            qualities = np.concatenate([qualities, *(each.qualities for each in carried)])
            others = rng.permutation(np.arange(len(learned), len(qualities)))[:room]
            kept = np.concatenate([np.arange(len(learned)), np.sort(others)])
            features, qualities, studies = features[kept], qualities[kept], studies[kept]
        warp = Warp(qualities)
        return warp, GaussianProcesses(features, warp.apply(qualities), rng, studies)

    @property
    def has_surrogate(self) -> bool:
        """False during the starting design."""
        return self._processes is not None

    def expected(self, pool: Pool) -> Floats:
        """Expected gain in hypervolume of each candidate; only with a surrogate."""
        assert self._processes is not None
        means, deviations = self._processes.predict(pool.features)
        gains = expected_gain(self._front, means, deviations, self._warp.undo, pool.costs)
        return pool.within * gains

    def choose(self, pool: Pool) -> Choice:
        """The candidate to try next, out of at least one."""
        candidates = np.flatnonzero(pool.within >= min(MIN_WITHIN, float(pool.within.max())))
        if self._processes is None:
            return Choice(index=self._spread(pool, candidates), gain=None)
        likely = pool.at(candidates)
        expected = self.expected(likely)
        best = int(np.argmax(expected))
        if self._rng.random() < SHARE_DRAWN:
            top = np.argsort(-expected, kind="stable")[:NUM_DRAWN]
            drawn = self._warp.undo(self._processes.draw(likely.features[top], self._rng))
            best = int(top[np.argmax(likely.within[top] * gain(self._front, drawn, likely.costs[top]))])
        return Choice(index=int(candidates[best]), gain=float(expected.max()) / max(self._whole, 1e-300))

    def _spread(self, pool: Pool, candidates: NDArray[np.intp]) -> int:
        """A likely candidate about the next of equal shares of the first cost, over and over again.

        Earlier studies say which one, where there are any; else it is drawn.
        """
        number = self._num_tried % NUM_SPREAD
        likely = candidates[pool.within[candidates] >= min(0.5, float(pool.within[candidates].max()))]
        order = likely[np.argsort(pool.costs[likely, 0], kind="stable")]
        middle = int((number + 0.5) / NUM_SPREAD * len(order))
        width = max(1, len(order) // (2 * NUM_SPREAD))
        share = order[max(0, middle - width) : middle + width + 1]
        if self._transfer.has_evidence:
            return int(share[np.argmax(self._transfer.promise(pool.features[share]))])
        return int(self._rng.choice(share))


def _learned(known: Known, rng: np.random.Generator) -> NDArray[np.intp]:
    """The results the surrogate learns from: all, or the best half and a random rest."""
    count = len(known.qualities)
    if count <= MAX_OBSERVATIONS:
        return np.arange(count)
    order = np.argsort(-known.qualities, kind="stable")
    best, rest = order[: MAX_OBSERVATIONS // 2], order[MAX_OBSERVATIONS // 2 :]
    return np.sort(np.concatenate([best, rng.choice(rest, MAX_OBSERVATIONS // 2, replace=False)]))
