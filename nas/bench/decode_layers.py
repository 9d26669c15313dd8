"""The torch modules of the decode step (`nas.bench.decode_model`).

Layout of tensors: b batch (1), c channels, k taps; g group of heads, m head of a group, t token, d channel of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nas.bench.decode_model import (
    CACHE_TOKENS,
    HEAD_CHANNELS,
    HIDDEN,
    LAYERS,
    NUM_GROUPS,
    NUM_HEADS,
    TAPS,
    VOCABULARY,
    WIDTH,
)

_EPSILON = 1e-5
CACHE_SHAPE = (NUM_GROUPS, CACHE_TOKENS, HEAD_CHANNELS)


class RmsNorm(nn.Module):
    """Scales to a root mean square of 1 (Zhang and Sennrich 2019, equation 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x_bc: Tensor) -> Tensor:
        """Keeps the shape."""
        return x_bc * torch.rsqrt((x_bc * x_bc).mean(-1, keepdim=True) + _EPSILON) * self.weight


class GatedUnit(nn.Module):
    """SwiGLU (Shazeer 2020, equation 6)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x_bc: Tensor) -> Tensor:
        """Keeps the shape."""
        gate = self.gate(x_bc)
        return self.down(gate * torch.sigmoid(gate) * self.up(x_bc))  # type: ignore[no-any-return]


class GatedConvolution(nn.Module):
    """A depthwise convolution over the last tokens between two gates."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.taps = nn.Parameter(torch.randn(WIDTH, TAPS) * TAPS**-0.5)
        self.leave = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x_bc: Tensor, state_ck: Tensor) -> tuple[Tensor, Tensor]:
        """What leaves, and the state with the oldest tap dropped and this token added."""
        before_bc, after_bc, value_bc = self.enter(x_bc).chunk(3, dim=-1)
        window_ck = torch.cat([state_ck, (before_bc * value_bc).reshape(WIDTH, 1)], dim=1)
        mixed_bc = (window_ck * self.taps).sum(-1).reshape(1, WIDTH)
        return self.leave(after_bc * mixed_bc), window_ck[:, 1:]


class GroupedAttention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023) with rotary positions, written as products and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, NUM_HEADS * HEAD_CHANNELS, bias=False)
        self.key = nn.Linear(WIDTH, NUM_GROUPS * HEAD_CHANNELS, bias=False)
        self.value = nn.Linear(WIDTH, NUM_GROUPS * HEAD_CHANNELS, bias=False)
        self.leave = nn.Linear(NUM_HEADS * HEAD_CHANNELS, WIDTH, bias=False)

    def forward(
        self, x_bc: Tensor, cosine: Tensor, sine: Tensor, mask_bt: Tensor, keys_gtd: Tensor, values_gtd: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What leaves, and both caches with the oldest token dropped and this one added."""
        heads = NUM_HEADS // NUM_GROUPS
        query_gmd = self.query(x_bc).reshape(NUM_GROUPS, heads, HEAD_CHANNELS) * HEAD_CHANNELS**-0.5
        query_gmd = _rotate(query_gmd, cosine, sine)
        key_gtd = _rotate(self.key(x_bc).reshape(NUM_GROUPS, 1, HEAD_CHANNELS), cosine, sine)
        value_gtd = self.value(x_bc).reshape(NUM_GROUPS, 1, HEAD_CHANNELS)
        keys_gtd = torch.cat([keys_gtd[:, 1:], key_gtd], dim=1)
        values_gtd = torch.cat([values_gtd[:, 1:], value_gtd], dim=1)
        weights_gmt = torch.softmax(torch.matmul(query_gmd, keys_gtd.transpose(1, 2)) + mask_bt, dim=-1)
        mixed_bc = torch.matmul(weights_gmt, values_gtd).reshape(1, NUM_HEADS * HEAD_CHANNELS)
        return self.leave(mixed_bc), keys_gtd, values_gtd


def _rotate(x_gmd: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding of the two halves of each head (Su et al. 2021, equation 34)."""
    low, high = x_gmd.chunk(2, dim=-1)
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1)


class DecodeStep(nn.Module):
    """One token through all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.mixers = nn.ModuleList(GatedConvolution() if kind == "conv" else GroupedAttention() for kind in LAYERS)
        self.units = nn.ModuleList(GatedUnit() for _ in LAYERS)
        self.norms = nn.ModuleList(RmsNorm() for _ in range(2 * len(LAYERS)))
        self.last_norm = RmsNorm()
        self.logits = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(
        self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor, conv_state: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits, and the state for the next token."""
        convs: list[Tensor] = []
        new_keys: list[Tensor] = []
        new_values: list[Tensor] = []
        for index, kind in enumerate(LAYERS):
            normed = self.norms[2 * index](x)
            if kind == "conv":
                place = len(convs)
                state_ck = conv_state[place : place + 1].reshape(WIDTH, TAPS - 1)
                mixed, state = self.mixers[index](normed, state_ck)
                convs.append(state)
            else:
                place = len(new_keys)
                caches = [cache[place : place + 1].reshape(CACHE_SHAPE) for cache in (keys, values)]
                mixed, key, value = self.mixers[index](normed, cosine, sine, mask, *caches)
                new_keys.append(key)
                new_values.append(value)
            x = x + mixed
            x = x + self.units[index](self.norms[2 * index + 1](x))
        logits = self.logits(self.last_norm(x))
        return logits, torch.stack(convs), torch.stack(new_keys), torch.stack(new_values)
