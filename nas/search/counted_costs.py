"""Costs that follow from a candidate alone: nothing has to be measured or learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nas.search.cost_belief import Forecast
from search_spaces.candidate import Candidate
from search_spaces.layers import num_params, state_bytes


class CountedCost:
    """A number that a function of the candidate gives, asked for once a candidate."""

    def __init__(self, count: Callable[[Candidate], int]) -> None:
        self._count = count
        self._known: dict[Candidate, int] = {}

    def forecast(self, candidates: Sequence[Candidate]) -> Forecast:
        """Exact numbers."""
        for candidate in candidates:
            if candidate not in self._known:
                self._known[candidate] = self._count(candidate)
        values = np.array([self._known[candidate] for candidate in candidates], dtype=float)
        return Forecast(values=values, deviations=np.zeros(len(values)))

    def learn(self, candidates: Sequence[Candidate], measured: NDArray[np.float64]) -> None:
        """Nothing: a count is a count."""


def counted_params() -> CountedCost:
    """Parameters."""
    return CountedCost(num_params)


def counted_state(phase: str) -> CountedCost:
    """Bytes of state after a phase, of a space whose networks keep one."""

    def count(candidate: Candidate) -> int:
        size = state_bytes(candidate, phase)
        assert size is not None, "a budget on the state of a space without one is refused when the study begins"
        return size

    return CountedCost(count)
