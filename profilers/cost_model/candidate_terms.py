"""Candidates of our own spaces as terms of a latency or another cost, from the shapes of their layers; no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from profilers.cost_model.kernel_times import KernelTimes
from profilers.cost_model.terms import CostModelError, Encoded, Term, Variant
from search_spaces.candidate import Candidate
from search_spaces.layer import Layer
from search_spaces.layers import layers_of

Target = Literal["latency_ms", "model_bytes", "peak_memory_bytes", "energy_mj"]
"""What a model predicts; the name ends in its unit."""
AMOUNTS: tuple[Target, ...] = ("model_bytes", "peak_memory_bytes", "energy_mj")
"""Targets besides the latency; which of them can be measured, the device says."""

KINDS = ("conv 1x1", "conv", "depthwise_conv", "linear", "matmul", "softmax", "pool")
"""Kinds of layers that cost apart; a kind that is not listed is told by its bytes."""
_VERSION = 1
_TERMS = (
    Term(name="call of the network", kind="constant", share=0.1, spread=0.1),
    Term(name="kernel calls", kind="cost", share=0.2, spread=0.2),
    Term(name="multiply-accumulates", kind="cost", share=0.4, spread=0.3),
    Term(name="bytes of activations", kind="cost", share=0.2, spread=0.2),
    Term(name="bytes of weights", kind="cost", share=0.1, spread=0.1),
    *(Term(name=f"{kind}, calls", kind="detail", share=0.0, spread=0.05) for kind in KINDS),
    *(Term(name=f"{kind}, work", kind="detail", share=0.0, spread=0.1) for kind in KINDS),
)
_KNOWN_TIMES = Term(name="known kernel times", kind="cost", share=0.8, spread=0.3)
"""Beside the call of the network and what calling kernels costs: a tuner times a kernel warm and by itself."""
_BYTE_TERMS = (
    Term(name="runtime", kind="constant", share=0.3, spread=0.4),
    Term(name="bytes of weights", kind="cost", share=0.4, spread=0.4),
    Term(name="bytes of activations", kind="cost", share=0.1, spread=0.2),
    Term(name="largest layer's activations", kind="cost", share=0.1, spread=0.2),
    Term(name="kernel calls", kind="cost", share=0.05, spread=0.2),
    Term(name="distinct kernels", kind="cost", share=0.05, spread=0.2),
)
"""Of a size or a peak in bytes; each distinct kernel has code of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateEncoder:
    """Turns candidates of one space, version and task into terms.

    Attributes:
        space, space_version: whose candidates it takes.
        ends: input and head of its candidates, as JSON: a model of small images says nothing of large ones.
        typical: what a typical candidate has of each term; terms are given in multiples of it.
        phase: whose layers are encoded; None means the first phase of the candidates' space.
        typical_bytes: what a typical candidate has of each term of a size or a peak; empty where no such cost can be
            encoded, as in a calibration of before there were any.
        kernel_times: times of single kernels that are known; a latency has one more variant with them.
        typical_s: the sum of a typical candidate's kernels by `kernel_times`.
    """

    space: str
    space_version: int
    ends: str
    typical: tuple[float, ...]
    phase: str | None = None
    typical_bytes: tuple[float, ...] = ()
    kernel_times: KernelTimes | None = None
    typical_s: float = 1.0

    @classmethod
    def from_candidates(cls, candidates: Sequence[Candidate], phase: str | None = None) -> CandidateEncoder:
        """An encoder for which the mean of `candidates` is typical.

        Raises:
            CostModelError: no candidates, or candidates of several spaces.
        """
        spaces = sorted({_origin(candidate) for candidate in candidates})
        if len(spaces) != 1:
            raise CostModelError(f"candidates of {len(spaces)} spaces or tasks; an encoder takes those of one")
        space, version, ends = spaces[0]
        networks = [layers_of(candidate, phase) for candidate in candidates]
        return cls(
            space=space,
            space_version=version,
            ends=ends,
            typical=_mean([_amounts(layers) for layers in networks]),
            phase=phase,
            typical_bytes=_mean([_byte_amounts(layers) for layers in networks]),
        )

    def with_kernel_times(self, times: KernelTimes | None, typical: Sequence[Candidate]) -> CandidateEncoder:
        """The same with other known kernel times, or without any; `typical` candidates say what is typical of them."""
        if times is None:
            return replace(self, kernel_times=None, typical_s=1.0)
        seconds = [times.seconds_of(layers_of(candidate, self.phase)) for candidate in typical]
        return replace(self, kernel_times=times, typical_s=float(np.mean(seconds)))

    def encode(self, candidates: Sequence[Candidate], target: Target = "latency_ms") -> Encoded:
        """The candidates as terms of a latency, or of another cost.

        Energy has the terms of a latency.

        Raises:
            CostModelError: a candidate of another space or version, or a target that this encoder has no terms of.
        """
        for candidate in candidates:
            allowed = (self.space, self.space_version, self.ends)
            if _origin(candidate) != allowed:
                raise CostModelError(
                    f"candidate {candidate.candidate_id} is of {_origin(candidate)}; allowed: {allowed};"
                    " run `nas calibrate`"
                )
        networks = [layers_of(candidate, self.phase) for candidate in candidates]
        encoding = f"candidates-v{_VERSION}: {self.space} version {self.space_version}"
        values = _scaled([_amounts(layers) for layers in networks], self.typical)
        macs, counts = values[:, 2], values[:, 5 : 5 + len(KINDS)]
        if target in ("model_bytes", "peak_memory_bytes"):
            if not self.typical_bytes:
                raise CostModelError(f"{target}: this encoder knows latencies alone; run `nas calibrate` again")
            terms = _scaled([_byte_amounts(layers) for layers in networks], self.typical_bytes)
            variant = Variant(name="bytes", terms=_BYTE_TERMS, values=terms)
            return Encoded(encoding=f"{encoding}, bytes", variants=(variant,), macs=macs, counts=counts)
        plain = Variant(name="sum of layers", terms=_TERMS, values=values)
        if self.kernel_times is None:
            return Encoded(encoding=encoding, variants=(plain,), macs=macs, counts=counts)
        seconds = np.array([self.kernel_times.seconds_of(layers) for layers in networks])
        return Encoded(
            encoding=f"{encoding} beside known kernel times {self.kernel_times.digest}",
            variants=(plain, _with_seconds(plain, seconds / self.typical_s)),
            macs=macs,
            counts=counts,
        )


