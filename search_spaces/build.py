"""Builds the torch network that a candidate describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from search_spaces.blocks.attention import Attention
from search_spaces.blocks.classifier import Classifier, ImageClassifier
from search_spaces.blocks.convolution import ConvNextBlock, Downsample, InvertedResidual, Stem
from search_spaces.candidate import BlockSpec, Candidate, CandidateError
from search_spaces.layers import Shape, input_shape, layers_of_block

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
