"""Builds the torch network that a candidate describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from search_spaces.blocks.attention import Attention
from search_spaces.blocks.classifier import Classifier, ImageClassifier
from search_spaces.blocks.convolution import ConvNextBlock, Downsample, InvertedResidual, Stem
from search_spaces.blocks.grouped_attention import GroupedAttention, WindowAttention
from search_spaces.blocks.language_model import LanguageModel
from search_spaces.blocks.language_parts import Embedding, GatedUnit, LanguageHead
from search_spaces.blocks.linear_attention import LinearAttention
from search_spaces.blocks.patch_stem import PatchStem
from search_spaces.blocks.short_convolution import ShortConvolution
from search_spaces.blocks.vision_language_model import VisionLanguageModel
from search_spaces.candidate import BlockSpec, Candidate, CandidateError
from search_spaces.entry import EntryPoint, normal_inputs
from search_spaces.language_entry import language_disagreement, language_entry
from search_spaces.language_layers import block_state
from search_spaces.layer import Shape
from search_spaces.layers import every_block
from search_spaces.space import Phase
from search_spaces.vision_language_entry import vision_language_disagreement, vision_language_entry
from search_spaces.vision_language_layers import num_positions

BLOCKS: dict[str, Callable[[BlockSpec, Shape], nn.Module]] = {
    "stem": lambda block, shape: Stem(shape[0], block.integer("width"), block.integer("stride")),
    "downsample": lambda block, shape: Downsample(shape[0], block.integer("width")),
    "inverted_residual": lambda block, shape: InvertedResidual(
        shape[0], block.integer("kernel"), block.integer("expansion")
    ),
    "convnext": lambda block, shape: ConvNextBlock(shape[0]),
    "attention": lambda block, shape: Attention(shape[0]),
    "classifier": lambda block, shape: Classifier(shape[0], block.integer("classes")),
    "embedding": lambda block, shape: Embedding(block.integer("vocabulary"), block.integer("width")),
    "gated_unit": lambda block, shape: GatedUnit(shape[2], block.integer("hidden")),
    "short_convolution": lambda block, shape: ShortConvolution(shape[2], block.integer("kernel")),
    "grouped_attention": lambda block, shape: GroupedAttention(
        shape[2], block.integer("heads"), block.integer("groups"), block.integer("head_channels")
    ),
    "window_attention": lambda block, shape: WindowAttention(
        shape[2],
        block.integer("heads"),
        block.integer("groups"),
        block.integer("head_channels"),
        block.integer("window"),
    ),
    "linear_attention": lambda block, shape: LinearAttention(
        shape[2], block.integer("heads"), block.integer("head_channels")
    ),
    "patch_stem": lambda block, shape: PatchStem(
        shape[0], block.integer("channels"), block.integer("patch"), block.integer("width")
    ),
    "language_model": lambda block, shape: LanguageHead(shape[2]),
    "vision_language_model": lambda block, shape: LanguageHead(shape[2]),
}
"""Block kind to what builds it for the shape that enters it."""


def _language_model(candidate: Candidate, blocks: Sequence[nn.Module], head: nn.Module) -> nn.Module:
    assert isinstance(head, LanguageHead)
    return LanguageModel(blocks, head, candidate.input.integer("context"), _state_sizes(candidate))


def _vision_language_model(candidate: Candidate, blocks: Sequence[nn.Module], head: nn.Module) -> nn.Module:
    assert isinstance(head, LanguageHead)
    return VisionLanguageModel(blocks, head, num_positions(candidate), _state_sizes(candidate))


def _state_sizes(candidate: Candidate) -> list[int]:
    return [len(block_state(block, 1, 1)) for block in candidate.blocks]


NETWORKS: dict[str, Callable[[Candidate, Sequence[nn.Module], nn.Module], nn.Module]] = {
    "classifier": lambda candidate, blocks, head: ImageClassifier(blocks, head),
    "language_model": _language_model,
    "vision_language_model": _vision_language_model,
}
"""Head kind to the network that runs the blocks of a candidate and that head."""


def build_model(candidate: Candidate) -> nn.Module:
    """The network of `candidate` with fresh weights from torch's generator: seed it first for equal weights.

    Raises:
        CandidateError: a block or head kind that nobody knows, or a block that does not fit what reaches it.
    """
    if candidate.head.kind not in NETWORKS:
        raise CandidateError(f"head kind {candidate.head.kind!r} is unknown; known: {sorted(NETWORKS)}")
    # every_block goes first: it checks the options and says what is wrong with them.
    modules = [BLOCKS[placed.block.kind](placed.block, placed.shape) for placed in every_block(candidate)]
    return NETWORKS[candidate.head.kind](candidate, modules[:-1], modules[-1])


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


def disagreement(model: nn.Module, candidate: Candidate, phase: Phase, tolerance: float) -> str | None:
    """How the entry point `phase` contradicts the network's whole pass, in one line; None where it does not.

    Args:
        model: in evaluation mode.
        candidate: what it was made of.
        phase: one of its space's phases.
        tolerance: largest difference allowed, per unit of the largest output.
    """
    if candidate.head.kind not in DISAGREEMENTS:
        return None
    return DISAGREEMENTS[candidate.head.kind](model, candidate, phase, tolerance)


ENTRY_POINTS: dict[str, Callable[[nn.Module, Candidate, Phase], EntryPoint]] = {
    "language_model": language_entry,
    "vision_language_model": vision_language_entry,
}
"""Head kind to what makes the entry points of its networks; without one, every phase is the network itself."""

DISAGREEMENTS: dict[str, Callable[[nn.Module, Candidate, Phase, float], str | None]] = {
    "language_model": language_disagreement,
    "vision_language_model": vision_language_disagreement,
}
"""Head kind to what compares the entry points of its networks with their whole pass; without one, they are the same."""
