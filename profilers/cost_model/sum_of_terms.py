"""Bayesian regression of latencies on terms: robust, averaged over what is not known beforehand.

A latency is a sum of terms times an error: `y = sum(beta_j x_j) (1 + e)`. The error of each measurement is
drawn from a mixture of a narrow, a wider and a very wide normal, so that a value that interference or a
quirk of the compiler produced pulls at nothing. Coefficients have normal priors (`Term.share`, `.spread`).
The narrow width, how far details may depart from totals, and the way the device runs networks are not
known: every combination is a member, fitted by variational inference (Tipping and Lawrence 2005 for the
scale mixtures; Bishop 2006, chapter 10), and members are averaged by their evidence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profilers.cost_model.terms import Encoded, Variant

WIDTHS = (0.01, 0.02, 0.04, 0.08, 0.16)
"""Relative widths of the narrow error: 1% is about the best that repeated whole-network timings agree."""
WIDER = 2.5
VERY_WIDE = 0.8
ERROR_SHARES = (0.8, 0.15, 0.05)
"""How often an error is narrow, wider, very wide."""
SPREADS = ({"constant": 1.0, "cost": 1.0, "detail": 1.0}, {"constant": 1.0, "cost": 0.7, "detail": 2.0},
           {"constant": 1.7, "cost": 0.35, "detail": 5.0})  # fmt: skip
"""Priors that are tried: totals explain it all, both count, every kind of layer is a law of its own."""
NUM_ROUNDS = 20
_LEAST = 0.1
"""Predictions are kept above this share of the median while fitting: errors are relative to them."""

Coefficients = tuple[np.ndarray, ...]
"""One array a variant, in units of the median latency; the prediction is the sum over all variants."""


def fit_sum(encoded: Encoded, latencies: np.ndarray, is_used: np.ndarray | None = None) -> Coefficients:
    """Coefficients of the average over all members.

    Args:
        encoded: the architectures that were measured.
        latencies: theirs, in units of a typical latency.
        is_used: which of them take part; None: all.
    """
    used = np.ones(len(latencies), bool) if is_used is None else is_used
    fitted = [_fit_variant(variant, latencies[used], used) for variant in encoded.variants]
    evidence = np.concatenate([each for _, each in fitted])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    parts = np.split(weights, np.cumsum([len(each) for _, each in fitted])[:-1])
    return tuple(part @ betas for part, (betas, _) in zip(parts, fitted, strict=True))


def predict_sum(encoded: Encoded, coefficients: Sequence[np.ndarray]) -> np.ndarray:
    """Predictions in units of the median latency; (num_architectures,) or (num_architectures, num_fits)."""
    total = sum(
        variant.values @ np.asarray(beta).T for variant, beta in zip(encoded.variants, coefficients, strict=True)
    )
    result: np.ndarray = np.maximum(total, 0.02)
    return result


def _fit_variant(variant: Variant, y: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (num_members, num_terms) and evidence (num_members,) of one variant."""
    x = variant.values[used]
    mean = np.array([term.share for term in variant.terms])
    spreads = np.array([[term.spread * each[term.kind] for term in variant.terms] for each in SPREADS])
    precision = np.repeat(1 / spreads**2, len(WIDTHS), axis=0)  # (members, terms)
    narrow = np.tile(WIDTHS, len(SPREADS))
    widths = np.stack([narrow, WIDER * narrow, np.maximum(VERY_WIDE, 4 * narrow)], 1)[:, None, :]  # (members, 1, 3)
    log_share = np.log(ERROR_SHARES)
    predicted = np.ones((len(narrow), len(y)))
    trust = np.full_like(predicted, 1 / 0.15**2)  # of each measurement: expected 1 / width**2
    for _ in range(NUM_ROUNDS):
        beta, half, x_half = _posterior(x, y, trust / predicted**2, precision, mean)
        fitted = beta @ x.T
        predicted = np.maximum(0.4 * predicted + 0.6 * fitted, _LEAST)
        squared = ((y - fitted) ** 2 + x_half) / predicted**2
        log_odds = log_share - np.log(widths) - squared[..., None] / (2 * widths**2)
        log_odds -= log_odds.max(-1, keepdims=True)
        odds = np.exp(log_odds)
        odds /= odds.sum(-1, keepdims=True)
        trust = (odds / widths**2).sum(-1)
    weight = trust / predicted**2
    beta, half, _ = _posterior(x, y, weight, precision, mean)
    misfit = (weight * (y - beta @ x.T) ** 2).sum(1) + (precision * (beta - mean) ** 2).sum(1)
    complexity = np.linalg.slogdet(half)[1] - np.log(precision).sum(1)
    entropy = (odds * (np.log(predicted[..., None] * widths) + np.log(odds + 1e-300) - log_share)).sum((1, 2))
    return beta, -0.5 * (misfit + complexity) - entropy


def _posterior(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, precision: np.ndarray, mean: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean (members, terms), precision matrix, and variance of each fitted value (members, samples)."""
    weighted = weight[:, :, None] * x
    matrix = np.einsum("nk,mnl->mkl", x, weighted) + np.eye(x.shape[1]) * precision[:, None, :]
    right = np.einsum("mnk,n->mk", weighted, y) + precision * mean
    solved = np.linalg.solve(
        matrix, np.concatenate([right[..., None], np.broadcast_to(x.T, (len(weight), *x.T.shape))], 2)
    )
    return solved[..., 0], matrix, np.einsum("nk,mkn->mn", x, solved[..., 1:])
