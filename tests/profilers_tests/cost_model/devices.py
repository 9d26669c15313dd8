"""Made-up devices whose laws are known, for tests of cost models."""

from __future__ import annotations

import numpy as np

from profilers.cost_model.terms import Encoded, Term, Variant

TERMS = (
    Term(name="call", kind="constant", share=0.3, spread=0.3),
    Term(name="work", kind="cost", share=0.5, spread=0.4),
    Term(name="bytes", kind="cost", share=0.2, spread=0.3),
    Term(name="pools", kind="detail", share=0.0, spread=0.1),
)
LAW = np.array([0.2, 0.6, 0.1, 0.1])


def architectures(num: int, seed: int = 0) -> Encoded:
    """Random architectures that a device may run in either of two ways."""
    generator = np.random.default_rng(seed)
    everything = np.column_stack([np.ones(num), generator.gamma(4, 0.25, (num, 3))])
    pruned = everything * np.column_stack([np.ones(num), generator.choice([0.3, 1.0], (num, 3))])
    return Encoded(
        encoding="made-up-v1",
        variants=(
            Variant(name="everything runs", terms=TERMS, values=everything),
            Variant(name="some is dropped", terms=TERMS, values=pruned),
        ),
        macs=everything[:, 1],
        counts=everything[:, 1:],
    )


def latencies(
    encoded: Encoded, *, way: int = 0, error: float = 0.03, seed: int = 1, scale_ms: float = 7.0
) -> np.ndarray:
    """Latencies of a device that runs architectures the given way, with relative normal errors."""
    generator = np.random.default_rng(seed)
    clean = scale_ms * encoded.variants[way].values @ LAW
    result: np.ndarray = clean * np.exp(error * generator.normal(size=len(encoded)))
    return result