def _with_seconds(plain: Variant, seconds: np.ndarray) -> Variant:
    """A latency as what its kernels took by themselves; what else it is a sum of corrects that.

    The variant without them stays (see `with_other_device`): where they mislead, measurements decide against them. The
    other terms keep their spread: kernels were timed warm, by a tuner that may have been disturbed, and with half the
    spread such times drew predictions of our own machine 0.2 to 0.5 percent away from the measured.
    """
    kept = {"constant": 1.0, "kernel calls": 0.5}
    terms = [replace(term, share=kept.get(term.name, kept.get(term.kind, 0.0)) * term.share) for term in plain.terms]
    return Variant(
        name=f"{plain.name} beside known kernel times",
        terms=(*terms, _KNOWN_TIMES),
        values=np.column_stack([plain.values, seconds]),
    )


def ends_of(candidate: Candidate) -> str:
    """Input and head of a candidate, as JSON."""
    return json.dumps([candidate.input.to_json(), candidate.head.to_json()], sort_keys=True)


def _origin(candidate: Candidate) -> tuple[str, int, str]:
    return candidate.space, candidate.space_version, ends_of(candidate)


def _mean(rows: Sequence[np.ndarray]) -> tuple[float, ...]:
    return tuple(float(each) for each in np.mean(rows, axis=0))


def _scaled(rows: Sequence[np.ndarray], typical: tuple[float, ...]) -> np.ndarray:
    """Amounts in multiples of the typical ones; (candidates, terms), also of no candidates."""
    scale = np.array(typical)
    result: np.ndarray = np.array(rows).reshape(len(rows), len(typical)) / np.where(scale > 0, scale, 1.0)
    return result


def _byte_amounts(layers: Sequence[Layer]) -> np.ndarray:
    """How much of each term of a size or a peak a network has, in natural units."""
    activations = [layer.input_bytes + layer.output_bytes for layer in layers]
    return np.array([
        1.0, sum(layer.weight_bytes for layer in layers), sum(activations), max(activations, default=0), len(layers),
        len({layer.signature for layer in layers}),
    ])  # fmt: skip


def _amounts(layers: Sequence[Layer]) -> np.ndarray:
    """How much of each term of a latency a network has, in natural units."""
    calls = dict.fromkeys(KINDS, 0.0)
    work = dict.fromkeys(KINDS, 0.0)
    for layer in layers:
        kind = _kind(layer)
        if kind in calls:
            calls[kind] += 1
            work[kind] += layer.num_macs or layer.input_bytes
    return np.array([
        1.0, len(layers), sum(layer.num_macs for layer in layers),
        sum(layer.input_bytes + layer.output_bytes for layer in layers),
        sum(layer.weight_bytes for layer in layers), *calls.values(), *work.values(),
    ])  # fmt: skip


def _kind(layer: Layer) -> str:
    is_pointwise = layer.kind == "conv" and layer.signature[3] == 1
    return "conv 1x1" if is_pointwise else layer.kind
