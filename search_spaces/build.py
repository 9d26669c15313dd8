"""Builds the torch network that a candidate describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from search_spaces.blocks.attention import Attention
from search_spaces.blocks.classifier import Classifier, ImageClassifier
from search_spaces.blocks.convolution import ConvNextBlock, Downsample, InvertedResidual, Stem
from search_spaces.candidate import BlockSpec, Candidate, CandidateError
from search_spaces.layer import Shape
from search_spaces.layers import input_shape, layers_of_block
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


BLOCKS: dict[str, Callable[[BlockSpec, Shape], nn.Module]] = {
    "stem": lambda block, shape: Stem(shape[0], block.integer("width"), block.integer("stride")),
    "downsample": lambda block, shape: Downsample(shape[0], block.integer("width")),
    "inverted_residual": lambda block, shape: InvertedResidual(
        shape[0], block.integer("kernel"), block.integer("expansion")
    ),
    "convnext": lambda block, shape: ConvNextBlock(shape[0]),
    "attention": lambda block, shape: Attention(shape[0]),
    "classifier": lambda block, shape: Classifier(shape[0], block.integer("classes")),
}
"""Block kind to what builds it for the shape that enters it."""

NETWORKS: dict[str, Callable[[Sequence[nn.Module], nn.Module], nn.Module]] = {"classifier": ImageClassifier}
"""Head kind to the network that runs the blocks and that head."""


def build_model(candidate: Candidate) -> nn.Module:
    """The network of `candidate` with fresh weights from torch's generator: seed it first for equal weights.

    Raises:
        CandidateError: a block or head kind that nobody knows, or a block that does not fit what reaches it.
    """
    if candidate.head.kind not in NETWORKS:
        raise CandidateError(f"head kind {candidate.head.kind!r} is unknown; known: {sorted(NETWORKS)}")
    shape = input_shape(candidate.input)
    modules = []
    for block in (*candidate.blocks, candidate.head):
        if block.kind not in BLOCKS:
            raise CandidateError(f"block kind {block.kind!r} is unknown; known: {sorted(BLOCKS)}")
        # layers_of_block goes first: it checks the options and says what is wrong with them.
        _, shape_after = layers_of_block(block, shape)
        modules.append(BLOCKS[block.kind](block, shape))
        shape = shape_after
    return NETWORKS[candidate.head.kind](modules[:-1], modules[-1])


def entry_point(model: nn.Module, candidate: Candidate, phase: Phase) -> EntryPoint:
    """The function that `phase` names of the network `model` of `candidate`.

    Args:
        model: as `build_model` made it, in evaluation mode; its weights are shared, not copied.
        candidate: what it was made of.
        phase: one of its space's phases.
    """
    if candidate.head.kind in ENTRY_POINTS:
        return ENTRY_POINTS[candidate.head.kind](model, candidate, phase)
    return EntryPoint(module=model, inputs=normal_inputs(phase))


def normal_inputs(phase: Phase) -> tuple[Tensor, ...]:
    """Standard normal inputs of the phase's shapes, from a fixed seed; for inputs that are all float32."""
    generator = torch.Generator().manual_seed(INPUT_SEED)
    return tuple(torch.randn(spec.shape, generator=generator) for spec in phase.inputs)


ENTRY_POINTS: dict[str, Callable[[nn.Module, Candidate, Phase], EntryPoint]] = {}
"""Head kind to what makes the entry points of its networks; without one, every phase is the network itself."""
