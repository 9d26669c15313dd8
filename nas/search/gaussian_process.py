"""A mixture of Gaussian processes over hyperparameters, in plain numpy: small data, honest deviations.

One maximum-likelihood fit on ten observations is overconfident. Here several settings of length
scale, amplitude, trend and noise are tried, the likeliest are kept, and each predicts with the weight of
its likelihood (a coarse fully Bayesian treatment, as in Snoek et al. 2012, section 3.2).

Values may come from several studies. To the kernel a network in another study is a network some way off, and how far
is one more hyperparameter: studies that agree teach each other, and studies that do not keep out of each other's way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

NUM_SETTINGS = 16
NUM_KEPT = 3
NUM_ROUNDS = 4
"""After the first draw, the likeliest settings are varied so many times: likelihoods are cheap, settings matter."""

NUM_VARIED = 8
MAX_TO_CHOOSE = 150
"""Observations on which settings are compared; all of them take part in the fit itself."""

NOISE_RANGE = (0.002, 0.4)
SHIFT = 0.3
"""Middle of the prior of `Setting.shift`: correlation of two studies' values of a network is then about 0.93."""

_JITTER = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Hyperparameters, for values of mean 0 and deviation 1 and features of deviation 1.

    Attributes:
        length: scale of the Matérn kernel, in units of the root mean squared distance of two candidates.
        amplitude: variance of the Matérn part.
        trend: variance of the linear part.
        noise: variance of one observation about the truth.
        shift: how far a network is from itself in another study, where 1 is what two candidates typically are apart;
            0 with one study.
    """

    length: float
    amplitude: float
    trend: float
    noise: float
    shift: float = 0.0

    @property
    def log_prior(self) -> float:
        """Up to a constant: keeps few observations from choosing extremes."""
        length, amplitude, trend = math.log(self.length), math.log(self.amplitude), math.log(self.trend)
        surprise = (length / 0.7) ** 2 + (amplitude + 0.4) ** 2 + (trend + 1.0) ** 2
        if self.shift > 0:
            surprise += ((math.log(self.shift) - math.log(SHIFT)) / 0.8) ** 2
        return -0.5 * surprise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    setting: Setting
    weight: float
    inverse: Floats
    solved: Floats


class GaussianProcesses:
    """The mixture, fitted once.

    Args:
        features: shape (observations, features), each of about deviation 1.
        values: shape (observations,), at least one.
        rng: draws the settings.
        studies: which study each observation is of, shape (observations,); predictions are of study 0. None: all are.
    """

    def __init__(
        self, features: Floats, values: Floats, rng: np.random.Generator, studies: NDArray[np.intp] | None = None
    ) -> None:
        self._features = features
        self._is_foreign = None if studies is None else studies != 0
        self._mean = float(values.mean())
        self._scale = float(values.std()) or 1.0
        standard = (values - self._mean) / self._scale
        distances = _distances(features, features)
        products = features @ features.T / features.shape[1]
        is_apart = None if studies is None else studies[:, None] != studies[None]
        # The best decide what comes next, and the study at hand what others are worth to it: settings must fit those.
        if len(values) > MAX_TO_CHOOSE:
            order = np.argsort(-values) if studies is None else np.lexsort((-values, studies != 0))
            half = MAX_TO_CHOOSE // 2
            chosen = np.concatenate([order[:half], rng.choice(order[half:], half, replace=False)])
        else:
            chosen = np.arange(len(values))
        grid = np.ix_(chosen, chosen)
        ranked = _likeliest(
            distances[grid], products[grid], None if is_apart is None else is_apart[grid], standard[chosen], rng
        )
        weights = np.exp([likelihood - ranked[0][0] for likelihood, _ in ranked])
        self._members = []
        for (_, setting), weight in zip(ranked, weights / weights.sum(), strict=True):
            factor = _cholesky(_kernel(setting, distances, products, is_apart), setting.noise)
            inverse = np.linalg.inv(factor)  # a product a prediction, which numpy does faster than solving
            solved = inverse.T @ (inverse @ standard)
            self._members.append(_Member(setting=setting, weight=float(weight), inverse=inverse, solved=solved))

    @property
    def noise(self) -> float:
        """Believed deviation of one observation about the truth."""
        return self._scale * float(np.sqrt(sum(member.weight * member.setting.noise for member in self._members)))

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and deviation of the truth, without the noise of an observation."""
        single, known = features.astype(np.float32), self._features.astype(np.float32)  # half the time, enough digits
        distances = _distances(single, known)
        products = single @ known.T / np.float32(features.shape[1])
        norms = (features**2).sum(axis=1) / features.shape[1]
        mean, square = np.zeros(len(features)), np.zeros(len(features))
        for member in self._members:
            setting = member.setting
            cross = _kernel(setting, distances, products, self._is_foreign)
            half = member.inverse.astype(np.float32) @ cross.T
            variance = 1.0 + setting.amplitude + setting.trend * norms - (half**2).sum(axis=0)
            means = cross @ member.solved.astype(np.float32)
            mean += member.weight * means
            square += member.weight * (np.maximum(variance, 1e-9) + means**2)
        deviation = np.sqrt(np.maximum(square - mean**2, 1e-9))
        return self._mean + self._scale * mean, self._scale * deviation

    def draw(self, features: Floats, rng: np.random.Generator) -> Floats:
        """One function that could be the truth, at every candidate: shape (candidates,)."""
        member = self._members[rng.choice(len(self._members), p=[each.weight for each in self._members])]
        setting = member.setting
        products = features @ self._features.T / features.shape[1]
        cross = _kernel(setting, _distances(features, self._features), products, self._is_foreign)
        half = member.inverse @ cross.T
        own = _kernel(setting, _distances(features, features), features @ features.T / features.shape[1])
        factor = _cholesky(own - half.T @ half, 1e-6)
        return self._mean + self._scale * (cross @ member.solved + factor @ rng.normal(size=len(features)))


