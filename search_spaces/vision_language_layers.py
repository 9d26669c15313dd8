"""How many tokens an image is, and the layers and states of networks that read images and text in one backbone.

The text of `prefill@n` and `decode@n` is n tokens; the backbone sees the image's tokens before them. This module
alone says how many those are: model, layers, data and export all ask it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from search_spaces.candidate import BlockSpec, Candidate, CandidateError
from search_spaces.image_layers import convolution
from search_spaces.language_layers import language_head, linear, network_state, parse_phase
from search_spaces.layer import BYTES_PER_ELEMENT, BlockLayers, Layer, Route, Shape

ENCODE_IMAGE = "encode_image"
"""The phase that turns an image into tokens."""

MAX_WIDENING = 4
"""Each strided convolution of a stem has twice the channels of the one before, up to this many times the first:
the last one would otherwise have most of the weights of a small network."""


def num_image_tokens(height: int, width: int, patch: int) -> int:
    """Tokens of an image: one for each patch, and a patch that the side cuts off counts whole.

    Args:
        height, width: of the image, in pixels.
        patch: side of a patch in pixels, a power of two.

    Raises:
        CandidateError: a side below 1, or a patch that no strided convolutions make.

    >>> num_image_tokens(64, 64, 16), num_image_tokens(65, 33, 16), num_image_tokens(3, 5, 8)
    (16, 15, 1)
    """
    if height < 1 or width < 1:
        raise CandidateError(f"image of {height} x {width} pixels; allowed: sides of 1 or more")
    if patch < 2 or patch & (patch - 1):
        raise CandidateError(f"patch is {patch} pixels; allowed: powers of two from 2 on")
    return -(-height // patch) * -(-width // patch)


def image_tokens_of(candidate: Candidate) -> int:
    """Tokens of the image that `candidate` takes."""
    image, stem = candidate.input, _stem_of(candidate)
    return num_image_tokens(image.integer("height"), image.integer("width"), stem.integer("patch"))


def num_positions(candidate: Candidate, context: int | None = None) -> int:
    """Tokens that the backbone sees: those of the image, and `context` of text (None: as many as it can take)."""
    return image_tokens_of(candidate) + (candidate.input.integer("context") if context is None else context)


def stem_channels(channels: int, patch: int) -> tuple[int, ...]:
    """Channels that leave each strided convolution of a stem.

    >>> stem_channels(16, 16)
    (16, 32, 64, 64)
    """
    return tuple(channels * min(2**step, MAX_WIDENING) for step in range(patch.bit_length() - 1))


def vision_language_routes(candidate: Candidate, phase: str | None) -> tuple[Route, ...]:
    """The stem alone for `encode_image`; the embedding, then the backbone over image and text, for the others."""
    num_blocks = len(candidate.blocks)
    if phase == ENCODE_IMAGE:
        image = candidate.input
        return (((image.integer("channels"), image.integer("height"), image.integer("width")), range(1)),)
    kind, context = ("prefill", candidate.input.integer("context")) if phase is None else parse_phase(phase)
    positions = num_positions(candidate, context)
    if kind == "decode":
        return (((1, positions, 0), range(1, num_blocks + 1)),)
    width = _stem_of(candidate).integer("width")
    return ((context, 0, 0), range(1, 2)), ((positions, 0, width), range(2, num_blocks + 1))


def _stem_of(candidate: Candidate) -> BlockSpec:
    kinds = [block.kind for block in candidate.blocks[:2]]
    if kinds != ["patch_stem", "embedding"]:
        raise CandidateError(
            f"candidate {candidate.candidate_id} begins with {kinds}; allowed: a patch_stem, then an embedding"
        )
    return candidate.blocks[0]


def vision_language_whole(candidate: Candidate) -> tuple[str, ...]:
    """Every block once: the image's and those of prefill."""
    return ENCODE_IMAGE, f"prefill@{candidate.input.integer('context')}"


def vision_language_state_bytes(candidate: Candidate, phase: str) -> int | None:
    """Bytes of the state of one image and the phase's text; None for `encode_image`, which keeps nothing."""
    if phase == ENCODE_IMAGE:
        return None
    _, context = parse_phase(phase)
    states = network_state(candidate, num_positions(candidate, context))
    return BYTES_PER_ELEMENT * sum(spec.num_elements for spec in states)


def _patch_stem(block: BlockSpec, shape: Shape) -> BlockLayers:
    """(channels, height, width) of an image to (tokens, 0, width)."""
    if len(shape) != 3 or min(shape) < 1:
        raise CandidateError(f"block 'patch_stem' takes (channels, height, width) of an image, seen {shape}")
    patch, width = block.integer("patch"), block.integer("width")
    tokens = num_image_tokens(shape[1], shape[2], patch)
    layers: list[Layer] = []
    for index, channels in enumerate(stem_channels(block.integer("channels"), patch)):
        layer, shape = convolution(
            f"convs.{index}", shape, width=channels, kernel=3, stride=2, epilogue="bias+relu"
        )  # fmt: skip
        # A bias for each channel, where a folded batch norm has two numbers.
        layers.append(replace(layer, num_params=layer.num_params - channels))
    assert shape[1] * shape[2] == tokens
    project = linear("project", tokens, shape[0], width, epilogue="bias")
    bias_bytes = width * BYTES_PER_ELEMENT
    layers.append(
        replace(project, num_params=project.num_params + width, weight_bytes=project.weight_bytes + bias_bytes)
    )
    return tuple(layers), (tokens, 0, width)


VISION_LANGUAGE_BLOCKS: dict[str, Callable[[BlockSpec, Shape], BlockLayers]] = {
    "patch_stem": _patch_stem,
    "vision_language_model": language_head,
}
"""Block kind to the function that lists its layers."""
