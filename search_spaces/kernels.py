"""Which compiled kernels a whole space can need: what tuning the space, not the candidate, amounts to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from search_spaces.layer import Layer, Signature

HEAVY_MACS = 10_000
"""A kernel is heavy above this many MACs: about 1 us at the 10 GMAC/s of one tuned x86 core, the cost of
calling a kernel at all, so tuning a lighter one cannot pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One distinct kernel of a space, and how much random candidates lean on it.

    Attributes:
        signature: what makes it distinct, see `Layer.signature`.
        num_macs: multiply-accumulates of one call.
        expected_uses: mean number of layers of a uniformly random candidate that run it.
        work_share: its share of the expected MACs of a random candidate, 0 to 1.
    """

    signature: Signature
    num_macs: int
    expected_uses: float
    work_share: float


@runtime_checkable
class CountedSpace(Protocol):
    """A space that can say how large it is and which kernels it needs, without enumerating itself."""

    def num_candidates(self) -> int:
        """The exact number of distinct candidates."""
        ...

    def kernels(self) -> tuple[Kernel, ...]:
        """Every distinct kernel above `HEAVY_MACS`, the largest share of the work first."""
        ...


def heavy_kernels(expected_layers: Iterable[tuple[float, Layer]]) -> tuple[Kernel, ...]:
    """The distinct heavy kernels among layers and the mean number of times a candidate has each.

    `expected_layers` must be complete: shares are of the sum of all MACs, light layers included.

    >>> from search_spaces.layer import matrix_product
    >>> light = matrix_product("a", batch=1, rows=10, inner=10, columns=10)
    >>> heavy = matrix_product("b", batch=1, rows=30, inner=30, columns=30)
    >>> [(kernel.num_macs, kernel.expected_uses) for kernel in heavy_kernels([(1, light), (0.5, heavy), (1, heavy)])]
    [(27000, 1.5)]
    """
    uses: dict[Signature, float] = {}
    macs: dict[Signature, int] = {}
    for expected, layer in expected_layers:
        uses[layer.signature] = uses.get(layer.signature, 0.0) + expected
        macs[layer.signature] = layer.num_macs
    total = sum(uses[signature] * macs[signature] for signature in uses)
    kernels = [
        Kernel(
            signature=signature,
            num_macs=macs[signature],
            expected_uses=uses[signature],
            work_share=uses[signature] * macs[signature] / total,
        )
        for signature in uses
        if macs[signature] > HEAVY_MACS
    ]
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.work_share, kernel.signature[0])))
