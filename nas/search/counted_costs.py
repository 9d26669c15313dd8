"""Costs that follow from a candidate alone: nothing has to be measured or learned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nas.search.cost_belief import Forecast
from search_spaces.candidate import Candidate
from search_spaces.layers import num_params


class CountedParams:
    """Parameters, counted once a candidate."""

    def __init__(self) -> None:
        self._known: dict[Candidate, int] = {}

    def forecast(self, candidates: Sequence[Candidate]) -> Forecast:
        """Exact numbers."""
        for candidate in candidates:
            if candidate not in self._known:
                self._known[candidate] = num_params(candidate)
        values = np.array([self._known[candidate] for candidate in candidates], dtype=float)
        return Forecast(values=values, deviations=np.zeros(len(values)))

    def learn(self, candidates: Sequence[Candidate], measured: NDArray[np.float64]) -> None:
        """Nothing: a count is a count."""
