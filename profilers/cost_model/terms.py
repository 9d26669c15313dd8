"""What a latency is a sum of: named terms with what physics expects of each, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from profilers.errors import ProfilerError

TermKind = Literal["constant", "cost", "detail"]


class CostModelError(ProfilerError):
    """Samples or a saved model that cannot be used: says what was seen and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One summand of a latency.

    Attributes:
        name: what it stands for.
        kind: `constant` is paid by every architecture; `cost` is a physical total (operations, bytes,
            calls); `detail` is one kind of layer's departure from what the totals say.
        share: the share of a typical latency that is expected of it before anything was measured.
        spread: how far from `share` it may well be (standard deviation).
    """

    name: str
    kind: TermKind
    share: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way in which a device may run an architecture.

    A compiler drops layers whose output nobody reads, an interpreter runs them all: which of the two
    a device does is learned from measurements, not assumed.

    Attributes:
        name: of the way.
        terms: its summands.
        values: (num_architectures, num_terms); 1 is what a typical architecture has of a term.
    """

    name: str
    terms: tuple[Term, ...]
    values: np.ndarray

    def __post_init__(self) -> None:
        assert self.values.shape[1:] == (len(self.terms),), (self.name, self.values.shape, len(self.terms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Architectures as numbers.

    Attributes:
        encoding: name and version of the encoding; a saved model refuses any other.
        variants: ways of running them; all describe the same architectures in the same order.
        macs: multiply-accumulates of each, for the baseline; 1 is typical.
        counts: (num_architectures, num_kinds) how many layers of each kind, for the baseline.
    """

    encoding: str
    variants: tuple[Variant, ...]
    macs: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.macs)

    def take(self, rows: np.ndarray | Sequence[int]) -> Encoded:
        """Some of the architectures, in the order of `rows`."""
        at = np.asarray(rows, dtype=int)
        return Encoded(
            encoding=self.encoding,
            variants=tuple(Variant(name=each.name, terms=each.terms, values=each.values[at]) for each in self.variants),
            macs=self.macs[at],
            counts=self.counts[at],
        )


def with_other_device(encoded: Encoded, predicted_ms: np.ndarray) -> Encoded:
    """Adds another device's predictions: one more variant, in which a latency is mostly a multiple of them.

    Few-shot transfer as in HELP (Lee et al. 2021), with the old device's predictions as a term. The
    variants without it stay, so that an unlike device does no harm: measurements decide between them.

    Args:
        encoded: the architectures.
        predicted_ms: what the other device's model says of each; above zero.
    """
    typical = np.median(predicted_ms)
    if len(predicted_ms) != len(encoded) or not (np.isfinite(typical) and typical > 0):
        raise CostModelError(
            f"{len(predicted_ms)} predictions of another device for {len(encoded)} architectures, median {typical};"
            " one above zero is needed for each"
        )
    scale = predicted_ms / typical
    added = Term(name="other device", kind="cost", share=1.0, spread=0.3)
    helped = [
        Variant(
            name=f"{each.name} beside another device",
            terms=(*(Term(name=t.name, kind=t.kind, share=0.0, spread=t.spread / 2) for t in each.terms), added),
            values=np.column_stack([each.values, scale]),
        )
        for each in encoded.variants
    ]
    return Encoded(
        encoding=f"{encoded.encoding} beside another device",
        variants=(*encoded.variants, *helped),
        macs=encoded.macs,
        counts=encoded.counts,
    )
