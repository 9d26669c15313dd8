"""The scale on which qualities are learned: differences near the best count, those among poor networks hardly do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

HEADROOM = 0.25
"""How far above the best quality seen the warp puts the best possible, in units of best minus median."""


class Warp:
    """Stretches qualities near the best, where differences count, and squeezes the poor ones.

    Minus the logarithm of the distance to a little above the best seen: accuracies then spread about
    evenly, and networks that learned nothing do not decide the fit.
    """

    def __init__(self, qualities: Floats) -> None:
        self._range = max(float(qualities.max() - np.median(qualities)), 1e-9)
        self._ceiling = float(qualities.max()) + HEADROOM * self._range

    def apply(self, qualities: Floats) -> Floats:
        """Warped qualities; unbounded above, while `undo` stays below the ceiling."""
        return np.asarray(-np.log((self._ceiling - qualities) / self._range))

    def undo(self, warped: Floats) -> Floats:
        """The inverse of `apply`."""
        return np.asarray(self._ceiling - self._range * np.exp(-warped))