def _likeliest(
    distances: Floats,
    products: Floats,
    is_apart: NDArray[np.bool_] | None,
    values: Floats,
    rng: np.random.Generator,
) -> list[tuple[float, Setting]]:
    """Log likelihood and setting of the `NUM_KEPT` likeliest, by random search with rounds of variation."""

    def rated(setting: Setting) -> tuple[float, Setting]:
        return _log_likelihood(setting, distances, products, is_apart, values), setting

    ranked = [rated(_draw(rng, is_apart is not None)) for _ in range(NUM_SETTINGS)]
    for step in range(NUM_ROUNDS):
        ranked.sort(key=lambda pair: -pair[0])
        size = 0.6 / (step + 1)
        parents = [ranked[number % NUM_KEPT][1] for number in range(NUM_VARIED)]
        ranked += [rated(_varied(parent, size, rng)) for parent in parents]
    ranked.sort(key=lambda pair: -pair[0])
    return ranked[:NUM_KEPT]


def _varied(setting: Setting, size: float, rng: np.random.Generator) -> Setting:
    factors = np.exp(size * rng.normal(size=5 if setting.shift > 0 else 4))
    return Setting(
        length=float(setting.length * factors[0]),
        amplitude=float(setting.amplitude * factors[1]),
        trend=float(setting.trend * factors[2]),
        noise=float(np.clip(setting.noise * factors[3], *NOISE_RANGE)),
        shift=float(setting.shift * factors[-1]),
    )


def _draw(rng: np.random.Generator, has_shift: bool) -> Setting:
    return Setting(
        length=float(np.exp(rng.normal(0.0, 0.7))),
        amplitude=float(np.exp(rng.normal(-0.4, 1.0))),
        trend=float(np.exp(rng.normal(-1.0, 1.0))),
        noise=float(np.exp(rng.uniform(*np.log(NOISE_RANGE)))),
        shift=float(np.exp(rng.normal(np.log(SHIFT), 0.8))) if has_shift else 0.0,
    )


def _distances(one: Floats, other: Floats) -> Floats:
    """Euclidean distances in units of what two candidates typically are apart."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None] - 2.0 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0) / (2.0 * one.shape[1])))


def _kernel(setting: Setting, distances: Floats, products: Floats, is_apart: NDArray[np.bool_] | None = None) -> Floats:
    """Constant, trend and Matérn 5/2 (Rasmussen and Williams 2006, equation 4.17).

    `is_apart` says which pairs are of two studies; it broadcasts against `distances`.
    """
    if is_apart is not None:
        distances = np.hypot(distances, distances.dtype.type(setting.shift) * is_apart)
    scaled = float(np.sqrt(5.0) / setting.length) * distances
    kernel = np.exp(-scaled)
    kernel *= 1.0 + scaled * (1.0 + scaled * (1.0 / 3.0))
    kernel *= setting.amplitude
    kernel += setting.trend * products
    kernel += 1.0
    return np.asarray(kernel)


def _log_likelihood(
    setting: Setting, distances: Floats, products: Floats, is_apart: NDArray[np.bool_] | None, values: Floats
) -> float:
    try:
        factor = _cholesky(_kernel(setting, distances, products, is_apart), setting.noise)
    except np.linalg.LinAlgError:
        return -np.inf
    from scipy.linalg import solve_triangular  # a general solve would factorise the triangle once more

    half = solve_triangular(factor, values, lower=True, check_finite=False)
    return float(-0.5 * half @ half - np.log(np.diag(factor)).sum()) + setting.log_prior


def _cholesky(kernel: Floats, noise: float) -> Floats:
    return np.asarray(np.linalg.cholesky(kernel + (noise + _JITTER) * np.eye(len(kernel))))
