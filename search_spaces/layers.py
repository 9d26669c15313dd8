"""What a candidate's layers cost: the layers of every family of blocks, put together.

A new family of blocks adds a file beside `image_layers.py` and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from search_spaces.candidate import BlockSpec, Candidate, CandidateError
from search_spaces.image_layers import IMAGE_BLOCKS, image_input
from search_spaces.language_layers import LANGUAGE_BLOCKS, language_state_bytes, text_input
from search_spaces.layer import BlockLayers, Layer, Shape


def layers_of(candidate: Candidate, phase: str | None = None) -> tuple[Layer, ...]:
    """Every layer of `candidate`, first to last.

    Args:
        candidate: the network.
        phase: the entry point that runs them; None means the first of the candidate's space. It matters only
            where phases differ in shapes: `decode@512` moves one token, `prefill@512` as many as the prompt has.

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
    layers: list[Layer] = []
    shape = input_shape(candidate.input, phase)
    for index, block in enumerate((*candidate.blocks, candidate.head)):
        prefix = f"blocks.{index}" if index < len(candidate.blocks) else "head"
        block_layers, shape = layers_of_block(block, shape)
        layers += [replace(layer, name=f"{prefix}.{layer.name}") for layer in block_layers]
    return tuple(layers)


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


def num_macs(candidate: Candidate, phase: str | None = None) -> int:
    """Multiply-accumulates of one sample: convolutions, linear layers and both attention products."""
    return sum(layer.num_macs for layer in layers_of(candidate, phase))


def num_params(candidate: Candidate) -> int:
    """Parameters as torch counts them: batch norm's affine pair included, its running statistics not."""
    return sum(layer.num_params for layer in layers_of(candidate))


INPUTS: dict[str, Callable[[BlockSpec, str | None], Shape]] = {"image": image_input, "text": text_input}
"""Input kind to the shape that enters the first block in a phase."""

STATES: dict[str, Callable[[Candidate, str], int]] = {"language_model": language_state_bytes}
"""Head kind to the bytes of state after a phase, for networks that keep one."""

BLOCKS: dict[str, Callable[[BlockSpec, Shape], BlockLayers]] = {**IMAGE_BLOCKS, **LANGUAGE_BLOCKS}
"""Block kind to the function that lists its layers."""
