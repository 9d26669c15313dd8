"""The layers and states of the language blocks: short convolutions, three kinds of attention, gated units.

A shape is (tokens, past, channels): tokens that enter in one call, tokens that came before them, width. `prefill@n`
runs n tokens with nothing before them, `decode@n` one token after n.

What torch's counter calls a MAC is one of a matrix product. The taps of a short convolution, norms, rotations and
gates are element by element: they have bytes, and no MACs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from search_spaces.candidate import BlockSpec, Candidate, CandidateError, TensorSpec
from search_spaces.layer import BYTES_PER_ELEMENT, BlockLayers, Layer, Shape, matrix_product

CHUNK_TOKENS = 64
"""Tokens of one chunk of gated linear attention in prefill and training (Yang et al. 2023, section 3.2: quadratic
inside a chunk, a state between chunks). The cost per token, quadratic part and state, is least near the number of
channels of a head; 64 also keeps the products large enough for vector units."""

_PHASE = re.compile(r"(prefill|decode)@([1-9][0-9]*)")


def parse_phase(phase: str) -> tuple[str, int]:
    """Kind and context length of a language phase.

    Raises:
        CandidateError: another name.

    >>> parse_phase("decode@512")
    ('decode', 512)
    """
    match = _PHASE.fullmatch(phase)
    if match is None:
        raise CandidateError(f"phase {phase!r}: allowed: prefill@N and decode@N, N tokens of context")
    return match[1], int(match[2])


def text_input(spec: BlockSpec, phase: str | None) -> Shape:
    """(tokens, past, 0): no channels before the embedding.

    >>> text_input(BlockSpec.of("text", context=512, vocabulary=256), "prefill@128")
    (128, 0, 0)
    """
    kind, context = parse_phase(phase) if phase is not None else ("decode", spec.integer("context"))
    return (context, 0, 0) if kind == "prefill" else (1, context, 0)


def block_state(block: BlockSpec, width: int, context: int) -> tuple[TensorSpec, ...]:
    """What a block keeps of `context` tokens: names, shapes without a batch; nothing for blocks without memory.

    Keys: (groups, channels of a head, slots), values: (groups, slots, channels), token p in slot p modulo the slots.
    Convolution: the last kernel - 1 values, oldest first. Linear attention: (heads, channels, channels).

    >>> block_state(BlockSpec.of("short_convolution", kernel=3), 128, 512)
    (TensorSpec(name='window', shape=(2, 128), dtype='float32'),)
    """
    if block.kind == "short_convolution":
        return (TensorSpec(name="window", shape=(block.integer("kernel") - 1, width)),)
    if block.kind == "linear_attention":
        heads, channels = block.integer("heads"), block.integer("head_channels")
        return (TensorSpec(name="memory", shape=(heads, channels, channels)),)
    if block.kind in ("grouped_attention", "window_attention"):
        slots = min(context, block.integer("window")) if block.kind == "window_attention" else context
        groups, channels = block.integer("groups"), block.integer("head_channels")
        keys = TensorSpec(name="keys", shape=(groups, channels, slots))
        return keys, TensorSpec(name="values", shape=(groups, slots, channels))
    return ()


def network_state(candidate: Candidate, context: int) -> tuple[TensorSpec, ...]:
    """The states of all blocks in order, named by block: `keys_3` belongs to `blocks.3`."""
    width = candidate.blocks[0].integer("width")
    return tuple(
        TensorSpec(name=f"{spec.name}_{index}", shape=spec.shape)
        for index, block in enumerate(candidate.blocks)
        for spec in block_state(block, width, context)
    )


def decode_inputs(candidate: Candidate, context: int) -> tuple[TensorSpec, ...]:
    """What a decode step takes: `token` and `position` (1,), then the state for `context` tokens."""
    first = tuple(TensorSpec(name=each, shape=(1,), dtype="int32") for each in ("token", "position"))
    return (*first, *network_state(candidate, context))


def language_state_bytes(candidate: Candidate, phase: str) -> int:
    """Bytes of one sequence's state at the phase's context."""
    _, context = parse_phase(phase)
    return BYTES_PER_ELEMENT * sum(spec.num_elements for spec in network_state(candidate, context))


def linear(name: str, tokens: int, channels: int, width: int, *, epilogue: str = "") -> Layer:
    """A matrix of weights without bias times `tokens` vectors.

    >>> linear("gate", 2, 128, 256).num_macs
    65536
    """
    num_inputs = tokens * channels + (tokens * width if epilogue == "add" else 0)
    return Layer(
        name=name,
        kind="linear",
        num_macs=tokens * channels * width,
        num_params=channels * width,
        input_bytes=num_inputs * BYTES_PER_ELEMENT,
        output_bytes=tokens * width * BYTES_PER_ELEMENT,
        weight_bytes=channels * width * BYTES_PER_ELEMENT,
        signature=("linear", tokens, channels, width, epilogue),
    )


def elementwise(
    name: str, kind: str, tokens: int, channels_in: int, channels_out: int, *, weights: int = 0, tag: str = ""
) -> Layer:
    """A kernel that moves each element once and multiplies no matrix: a norm, a gate, the taps of a convolution."""
    return Layer(
        name=name,
        kind=kind,
        num_macs=0,
        num_params=weights,
        input_bytes=tokens * channels_in * BYTES_PER_ELEMENT,
        output_bytes=tokens * channels_out * BYTES_PER_ELEMENT,
        weight_bytes=weights * BYTES_PER_ELEMENT,
        signature=(kind, tokens, channels_in, channels_out, weights, tag),
    )


def _language_shape(block: BlockSpec, shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3 or shape[2] < 1:
        raise CandidateError(f"block {block.kind!r} takes (tokens, past, channels), seen {shape}; an embedding first")
    return shape[0], shape[1], shape[2]


def _positive(block: BlockSpec, *names: str) -> None:
    for name in names:
        if block.integer(name) < 1:
            raise CandidateError(f"block {block.kind!r}: {name} is {block.integer(name)}; allowed: 1 or more")


def _embedding(block: BlockSpec, shape: Shape) -> BlockLayers:
    _positive(block, "vocabulary", "width")
    tokens, past, _ = shape
    width, vocabulary = block.integer("width"), block.integer("vocabulary")
    rows = tokens * width * BYTES_PER_ELEMENT
    layer = Layer(
        name="table",
        kind="embedding",
        num_macs=0,
        num_params=vocabulary * width,
        input_bytes=tokens * BYTES_PER_ELEMENT,
        output_bytes=rows,
        weight_bytes=rows,  # only the rows that are looked up move
        signature=("embedding", tokens, vocabulary, width),
    )
    return (layer,), (tokens, past, width)


def _gated_unit(block: BlockSpec, shape: Shape) -> BlockLayers:
    tokens, _, width = _language_shape(block, shape)
    _positive(block, "hidden")
    hidden = block.integer("hidden")
    layers = (
        elementwise("norm", "norm", tokens, width, width, weights=width),
        linear("enter", tokens, width, 2 * hidden),
        elementwise("gate", "gate", tokens, 2 * hidden, hidden),
        linear("leave", tokens, hidden, width, epilogue="add"),
    )
    return layers, shape


def _short_convolution(block: BlockSpec, shape: Shape) -> BlockLayers:
    tokens, _, width = _language_shape(block, shape)
    kernel = block.integer("kernel")
    if kernel < 2:
        raise CandidateError(f"block 'short_convolution': kernel is {kernel}; allowed: 2 or more")
    layers = (
        elementwise("norm", "norm", tokens, width, width, weights=width),
        linear("enter", tokens, width, 3 * width),
        elementwise("taps", "short_conv", tokens, 3 * width, width, weights=kernel * width, tag=f"k{kernel}"),
        linear("leave", tokens, width, width, epilogue="add"),
    )
    return layers, shape


def _softmax(scores: Layer, name: str = "softmax") -> Layer:
    return replace(
        scores, name=name, kind="softmax", num_macs=0, input_bytes=scores.output_bytes,
        signature=("softmax", *scores.signature[1:]),
    )  # fmt: skip


def _attention(block: BlockSpec, shape: Shape) -> BlockLayers:
    tokens, past, width = _language_shape(block, shape)
    _positive(block, "heads", "groups", "head_channels")
    heads, groups, channels = (block.integer(name) for name in ("heads", "groups", "head_channels"))
    if heads % groups or channels % 2:
        raise CandidateError(
            f"block {block.kind!r}: {heads} heads in {groups} groups of {channels} channels; "
            "allowed: heads a multiple of groups, an even number of channels"
        )
    batch, rows, columns = groups, heads // groups * tokens, past or tokens
    if block.kind == "window_attention":
        _positive(block, "window")
        window = block.integer("window")
        columns = min(past, window)
        if not past:
            size = min(window, tokens)
            num_chunks = -(-tokens // size)
            batch, rows, columns = groups * num_chunks, heads // groups * size, 2 * size
    scores = matrix_product("scores", batch=batch, rows=rows, inner=channels, columns=columns)
    layers = (
        elementwise("norm", "norm", tokens, width, width, weights=width),
        linear("enter", tokens, width, (heads + 2 * groups) * channels),
        elementwise("rotate", "rotate", tokens, (heads + groups) * channels, (heads + groups) * channels),
        scores,
        _softmax(scores),
        matrix_product("mix", batch=batch, rows=rows, inner=columns, columns=channels),
        linear("leave", tokens, heads * channels, width, epilogue="add"),
    )
    return layers, shape


def _linear_attention(block: BlockSpec, shape: Shape) -> BlockLayers:
    tokens, past, width = _language_shape(block, shape)
    _positive(block, "heads", "head_channels")
    heads, channels = block.integer("heads"), block.integer("head_channels")
    inner = heads * channels
    first = (
        elementwise("norm", "norm", tokens, width, width, weights=width),
        linear("enter", tokens, width, 4 * inner),
        replace(linear("decay", tokens, width, heads), num_params=width * heads + heads),
    )
    last = (
        elementwise("head_norm", "norm", tokens, inner, inner, weights=channels),
        linear("leave", tokens, inner, width, epilogue="add"),
    )
    if past:
        recall = matrix_product("recall", batch=heads, rows=1, inner=channels, columns=channels)
        state = elementwise("update", "state_update", heads, channels * channels, channels * channels)
        return (*first, state, recall, *last), shape
    size = min(CHUNK_TOKENS, tokens)
    num_chunks = -(-tokens // size)
    batch = heads * num_chunks
    middle = (
        matrix_product("decays", batch=1, rows=batch, inner=size, columns=size),
        matrix_product("scores", batch=batch, rows=size, inner=channels, columns=size),
        matrix_product("mix", batch=batch, rows=size, inner=size, columns=channels),
        matrix_product("update", batch=batch, rows=channels, inner=size, columns=channels),
        matrix_product("recall", batch=batch, rows=size, inner=channels, columns=channels),
    )
    return (*first, *middle, *last), shape


def language_head(block: BlockSpec, shape: Shape) -> BlockLayers:
    """Logits of the last token only: that is all that the next one depends on."""
    _, past, width = _language_shape(block, shape)
    vocabulary = block.integer("vocabulary")
    layers = (
        elementwise("norm", "norm", 1, width, width, weights=width),
        replace(linear("logits", 1, width, vocabulary), num_params=0),  # the embedding's table again
    )
    return layers, (1, past, vocabulary)


LANGUAGE_BLOCKS: dict[str, Callable[[BlockSpec, Shape], BlockLayers]] = {
    "embedding": _embedding,
    "gated_unit": _gated_unit,
    "short_convolution": _short_convolution,
    "grouped_attention": _attention,
    "window_attention": _attention,
    "linear_attention": _linear_attention,
    "language_model": language_head,
}
"""Block kind to the function that lists its layers."""
