"""Intervals that hold without assumptions on the errors: CV+ (Barber et al. 2021), scaled by size.

Each fold is predicted by a fit that never saw it; the errors made there, laid around what those fits say of
a new architecture, give the interval. Errors are logarithms of ratios, divided by a width that may grow or
shrink with the size of the network: on some devices small networks scatter most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MAX_FOLDS = 20
"""With up to as many samples each is a fold of its own (jackknife+)."""
_SHRINKAGE = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of held-out samples.

    Attributes:
        folds: the fold of each sample, which is also the number of the fit that never saw it.
        scaled: log(measured / predicted), divided by `width` of the prediction.
        exponent: how the width changes with the prediction.
    """

    folds: np.ndarray
    scaled: np.ndarray
    exponent: float

    def width(self, predicted: np.ndarray) -> np.ndarray:
        """Relative width of errors of networks of the predicted size (1 is typical)."""
        result: np.ndarray = np.clip(predicted, 0.2, 5.0) ** self.exponent
        return result


def fold_of_each(num_samples: int) -> np.ndarray:
    """The fold of each sample.

    >>> fold_of_each(5).tolist(), int(fold_of_each(50).max())
    ([0, 1, 2, 3, 4], 19)
    """
    return np.arange(num_samples) % MAX_FOLDS


def held_out_errors(measured: np.ndarray, predicted: np.ndarray) -> Errors:
    """Errors from measurements and the predictions of fits that had not seen them, in typical latencies."""
    logs = np.log(measured / predicted)
    size = np.log(np.clip(predicted, 0.2, 5.0))
    size = size - size.mean()
    magnitude = np.log(np.minimum(np.abs(logs), 1.0) + 0.01)
    exponent = float(np.clip((size @ (magnitude - magnitude.mean())) / (size @ size + _SHRINKAGE), -1.0, 0.5))
    plain = Errors(folds=fold_of_each(len(logs)), scaled=logs, exponent=exponent)
    return Errors(folds=plain.folds, scaled=logs / plain.width(predicted), exponent=exponent)


def two_sided(errors: Errors, predicted_by_fold: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals that hold the latency with probability `level`.

    With few samples the errors of both signs are pooled: their tails cannot be told apart.

    Args:
        errors: from `held_out_errors`.
        predicted_by_fold: (num_architectures, num_folds).
        level: for instance 0.9.
    """
    num = len(errors.scaled)
    tail = (1 - level) / 2
    fits = predicted_by_fold[:, errors.folds]
    width = errors.width(fits)
    if tail * (num + 1) >= 2:
        ends = np.sort(fits * np.exp(errors.scaled * width), axis=1)
        return _order(ends, tail), _order(ends, 1 - tail)
    magnitude = np.abs(errors.scaled)
    return (
        _order(np.sort(fits * np.exp(-magnitude * width), axis=1), 1 - level),
        _order(np.sort(fits * np.exp(magnitude * width), axis=1), level),
    )


def upper_end(errors: Errors, predicted_by_fold: np.ndarray, level: float) -> np.ndarray:
    """What the latency stays below with probability `level`."""
    fits = predicted_by_fold[:, errors.folds]
    return _order(np.sort(fits * np.exp(errors.scaled * errors.width(fits)), axis=1), level)


def share_within(errors: Errors, predicted_by_fold: np.ndarray, maximum: float) -> np.ndarray:
    """The conformal probability that the latency is at most `maximum`; never quite 0 or 1."""
    fits = predicted_by_fold[:, errors.folds]
    ends = fits * np.exp(errors.scaled * errors.width(fits))
    result: np.ndarray = ((ends <= maximum).sum(1) + 0.5) / (ends.shape[1] + 1)
    return result


def _order(ends: np.ndarray, level: float) -> np.ndarray:
    """What a new value stays below with probability `level`, between order statistics; the outermost at most."""
    num = ends.shape[1]
    rank = float(np.clip(level * (num + 1), 1, num)) - 1
    below = int(rank)
    above = min(below + 1, num - 1)
    result: np.ndarray = ends[:, below] + (rank - below) * (ends[:, above] - ends[:, below])
    return result
