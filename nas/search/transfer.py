"""What scores of earlier studies say in the units of this one, from numbers alone.

An earlier study trained longer or shorter than this one, so its scores are another quantity that mostly orders
networks alike. Two things are allowed for: a straight line from its scores to ours, fitted to the networks that were
scored here and held near "no change" while they are few, and a distance between the studies that the surrogate learns
(`gaussian_process.Setting.shift`). Where the order has nothing to do with ours the line flattens and the distance
grows, so that the earlier scores fall silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.search.gaussian_process import GaussianProcesses
from nas.search.warp import Warp
from search_spaces.space import Choices

Floats = NDArray[np.floating[Any]]

WEIGHT_OF_NO_CHANGE = 3.0
"""Networks of average spread that the belief in a slope of 1 is worth."""

MIN_EARLIER = 4
"""Earlier studies with fewer scores say nothing about which networks are good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierScores:
    """What an earlier study of the same space scored: evidence of quality for this one, and no trial of it.

    Attributes:
        study: which one, for people.
        choices: what makes each network.
        qualities: of each, in that study's unit; larger is better.
    """

    study: str
    choices: tuple[Choices, ...]
    qualities: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Networks that one earlier study scored, as numbers.

    Attributes:
        features: shape (networks, features), scaled as those of the study at hand.
        qualities: larger is better, in that study's unit.
    """

    features: Floats
    qualities: Floats


class Transfer:
    """Surrogates of earlier studies, each by itself.

    Args:
        earlier: of each study what was scored; those with fewer than `MIN_EARLIER` networks are left out.
        rng: for the fits.
    """

    def __init__(self, earlier: Sequence[Earlier], rng: np.random.Generator) -> None:
        self._earlier = [each for each in earlier if len(each.qualities) >= MIN_EARLIER]
        self._warps = [Warp(each.qualities) for each in self._earlier]
        self._processes = [
            GaussianProcesses(each.features, warp.apply(each.qualities), rng)
            for each, warp in zip(self._earlier, self._warps, strict=True)
        ]

    @property
    def has_evidence(self) -> bool:
        """Whether any earlier study says anything."""
        return bool(self._processes)

    def promise(self, features: Floats) -> Floats:
        """How good the earlier studies let expect each candidate to be, in no unit; the mean over studies."""
        return np.asarray(np.mean([processes.predict(features)[0] for processes in self._processes], axis=0))

    def carried(self, features: Floats, qualities: Floats) -> list[Earlier]:
        """Every earlier study's networks with the qualities that they would have had here.

        Args:
            features, qualities: of the networks that were scored here, at least one.
        """
        carried = []
        for each, warp, processes in zip(self._earlier, self._warps, self._processes, strict=True):
            expected = warp.undo(processes.predict(features)[0])
            slope, offset = line_between(expected, qualities, spread=float(each.qualities.std()))
            carried.append(Earlier(features=each.features, qualities=offset + slope * each.qualities))
        return carried


def line_between(earlier: Floats, here: Floats, *, spread: float) -> tuple[float, float]:
    """Slope and offset from earlier qualities to ours: least squares, drawn towards a slope of 1, never falling.

    Args:
        earlier: what the earlier study says of some networks.
        here: what they came to.
        spread: standard deviation of the earlier study's qualities.

    >>> slope, offset = line_between(np.array([0.5, 0.6]), np.array([0.7, 0.8]), spread=0.05)
    >>> round(slope, 3), round(offset, 3)
    (1.0, 0.2)
    """
    from_mean = earlier - earlier.mean()
    hold = WEIGHT_OF_NO_CHANGE * spread**2
    total = float(from_mean @ from_mean) + hold
    slope = 1.0 if total <= 0 else max(0.0, (float(from_mean @ (here - here.mean())) + hold) / total)
    return slope, float(here.mean() - slope * earlier.mean())
