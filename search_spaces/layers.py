"""What a candidate's layers cost: the layers of every family of blocks, put together.

A new family of blocks adds a file beside `image_layers.py` and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from search_spaces.candidate import BlockSpec, Candidate, CandidateError
from search_spaces.image_layers import IMAGE_BLOCKS, image_input
from search_spaces.language_layers import LANGUAGE_BLOCKS, language_state_bytes, text_input
from search_spaces.layer import BlockLayers, Layer, Route, Shape
from search_spaces.vision_language_layers import (
    VISION_LANGUAGE_BLOCKS,
    vision_language_routes,
    vision_language_state_bytes,
    vision_language_whole,
)

MAX_REMEMBERED = 10_000
"""Placed blocks whose layers are remembered: some tens of megabytes at most."""


def layers_of(candidate: Candidate, phase: str | None = None) -> tuple[Layer, ...]:
    """Every layer that a phase of `candidate` runs, first to last.

    Args:
        candidate: the network.
        phase: the entry point that runs them; None means the first of the candidate's space. Phases may differ in
            shapes (`decode@512` moves one token, `prefill@512` as many as the prompt has) and in the blocks they run.

    Raises:
        CandidateError: a block kind that nobody knows, or one that does not fit the shape that reaches it.

    >>> candidate = Candidate(
    ...     space="conv_attention", space_version=1,
    ...     input=BlockSpec.of("image", channels=1, height=8, width=8),
    ...     blocks=(BlockSpec.of("stem", stride=1, width=32),),
    ...     head=BlockSpec.of("classifier", classes=10),
    ... )
    >>> [(layer.name, layer.num_macs) for layer in layers_of(candidate)]
    [('blocks.0.convs.0', 18432), ('head.pool', 0), ('head.linear', 320)]
    """
    return tuple(layer for placed in placed_blocks(candidate, phase) for layer in placed.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBlock:
    """A block where it stands in a network.

    Attributes:
        index: counted from 0; the head comes after the last block.
        block: as the candidate has it.
        shape: what enters it, without the batch.
        layers: what it costs there, named by path from the network.
    """

    index: int
    block: BlockSpec
    shape: Shape
    layers: tuple[Layer, ...]


def placed_blocks(candidate: Candidate, phase: str | None = None) -> Iterator[PlacedBlock]:
    """The blocks that a phase runs, in order, the head among them; see `layers_of` for `phase`."""
    parts = (*candidate.blocks, candidate.head)
    for shape, part in _routes(candidate, phase):
        for index in part:
            prefix = f"blocks.{index}" if index < len(candidate.blocks) else "head"
            block = parts[index]
            named, shape_after = _named_layers(block, tuple(type(value) for _, value in block.options), shape, prefix)
            yield PlacedBlock(index=index, block=block, shape=shape, layers=named)
            shape = shape_after


@lru_cache(maxsize=MAX_REMEMBERED)
def _named_layers(block: BlockSpec, types: tuple[type, ...], shape: Shape, prefix: str) -> BlockLayers:
    """`layers_of_block`, named by path from the network; remembered, as the candidates of a search share most blocks.

    `types` are those of the options: 1, 1.0 and True are equal keys, and not all of them are allowed.
    """
    layers, shape_after = layers_of_block(block, shape)
    return tuple(replace(layer, name=f"{prefix}.{layer.name}") for layer in layers), shape_after


def every_block(candidate: Candidate) -> tuple[PlacedBlock, ...]:
    """Each block and the head exactly once, whichever phase runs it, first to last."""
    phases = WHOLE[candidate.head.kind](candidate) if candidate.head.kind in WHOLE else (None,)
    placed = [each for phase in phases for each in placed_blocks(candidate, phase)]
    placed.sort(key=lambda each: each.index)
    assert [each.index for each in placed] == list(range(len(candidate.blocks) + 1)), f"{phases} are not the whole"
    return tuple(placed)


def _routes(candidate: Candidate, phase: str | None) -> Iterable[Route]:
    if candidate.head.kind in ROUTES:
        return ROUTES[candidate.head.kind](candidate, phase)
    return ((input_shape(candidate.input, phase), range(len(candidate.blocks) + 1)),)


def layers_of_block(block: BlockSpec, shape: Shape) -> BlockLayers:
    """The layers of one block that `shape` enters, and the shape that leaves it.

    >>> layers, shape = layers_of_block(BlockSpec.of("downsample", width=64), (32, 17, 23))
    >>> shape
    (64, 9, 12)
    """
    if block.kind not in BLOCKS:
        raise CandidateError(f"block kind {block.kind!r} is unknown; known: {sorted(BLOCKS)}")
    return BLOCKS[block.kind](block, shape)


def input_shape(spec: BlockSpec, phase: str | None = None) -> Shape:
    """The shape that a candidate's input has in a phase, without the batch; see `layers_of` for `phase`.

    >>> input_shape(BlockSpec.of("image", channels=3, height=32, width=24))
    (3, 32, 24)
    """
    if spec.kind not in INPUTS:
        raise CandidateError(f"input kind {spec.kind!r} is unknown; known: {sorted(INPUTS)}")
    return INPUTS[spec.kind](spec, phase)


def state_bytes(candidate: Candidate, phase: str) -> int | None:
    """Bytes that `candidate` keeps from one call to the next after `phase`; None for networks that keep nothing.

    For a language model: key and value caches and convolution states of one sequence.

    >>> candidate = Candidate(
    ...     space="conv_attention", space_version=1, blocks=(),
    ...     input=BlockSpec.of("image", channels=1, height=8, width=8), head=BlockSpec.of("classifier", classes=10),
    ... )
    >>> state_bytes(candidate, "infer") is None
    True
    """
    return STATES[candidate.head.kind](candidate, phase) if candidate.head.kind in STATES else None


def activation_bytes(candidate: Candidate, phase: str | None = None) -> int:
    """Activations alive at once, at most: twice what its largest layer reads and writes, as a residual may wait."""
    return 2 * max((layer.input_bytes + layer.output_bytes for layer in layers_of(candidate, phase)), default=0)


def num_macs(candidate: Candidate, phase: str | None = None) -> int:
    """Multiply-accumulates of one sample: convolutions, linear layers and both attention products."""
    return sum(layer.num_macs for layer in layers_of(candidate, phase))


def num_params(candidate: Candidate) -> int:
    """Parameters of the whole network as torch counts them: batch norm's affine pair included, its statistics not."""
    return sum(layer.num_params for placed in every_block(candidate) for layer in placed.layers)


INPUTS: dict[str, Callable[[BlockSpec, str | None], Shape]] = {"image": image_input, "text": text_input}
"""Input kind to the shape that enters the first block in a phase."""

STATES: dict[str, Callable[[Candidate, str], int | None]] = {
    "language_model": language_state_bytes,
    "vision_language_model": vision_language_state_bytes,
}
"""Head kind to the bytes of state after a phase, for networks that keep one."""

ROUTES: dict[str, Callable[[Candidate, str | None], Iterable[Route]]] = {
    "vision_language_model": vision_language_routes
}
"""Head kind to the routes of a phase, for networks whose phases do not run all blocks one after the other."""

WHOLE: dict[str, Callable[[Candidate], tuple[str, ...]]] = {"vision_language_model": vision_language_whole}
"""Head kind to phases that together run every block once, where the first phase alone does not."""

BLOCKS: dict[str, Callable[[BlockSpec, Shape], BlockLayers]] = {
    **IMAGE_BLOCKS,
    **LANGUAGE_BLOCKS,
    **VISION_LANGUAGE_BLOCKS,
}
"""Block kind to the function that lists its layers."""
