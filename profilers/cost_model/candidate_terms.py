"""Candidates of our own spaces as terms of a latency, from the shapes of their layers; no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profilers.cost_model.terms import CostModelError, Encoded, Term, Variant
from search_spaces.candidate import Candidate
from search_spaces.layer import Layer
from search_spaces.layers import layers_of

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateEncoder:
    """Turns candidates of one space, version and task into terms.

    Attributes:
        space, space_version: whose candidates it takes.
        ends: input and head of its candidates, as JSON: a model of small images says nothing of large ones.
        typical: what a typical candidate has of each term; terms are given in multiples of it.
        phase: whose layers are encoded; None means the first phase of the candidates' space.
    """

    space: str
    space_version: int
    ends: str
    typical: tuple[float, ...]
    phase: str | None = None

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
        mean = np.mean([_amounts(candidate, phase) for candidate in candidates], axis=0)
        typical = tuple(float(each) for each in mean)
        return cls(space=space, space_version=version, ends=ends, typical=typical, phase=phase)

    def encode(self, candidates: Sequence[Candidate]) -> Encoded:
        """The candidates as terms.

        Raises:
            CostModelError: a candidate of another space or version.
        """
        for candidate in candidates:
            allowed = (self.space, self.space_version, self.ends)
            if _origin(candidate) != allowed:
                raise CostModelError(
                    f"candidate {candidate.candidate_id} is of {_origin(candidate)}; allowed: {allowed};"
                    " run `nas calibrate`"
                )
        rows = [_amounts(candidate, self.phase) for candidate in candidates]
        amounts = np.array(rows).reshape(len(candidates), len(_TERMS))
        typical = np.array(self.typical)
        values = amounts / np.where(typical > 0, typical, 1.0)
        return Encoded(
            encoding=f"candidates-v{_VERSION}: {self.space} version {self.space_version}",
            variants=(Variant(name="sum of layers", terms=_TERMS, values=values),),
            macs=values[:, 2],
            counts=values[:, 5 : 5 + len(KINDS)],
        )


def ends_of(candidate: Candidate) -> str:
    """Input and head of a candidate, as JSON."""
    return json.dumps([candidate.input.to_json(), candidate.head.to_json()], sort_keys=True)


def _origin(candidate: Candidate) -> tuple[str, int, str]:
    return candidate.space, candidate.space_version, ends_of(candidate)


def _amounts(candidate: Candidate, phase: str | None) -> np.ndarray:
    """How much of each term a candidate has in a phase, in natural units."""
    layers = layers_of(candidate, phase)
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
