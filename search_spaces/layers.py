"""What a candidate's layers cost, from shapes alone: MACs, parameters, bytes, kernel signatures; no torch.

One entry is one kernel after compilation: batch norm is folded into the convolution before it, activation and
residual addition are its epilogue. A new family of blocks adds functions here and one line each in `BLOCKS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from search_spaces.candidate import BlockSpec, Candidate, CandidateError

Shape = tuple[int, ...]
"""Shape of one sample without the batch: (channels, height, width) for images."""

Signature = tuple[str | int, ...]
"""What makes a compiled kernel distinct: operator, sizes and fused epilogue."""

BYTES_PER_ELEMENT = 4
"""float32, the only precision that is compiled so far."""

HEAD_CHANNELS = 32
"""Channels of one attention head, as in MobileViT and LeViT-class models; every width is a multiple."""

CONVNEXT_KERNEL = 5
"""Depthwise size of the ConvNeXt-style block: see `blocks.convolution.ConvNextBlock` for why not 7."""

CONVNEXT_EXPANSION = 4
"""Widening of the ConvNeXt-style block (Liu et al. 2022, section 2.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One kernel of a compiled network, for one sample.

    Attributes:
        name: path of the torch module that it stands for, for instance `blocks.2.expand`; products and
            softmax inside attention have no module of their own.
        kind: conv, depthwise_conv, linear, matmul, softmax or pool.
        num_macs: multiply-accumulates, padding included, as torch counts them.
        num_params: parameters as torch counts them, the affine pair of a folded batch norm included.
        input_bytes: activations read, a residual added in the epilogue included.
        output_bytes: activations written.
        weight_bytes: weights and biases read, after batch norm is folded.
        signature: equal for two layers exactly when one compiled kernel serves both.
    """

    name: str
    kind: str
    num_macs: int
    num_params: int
    input_bytes: int
    output_bytes: int
    weight_bytes: int
    signature: Signature


BlockLayers = tuple[tuple[Layer, ...], Shape]
"""The layers of one block, and the shape that leaves it."""


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


def convolution(
    name: str, shape: Shape, *, width: int, kernel: int, epilogue: str, stride: int = 1, is_depthwise: bool = False
) -> tuple[Layer, Shape]:
    """A convolution with "same" padding, its folded batch norm and its epilogue.

    Args:
        name: path of the module inside its block.
        shape: (channels, height, width) that enters.
        width: channels that leave.
        kernel: odd side of the kernel; padding is `kernel // 2`, so a stride of 2 gives ceil(size / 2).
        epilogue: `bias`, `bias+relu` or `bias+add` (a residual of the output's shape).
        stride: 1 or 2.
        is_depthwise: one filter a channel.

    Raises:
        CandidateError: no channel would leave.
    """
    if width < 1:
        raise CandidateError(f"convolution {name!r}: width is {width}; allowed: 1 channel or more")
    channels, height, map_width = shape
    out_shape = (width, -(-height // stride), -(-map_width // stride))
    num_weights = width * kernel * kernel * (1 if is_depthwise else channels)
    num_outputs = width * out_shape[1] * out_shape[2]
    num_inputs = channels * height * map_width + (num_outputs if epilogue == "bias+add" else 0)
    kind = "depthwise_conv" if is_depthwise else "conv"
    layer = Layer(
        name=name,
        kind=kind,
        num_macs=num_weights * out_shape[1] * out_shape[2],
        num_params=num_weights + 2 * width,
        input_bytes=num_inputs * BYTES_PER_ELEMENT,
        output_bytes=num_outputs * BYTES_PER_ELEMENT,
        weight_bytes=(num_weights + width) * BYTES_PER_ELEMENT,
        signature=(kind, channels, width, kernel, stride, height, map_width, epilogue),
    )
    return layer, out_shape


def matrix_product(name: str, *, batch: int, rows: int, inner: int, columns: int) -> Layer:
    """A batch of products (rows, inner) x (inner, columns) of two activations.

    >>> matrix_product("scores", batch=2, rows=16, inner=32, columns=16).num_macs
    16384
    """
    return Layer(
        name=name,
        kind="matmul",
        num_macs=batch * rows * inner * columns,
        num_params=0,
        input_bytes=batch * inner * (rows + columns) * BYTES_PER_ELEMENT,
        output_bytes=batch * rows * columns * BYTES_PER_ELEMENT,
        weight_bytes=0,
        signature=("matmul", batch, rows, inner, columns),
    )


def _image_shape(block: BlockSpec, shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise CandidateError(f"block {block.kind!r} takes (channels, height, width), seen {shape}")
    return shape[0], shape[1], shape[2]


def _stem(block: BlockSpec, shape: Shape) -> BlockLayers:
    width, stride = block.integer("width"), block.integer("stride")
    strides_and_widths = {1: [(1, width)], 2: [(2, width)], 4: [(2, width // 2), (2, width)]}
    if stride not in strides_and_widths:
        raise CandidateError(f"block 'stem': stride is {stride}; allowed: {sorted(strides_and_widths)}")
    shape = _image_shape(block, shape)
    layers = []
    for index, (step, channels) in enumerate(strides_and_widths[stride]):
        layer, shape = convolution(f"convs.{index}", shape, width=channels, kernel=3, stride=step, epilogue="bias+relu")
        layers.append(layer)
    return tuple(layers), shape


def _downsample(block: BlockSpec, shape: Shape) -> BlockLayers:
    shape = _image_shape(block, shape)
    layer, shape = convolution("conv", shape, width=block.integer("width"), kernel=3, stride=2, epilogue="bias+relu")
    return (layer,), shape


def _inverted_residual(block: BlockSpec, shape: Shape) -> BlockLayers:
    channels, _, _ = shape = _image_shape(block, shape)
    kernel, hidden = block.integer("kernel"), channels * block.integer("expansion")
    if kernel < 1 or kernel % 2 == 0 or hidden < 1:
        raise CandidateError(f"block {block.to_json()}: kernel must be odd and positive, expansion positive")
    expand, wide = convolution("expand", shape, width=hidden, kernel=1, epilogue="bias+relu")
    depthwise, wide = convolution(
        "depthwise", wide, width=hidden, kernel=kernel, epilogue="bias+relu", is_depthwise=True
    )
    project, shape = convolution("project", wide, width=channels, kernel=1, epilogue="bias+add")
    return (expand, depthwise, project), shape


def _convnext(block: BlockSpec, shape: Shape) -> BlockLayers:
    channels, _, _ = shape = _image_shape(block, shape)
    depthwise, shape = convolution(
        "depthwise", shape, width=channels, kernel=CONVNEXT_KERNEL, epilogue="bias", is_depthwise=True
    )
    expand, wide = convolution("expand", shape, width=channels * CONVNEXT_EXPANSION, kernel=1, epilogue="bias+relu")
    project, shape = convolution("project", wide, width=channels, kernel=1, epilogue="bias+add")
    return (depthwise, expand, project), shape


def _attention(block: BlockSpec, shape: Shape) -> BlockLayers:
    channels, height, width = shape = _image_shape(block, shape)
    if channels % HEAD_CHANNELS:
        raise CandidateError(f"block 'attention': {channels} channels; allowed: multiples of {HEAD_CHANNELS}")
    tokens, heads = height * width, channels // HEAD_CHANNELS
    qkv, _ = convolution("qkv", shape, width=3 * channels, kernel=1, epilogue="bias")
    scores = matrix_product("scores", batch=heads, rows=tokens, inner=HEAD_CHANNELS, columns=tokens)
    softmax = replace(
        scores, name="softmax", kind="softmax", num_macs=0, input_bytes=scores.output_bytes,
        signature=("softmax", heads, tokens, tokens),
    )  # fmt: skip
    mix = matrix_product("mix", batch=heads, rows=HEAD_CHANNELS, inner=tokens, columns=tokens)
    project, shape = convolution("project", shape, width=channels, kernel=1, epilogue="bias+add")
    return (qkv, scores, softmax, mix, project), shape


def _classifier(block: BlockSpec, shape: Shape) -> BlockLayers:
    channels, height, width = _image_shape(block, shape)
    classes = block.integer("classes")
    pool = Layer(
        name="pool",
        kind="pool",
        num_macs=0,
        num_params=0,
        input_bytes=channels * height * width * BYTES_PER_ELEMENT,
        output_bytes=channels * BYTES_PER_ELEMENT,
        weight_bytes=0,
        signature=("pool", channels, height, width),
    )
    linear = Layer(
        name="linear",
        kind="linear",
        num_macs=channels * classes,
        num_params=(channels + 1) * classes,
        input_bytes=channels * BYTES_PER_ELEMENT,
        output_bytes=classes * BYTES_PER_ELEMENT,
        weight_bytes=(channels + 1) * classes * BYTES_PER_ELEMENT,
        signature=("linear", channels, classes, "bias"),
    )
    return (pool, linear), (classes,)


def _image_input(spec: BlockSpec, phase: str | None) -> Shape:
    return spec.integer("channels"), spec.integer("height"), spec.integer("width")


INPUTS: dict[str, Callable[[BlockSpec, str | None], Shape]] = {"image": _image_input}
"""Input kind to the shape that enters the first block in a phase."""

STATES: dict[str, Callable[[Candidate, str], int]] = {}
"""Head kind to the bytes of state after a phase, for networks that keep one."""

BLOCKS: dict[str, Callable[[BlockSpec, Shape], BlockLayers]] = {
    "stem": _stem,
    "downsample": _downsample,
    "inverted_residual": _inverted_residual,
    "convnext": _convnext,
    "attention": _attention,
    "classifier": _classifier,
}
"""Block kind to the function that lists its layers."""
