"""What a search believes of a cost before it is measured: a forecast where there is one, mended by every measurement.

A cost model that was fitted on twenty networks is off by some percent, and off in the same direction
for similar networks; a search measures dozens more anyway. So the ratio of measured to forecast is learned
as it goes. Without a forecast the cost itself is learned, from the same features as the quality.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.search.gaussian_process import GaussianProcesses

Floats = NDArray[np.float64]

MIN_OBSERVATIONS = 4
"""Fewer measurements than this say nothing about how a cost depends on the features."""

MAX_OBSERVATIONS = 300
"""The latest that are learned from: costs are smooth, and a fit grows with the cube of their number."""

UNKNOWN_DEVIATION = 0.5
"""Of a cost nothing is known about, as a share of the mean of what was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a cost model says of some candidates, before anything is measured.

    Attributes:
        values: in the cost's base unit, above 0; shape (candidates,).
        deviations: standard deviations of the same shape; 0 for what is known exactly.
    """

    values: Floats
    deviations: Floats


def believe(
    features: Floats,
    forecast: Forecast | None,
    known_features: Floats,
    known_forecast: Forecast | None,
    measured: Floats,
    rng: np.random.Generator,
) -> Forecast:
    """The belief about candidates from their forecasts and what was measured of others.

    Args:
        features: of the candidates, shape (candidates, features), scaled to deviations of about 1.
        forecast: of the candidates; None where there is no cost model.
        known_features, known_forecast: of the networks that were measured.
        measured: what was seen of them, in the order in which it was seen.
        rng: for the fit.
    """
    if forecast is not None and not forecast.deviations.any():
        return forecast
    latest = slice(max(0, len(measured) - MAX_OBSERVATIONS), None)
    if len(measured) < MIN_OBSERVATIONS:
        return forecast if forecast is not None else _ignorance(len(features), measured)
    if forecast is None or known_forecast is None:
        processes = GaussianProcesses(known_features[latest], measured[latest], rng)
        means, deviations = processes.predict(features)
        floor = 0.3 * float(measured.min())  # a straight line through latencies may run below zero
        return Forecast(values=np.maximum(means, floor), deviations=np.hypot(deviations, processes.noise))
    ratios = np.log(measured[latest] / known_forecast.values[latest])
    processes = GaussianProcesses(known_features[latest], ratios, rng)
    means, deviations = processes.predict(features)
    values = forecast.values * np.exp(means)
    return Forecast(values=values, deviations=values * np.minimum(np.hypot(deviations, processes.noise), 1.0))


def _ignorance(num_candidates: int, measured: Floats) -> Forecast:
    middle = float(measured.mean()) if len(measured) else 1.0
    return Forecast(
        values=np.full(num_candidates, middle), deviations=np.full(num_candidates, UNKNOWN_DEVIATION * middle)
    )
