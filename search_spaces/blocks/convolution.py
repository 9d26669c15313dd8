"""Convolution blocks: stem, downsampling, inverted residual and ConvNeXt-style.

Layout of tensors: n batch, c channels, h height, w width.

Why batch norm and ReLU everywhere. Batch norm follows its convolution directly, so one rule folds every norm of
a network into weights; layer norm stays a kernel with two reductions, which compile to slow scalar loops. ReLU is
an epilogue that TVM and ONNX Runtime both fuse; GELU needs erf, for which compiled code has no vector instruction.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from search_spaces.image_layers import CONVNEXT_EXPANSION, CONVNEXT_KERNEL

RESIDUAL_GAIN = 0.3
"""First gamma of the norm that ends a residual branch: a new network is near the identity and trains fast
(Goyal et al. 2017, section 5.1, start at 0), and yet every parameter gets a gradient from the first step."""


class ConvNormAct(nn.Sequential):
    """Convolution with "same" padding, batch norm, and ReLU unless told otherwise.

    Args:
        in_channels: channels that enter.
        out_channels: channels that leave.
        kernel: odd side of the kernel.
        stride: 1 or 2; a side of `size` leaves as ceil(size / stride), odd sizes included.
        groups: 1, or the number of channels for a depthwise convolution.
        has_activation: whether ReLU follows.
        gain: first value of the norm's gamma.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        has_activation: bool = True,
        gain: float = 1.0,
    ) -> None:
        conv = nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=False)
        norm = nn.BatchNorm2d(out_channels)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        nn.init.constant_(norm.weight, gain)
        super().__init__(conv, norm, *([nn.ReLU()] if has_activation else []))


class Stem(nn.Module):
    """3x3 convolutions from the image to the first width; a stride of 4 is two strided ones.

    Args:
        channels: of the image.
        width: channels that leave.
        stride: 1, 2 or 4.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        if stride == 4:
            convs = [ConvNormAct(channels, width // 2, 3, stride=2), ConvNormAct(width // 2, width, 3, stride=2)]
        else:
            convs = [ConvNormAct(channels, width, 3, stride=stride)]
        self.convs = nn.Sequential(*convs)

    def forward(self, x_nchw: Tensor) -> Tensor:
        """(n, channels, h, w) to (n, width, ceil(h / stride), ceil(w / stride))."""
        return cast(Tensor, self.convs(x_nchw))


class Downsample(nn.Module):
    """A 3x3 convolution of stride 2 to a new width; odd sides are rounded up."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv = ConvNormAct(channels, width, 3, stride=2)

    def forward(self, x_nchw: Tensor) -> Tensor:
        """(n, channels, h, w) to (n, width, ceil(h / 2), ceil(w / 2))."""
        return cast(Tensor, self.conv(x_nchw))


class InvertedResidual(nn.Module):
    """Pointwise widening, depthwise convolution, pointwise projection, residual (Sandler et al. 2018, figure 3)."""

    def __init__(self, width: int, kernel: int, expansion: int) -> None:
        super().__init__()
        hidden = width * expansion
        self.expand = ConvNormAct(width, hidden, 1)
        self.depthwise = ConvNormAct(hidden, hidden, kernel, groups=hidden)
        self.project = ConvNormAct(hidden, width, 1, has_activation=False, gain=RESIDUAL_GAIN)

    def forward(self, x_nchw: Tensor) -> Tensor:
        """Keeps the shape."""
        return torch.add(x_nchw, self.project(self.depthwise(self.expand(x_nchw))))


class ConvNextBlock(nn.Module):
    """Depthwise convolution first, then a pointwise pair of four times the width, residual (Liu et al. 2022, figure 4).

    The depthwise side is 5 where the paper has 7: maps have at most 256 pixels where it matters here, three such
    layers see all of one, and 7 would double (49 / 25) the work of the kernel that runs slowest for each MAC. With
    ReLU for GELU and a norm after each convolution, its pointwise pair is the very kernel pair of
    an inverted residual of expansion 4, tuned once for both.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = width * CONVNEXT_EXPANSION
        self.depthwise = ConvNormAct(width, width, CONVNEXT_KERNEL, groups=width, has_activation=False)
        self.expand = ConvNormAct(width, hidden, 1)
        self.project = ConvNormAct(hidden, width, 1, has_activation=False, gain=RESIDUAL_GAIN)

    def forward(self, x_nchw: Tensor) -> Tensor:
        """Keeps the shape."""
        return torch.add(x_nchw, self.project(self.expand(self.depthwise(x_nchw))))
