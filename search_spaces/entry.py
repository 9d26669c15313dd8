"""What a phase of a network is in torch: a function and the fixed inputs on which compiled code is checked."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from search_spaces.space import Phase

INPUT_SEED = 20_260_101
"""Seed of the fixed inputs on which compiled code is compared with torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """One phase of a network as a pure function of tensors: what is exported, compiled and timed.

    Attributes:
        module: takes the phase's inputs, in their order, and returns a tensor or a tuple of them; in evaluation mode.
        inputs: fixed inputs that make sense to the network (tokens of its vocabulary, a state that it made itself),
            with the shapes and dtypes of the phase; the same in every process.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]


def normal_inputs(phase: Phase) -> tuple[Tensor, ...]:
    """Standard normal inputs of the phase's shapes, from a fixed seed; for inputs that are all float32."""
    generator = torch.Generator().manual_seed(INPUT_SEED)
    return tuple(torch.randn(spec.shape, generator=generator) for spec in phase.inputs)
