"""The gated short convolution: what most layers of a network for plain CPUs are.

Layout of tensors: b batch, t token, c channels, k taps of the kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from search_spaces.blocks.language_parts import RmsNorm, Rotation, State, linear


class ShortConvolution(nn.Module):
    """A causal depthwise convolution over the last tokens between two gates, residual, after a norm.

    The pattern of LFM2's operator (Liquid AI 2025): one matrix to three parts, `after * conv(before * value)`, one
    matrix back. The taps are written as shifted products: they fuse into one kernel with both gates, where a
    convolution operator of one channel a group would be a kernel of its own.
    """

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.norm = RmsNorm(width)
        self.enter = linear(width, 3 * width)
        self.taps = Taps(kernel, width)
        self.leave = linear(width, width, is_last=True)

    def forward(self, x_btc: Tensor, rotation: Rotation) -> Tensor:
        """Keeps the shape; what came before the first token is zero."""
        return self._mix(x_btc)[0]

    def prefill(self, x_btc: Tensor, rotation: Rotation, context: int) -> tuple[Tensor, State]:
        """As `forward`, and the last kernel - 1 gated values (k - 1, c), oldest first."""
        y_btc, padded_btc = self._mix(x_btc)
        return y_btc, (padded_btc[0, padded_btc.shape[1] - self.kernel + 1 :],)

    def decode(self, x_bc: Tensor, rotation: Rotation, position: Tensor, state: State) -> tuple[Tensor, State]:
        """One token; the window moves on by one."""
        before_bc, after_bc, value_bc = self.enter(self.norm(x_bc)).chunk(3, dim=-1)
        window_kc = torch.cat([state[0], before_bc * value_bc], dim=0)
        mixed_bc = (window_kc * self.taps.weight).sum(0, keepdim=True)
        return x_bc + self.leave(after_bc * mixed_bc), (window_kc[1:],)

    def _mix(self, x_btc: Tensor) -> tuple[Tensor, Tensor]:
        """What leaves, and the gated values with kernel - 1 zeros before them."""
        batch, tokens, channels = x_btc.shape
        before_btc, after_btc, value_btc = self.enter(self.norm(x_btc)).chunk(3, dim=-1)
        zeros_btc = torch.zeros(batch, self.kernel - 1, channels)
        padded_btc = torch.cat([zeros_btc, before_btc * value_btc], dim=1)
        mixed_btc = padded_btc[:, :tokens] * self.taps.weight[0]
        for tap in range(1, self.kernel):
            mixed_btc = mixed_btc + padded_btc[:, tap : tap + tokens] * self.taps.weight[tap]
        return x_btc + self.leave(after_btc * mixed_btc), padded_btc


class Taps(nn.Module):
    """The taps of a depthwise kernel, (k, c), oldest token first."""

    def __init__(self, kernel: int, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(kernel, channels) * kernel**-0.5)
