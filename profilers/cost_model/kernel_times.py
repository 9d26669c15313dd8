"""Known times of single kernels, and what they say of kernels that nobody has timed yet.

A term of a latency: the sum, over a network's layers, of the seconds of the kernel that serves each. The times come
from outside as plain data, from a tuning database for instance. A layer whose kernel is not known is estimated from the
known ones of its kind by work and bytes; it never counts as nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profilers.cost_model.terms import CostModelError
from search_spaces.layer import Layer, Signature

_LEAST_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKernel:
    """One kernel that was timed.

    Attributes:
        signature: of the layers that it serves.
        kind: of those layers.
        num_macs: multiply-accumulates of one call.
        num_bytes: activations and weights that one call reads and writes.
        seconds: of one call.
    """

    signature: Signature
    kind: str
    num_macs: int
    num_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """The kernels of a device that were timed; `of` makes one.

    Attributes:
        kernels: by signature, each once.
    """

    kernels: tuple[KnownKernel, ...]
    _seconds: dict[Signature, float] = field(init=False, repr=False, compare=False)
    _rates: dict[str | None, tuple[float, float]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.kernels:
            raise CostModelError("no kernel with a known time; leave the term out instead")
        wrong = [each for each in self.kernels if not (math.isfinite(each.seconds) and each.seconds > 0)]
        if wrong:
            raise CostModelError(
                f"kernel {wrong[0].signature} takes {wrong[0].seconds} s ({len(wrong)} such); allowed: finite, above 0"
            )
        object.__setattr__(self, "_seconds", {each.signature: each.seconds for each in self.kernels})
        kinds = sorted({each.kind for each in self.kernels})
        rates: dict[str | None, tuple[float, float]] = {
            kind: _rate([each for each in self.kernels if each.kind == kind]) for kind in kinds
        }
        object.__setattr__(self, "_rates", {**rates, None: _rate(self.kernels)})

    @classmethod
    def of(cls, layers: Iterable[Layer], seconds: Mapping[Signature, float]) -> KernelTimes | None:
        """The times of those layers that `seconds` knows; None when it knows none of them.

        Raises:
            CostModelError: a time that is none.
        """
        known = {layer.signature: layer for layer in layers if layer.signature in seconds}
        if not known:
            return None
        return cls(
            kernels=tuple(
                KnownKernel(
                    signature=signature,
                    kind=layer.kind,
                    num_macs=layer.num_macs,
                    num_bytes=_num_bytes(layer),
                    seconds=float(seconds[signature]),
                )
                for signature, layer in sorted(known.items(), key=lambda pair: repr(pair[0]))
            )
        )

    @property
    def digest(self) -> str:
        """What tells these times from any others."""
        return hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()[:12]

    def seconds_of(self, layers: Sequence[Layer]) -> float:
        """The sum over layers: known times, and estimates for the others."""
        known = self._seconds
        return sum(known.get(layer.signature) or self._estimate(layer) for layer in layers)

    def known_share(self, layers: Sequence[Layer]) -> float:
        """The share of the work of these layers, 0 to 1, that is done in kernels with a known time."""
        total = sum(layer.num_macs for layer in layers)
        known = sum(layer.num_macs for layer in layers if layer.signature in self._seconds)
        return known / total if total else 0.0

    def to_json(self) -> list[list[Any]]:
        """Plain JSON that `from_json` reads back."""
        return [[list(each.signature), each.kind, each.num_macs, each.num_bytes, each.seconds] for each in self.kernels]

    @classmethod
    def from_json(cls, rows: Sequence[Sequence[Any]]) -> KernelTimes:
        """The inverse of `to_json`; anything else raises `TypeError`, `ValueError` or `CostModelError`."""
        kernels = []
        for signature, kind, num_macs, num_bytes, seconds in rows:
            if not all(isinstance(part, str | int) for part in signature):
                raise ValueError(f"signature {signature!r} is not made of words and whole numbers")
            kernels.append(
                KnownKernel(
                    signature=tuple(signature), kind=str(kind), num_macs=int(num_macs), num_bytes=int(num_bytes),
                    seconds=float(seconds),
                )
            )  # fmt: skip
        return cls(kernels=tuple(kernels))

    def _estimate(self, layer: Layer) -> float:
        per_mac, per_byte = self._rates.get(layer.kind) or self._rates[None]
        return max(per_mac * layer.num_macs + per_byte * _num_bytes(layer), _LEAST_S)


def _num_bytes(layer: Layer) -> int:
    return layer.input_bytes + layer.output_bytes + layer.weight_bytes


def _rate(kernels: Sequence[KnownKernel]) -> tuple[float, float]:
    """Seconds a multiply-accumulate and seconds a byte, neither below 0, of the least relative squared error."""
    from scipy.optimize import nnls

    seconds = np.array([each.seconds for each in kernels])
    amounts = np.array([[each.num_macs, each.num_bytes] for each in kernels], float)
    scale = np.maximum(amounts.mean(0), 1.0)
    rates, _ = nnls(amounts / scale / seconds[:, None], np.ones(len(kernels)))
    per_mac, per_byte = rates / scale
    return float(per_mac), float(per_byte)
