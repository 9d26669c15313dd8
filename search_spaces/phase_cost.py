"""What one call of a phase of a network costs, from its layers alone: arithmetic, state and bytes; no torch."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.candidate import Candidate
from search_spaces.layers import layers_of, state_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCost:
    """One call of one phase, for one sample.

    Attributes:
        phase: its name.
        num_macs: multiply-accumulates.
        state_bytes: kept for the next call; None for networks that keep nothing.
        weight_bytes: weights read.
        moved_bytes: weights, inputs and outputs of every layer, each once a layer. Code that fuses layers or finds
            activations in a cache moves less.
    """

    phase: str
    num_macs: int
    state_bytes: int | None
    weight_bytes: int
    moved_bytes: int

    @property
    def num_operations(self) -> int:
        """Floating-point operations: a multiplication and an addition for each MAC."""
        return 2 * self.num_macs


def phase_cost(candidate: Candidate, phase: str) -> PhaseCost:
    """The cost of one call of `phase`.

    Raises:
        CandidateError: a block that nobody knows, or a name that is no phase of a language network.

    >>> from search_spaces.candidate import BlockSpec
    >>> candidate = Candidate(
    ...     space="conv_attention", space_version=1, blocks=(BlockSpec.of("stem", stride=1, width=32),),
    ...     input=BlockSpec.of("image", channels=1, height=8, width=8), head=BlockSpec.of("classifier", classes=10),
    ... )
    >>> cost = phase_cost(candidate, "infer")
    >>> cost.num_macs, cost.state_bytes, cost.weight_bytes
    (18752, None, 2600)
    """
    layers = layers_of(candidate, phase)
    weights = sum(layer.weight_bytes for layer in layers)
    return PhaseCost(
        phase=phase,
        num_macs=sum(layer.num_macs for layer in layers),
        state_bytes=state_bytes(candidate, phase),
        weight_bytes=weights,
        moved_bytes=weights + sum(layer.input_bytes + layer.output_bytes for layer in layers),
    )
