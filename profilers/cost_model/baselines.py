"""What a cost model has to beat: multiply-accumulates alone, and a ridge on the numbers of layers."""

from __future__ import annotations

from typing import Literal

import numpy as np

from profilers.cost_model.terms import Encoded

BaselineName = Literal["macs", "counts"]
BASELINES: tuple[BaselineName, ...] = ("macs", "counts")
RIDGE_PENALTY = 1.0
"""scikit-learn's default for standardised columns."""


def baseline_values(encoded: Encoded, name: BaselineName) -> np.ndarray:
    """The columns that a baseline looks at, a constant first."""
    columns = encoded.macs[:, None] if name == "macs" else encoded.counts
    return np.column_stack([np.ones(len(encoded)), columns])


def fit_baseline(values: np.ndarray, latencies: np.ndarray, name: BaselineName) -> np.ndarray:
    """Coefficients of the columns of `baseline_values`: least squares on MACs, a ridge on counts.

    >>> fit_baseline(np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]), np.array([2.0, 4.0, 6.0]), "macs").round(3)
    array([0., 2.])
    """
    x, mean = values[:, 1:], latencies.mean()
    centre, scale = x.mean(0), np.maximum(x.std(0), 1e-9)
    standard = (x - centre) / scale
    penalty = (RIDGE_PENALTY if name == "counts" else 1e-9) * np.eye(x.shape[1])
    slopes = np.linalg.solve(standard.T @ standard + penalty, standard.T @ (latencies - mean)) / scale
    return np.concatenate([[mean - slopes @ centre], slopes])


def predict_baseline(encoded: Encoded, coefficients: np.ndarray, name: BaselineName) -> np.ndarray:
    """Predictions in the units of the fit; (num_architectures,) or (num_architectures, num_fits)."""
    result: np.ndarray = np.maximum(baseline_values(encoded, name) @ coefficients.T, 0.02)
    return result
