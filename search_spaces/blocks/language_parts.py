"""What every language block is made of: norm, gated unit, embedding, rotary positions, and what a token mixer is.

Layout of tensors: b batch, t token, c channels of the network, h hidden channels, d channels of a head, v vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

NORM_EPSILON = 1e-5
ROTARY_BASE = 10_000.0
"""Longest wavelength of the rotary embedding over 2 pi, in tokens (Su et al. 2021, section 3.2.2)."""

MASKED = -1e9
"""Added to a score that must not count: softmax gives exactly 0, and no infinity ever meets a zero."""

State = tuple[Tensor, ...]
"""What a block keeps between tokens, in the order and shapes of `language_layers.block_state`."""


Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of the angles of some tokens, shape (t, d / 2) each."""


class TokenMixer(Protocol):
    """A residual block that lets tokens see earlier ones, in three forms that must agree.

    `forward` (training) takes whole sequences; `prefill` takes one and returns the state after it as well;
    `decode` takes one token and the state before it, and returns what is new of the state: `write_state` puts it in.
    """

    def __call__(self, x_btc: Tensor, rotation: Rotation) -> Tensor:
        """Whole sequences, keeps the shape."""
        ...

    def prefill(self, x_btc: Tensor, rotation: Rotation, context: int) -> tuple[Tensor, State]:
        """One sequence (b is 1), and the state after it for `context` tokens."""
        ...

    def decode(self, x_bc: Tensor, rotation: Rotation, position: Tensor, state: State) -> tuple[Tensor, State]:
        """One token at `position` (int32, shape (1,)), and what is new of the state."""
        ...


class RmsNorm(nn.Module):
    """Scales each token to a root mean square of 1 (Zhang and Sennrich 2019, equation 4)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x_c: Tensor) -> Tensor:
        """Keeps the shape; channels are the last axis."""
        scale = torch.rsqrt((x_c * x_c).mean(-1, keepdim=True) + NORM_EPSILON)
        return x_c * scale * self.weight


class Embedding(nn.Module):
    """One row a token; the head reads the same table (Press and Wolf 2017)."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        # The head's logits then have a deviation of about 1: neither flat nor sure of anything.
        nn.init.normal_(self.table.weight, std=width**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (...) to vectors (..., c)."""
        return functional.embedding(tokens, self.table.weight)


class GatedUnit(nn.Module):
    """The feed-forward half of a layer, residual: SwiGLU (Shazeer 2020, equation 6) after a norm.

    Gate and value come from one matrix: one kernel instead of two in decode, where each is a pass over the weights.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = RmsNorm(width)
        self.enter = linear(width, 2 * hidden)
        self.leave = linear(hidden, width, is_last=True)

    def forward(self, x_c: Tensor) -> Tensor:
        """Keeps the shape; channels are the last axis."""
        gate_h, value_h = self.enter(self.norm(x_c)).chunk(2, dim=-1)
        return torch.add(x_c, self.leave(gate_h * torch.sigmoid(gate_h) * value_h))


class LanguageHead(nn.Module):
    """The last norm; `logits` uses the embedding's table."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = RmsNorm(width)

    def logits(self, x_c: Tensor, table_vc: Tensor) -> Tensor:
        """Vectors (..., c) to logits (..., v)."""
        return functional.linear(self.norm(x_c), table_vc)


def linear(channels: int, width: int, *, is_last: bool = False) -> nn.Linear:
    """A matrix without bias; the last one of a residual branch starts small, so that deep networks start near identity.

    A fixed factor instead of one by depth (Radford et al. 2019, section 2.3): a block does not know how deep it is.
    """
    layer = nn.Linear(channels, width, bias=False)
    nn.init.normal_(layer.weight, std=channels**-0.5 * (RESIDUAL_GAIN if is_last else 1.0))
    return layer


RESIDUAL_GAIN = 0.3
"""As in the image blocks, see `blocks.convolution.RESIDUAL_GAIN`."""


def rotary_table(context: int, head_channels: int) -> Rotation:
    """Cosines and sines of positions 0 to `context`, shape (context + 1, d / 2): decode stands at `context`."""
    frequencies = ROTARY_BASE ** (-torch.arange(0, head_channels, 2, dtype=torch.float64) / head_channels)
    angles = torch.arange(context + 1, dtype=torch.float64)[:, None] * frequencies
    return torch.cos(angles).to(torch.float32), torch.sin(angles).to(torch.float32)


def rotate(x_td: Tensor, rotation: Rotation) -> Tensor:
    """Turns the two halves of each head by the angle of its token (Su et al. 2021, equation 34).

    Args:
        x_td: (..., t, d).
        rotation: cosine and sine, (t, d / 2) each.
    """
    cosine, sine = rotation
    low, high = x_td.chunk(2, dim=-1)
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1)


def write_state(state: Tensor, new: Tensor, position: int) -> Tensor:
    """The state after the token at `position`: the caller's half of a decode step.

    A cache gets one slot filled, that of the position (a ring, where it has fewer slots than the context); everything
    else is replaced. Slots are the axis along which `new` is shorter. `state` is changed in place where it is a cache.

    >>> cache = torch.zeros(1, 3, 2)
    >>> write_state(cache, torch.ones(1, 1, 2), position=4)[0, :, 0].tolist()
    [0.0, 1.0, 0.0]
    """
    if new.shape == state.shape:
        return new
    axis = slot_axis(state.shape, new.shape)
    state.narrow(axis, position % state.shape[axis], 1).copy_(new)
    return state


def slot_axis(whole: Sequence[int], part: Sequence[int]) -> int:
    """The one axis in which two shapes differ.

    >>> slot_axis((2, 32, 512), (2, 32, 1))
    2
    """
    return next(axis for axis, sizes in enumerate(zip(whole, part, strict=True)) if sizes[0] != sizes[1])
