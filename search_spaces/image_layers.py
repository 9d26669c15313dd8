"""The layers of the image blocks: convolutions, attention over pixels, the classifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from search_spaces.candidate import BlockSpec, CandidateError
from search_spaces.layer import BYTES_PER_ELEMENT, BlockLayers, Layer, Shape, matrix_product

HEAD_CHANNELS = 32
"""Channels of one attention head, as in MobileViT and LeViT-class models; every width is a multiple."""

CONVNEXT_KERNEL = 5
"""Depthwise size of the ConvNeXt-style block: see `blocks.convolution.ConvNextBlock` for why not 7."""

CONVNEXT_EXPANSION = 4
"""Widening of the ConvNeXt-style block (Liu et al. 2022, section 2.4)."""


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


def image_input(spec: BlockSpec, phase: str | None) -> Shape:
    """(channels, height, width): every phase sees the whole image."""
    return spec.integer("channels"), spec.integer("height"), spec.integer("width")


IMAGE_BLOCKS: dict[str, Callable[[BlockSpec, Shape], BlockLayers]] = {
    "stem": _stem,
    "downsample": _downsample,
    "inverted_residual": _inverted_residual,
    "convnext": _convnext,
    "attention": _attention,
    "classifier": _classifier,
}
"""Block kind to the function that lists its layers."""
