"""The cost models of a study as the sampler sees them: one for each timed phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nas.search.cost_belief import UNKNOWN_DEVIATION, Forecast
from search_spaces.candidate import Candidate

if TYPE_CHECKING:
    from nas.search.screening import PhaseModel

NORMAL_90 = 1.645
"""Deviations of a normal distribution on either side within which 90% lie."""


class LatencyForecast:
    """Latencies of one phase from the model that also screens; it fits itself to the ledger's measurements."""

    def __init__(self, model: PhaseModel) -> None:
        self._model = model

    def learn(self, candidates: Sequence[Candidate], measured: NDArray[np.float64]) -> None:
        """Nothing: the model reads the ledger."""

    def forecast(self, candidates: Sequence[Candidate]) -> Forecast | None:
        """None while too little was measured for a model."""
        seen = self._model.predict(candidates)
        if seen is None:
            return None
        deviations = (seen.upper_ms - seen.lower_ms) / (2 * NORMAL_90)
        floor = 1e-3 * seen.latency_ms
        ceiling = UNKNOWN_DEVIATION * seen.latency_ms
        return Forecast(values=seen.latency_ms, deviations=np.clip(deviations, floor, ceiling))
