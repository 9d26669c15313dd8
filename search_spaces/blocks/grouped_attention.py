"""Grouped-query attention over all earlier tokens, or over a window of them.

Layout of tensors: b batch, t token, c channels of the network; g group of heads that share keys and values, m head of
a group, d channel of a head, n chunk of tokens, q query, k key, s slot of a cache.

The products are written out, as in `blocks.attention`; whole sequences in training use torch's fused kernel instead
where it serves, and a test compares the two.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from search_spaces.blocks.language_parts import MASKED, RmsNorm, Rotation, State, linear, rotate


class GroupedAttention(nn.Module):
    """Attention to the token itself and all before it, residual, after a norm (Ainslie et al. 2023; Su et al. 2021).

    Args:
        width: channels of the network.
        heads: query heads, a multiple of `groups`.
        groups: key and value heads.
        head_channels: channels of each head; heads times this need not be the width.
    """

    def __init__(self, width: int, heads: int, groups: int, head_channels: int) -> None:
        super().__init__()
        self.heads, self.groups, self.head_channels = heads, groups, head_channels
        self.norm = RmsNorm(width)
        self.enter = linear(width, (heads + 2 * groups) * head_channels)
        self.leave = linear(heads * head_channels, width, is_last=True)

    def forward(self, x_btc: Tensor, rotation: Rotation) -> Tensor:
        """Keeps the shape."""
        q_bgmtd, k_bgtd, v_bgtd = self._project(x_btc, rotation)
        b, g, m, t, d = q_bgmtd.shape
        q_bhtd = q_bgmtd.reshape(b, g * m, t, d)
        mixed_bhtd = functional.scaled_dot_product_attention(
            q_bhtd, k_bgtd, v_bgtd, is_causal=True, scale=1.0, enable_gqa=g != g * m
        )
        return torch.add(x_btc, self.leave(mixed_bhtd.transpose(1, 2).reshape(b, t, g * m * d)))

    def prefill(self, x_btc: Tensor, rotation: Rotation, context: int) -> tuple[Tensor, State]:
        """As `forward`, and the keys (g, d, s) and values (g, s, d) of the tokens."""
        q_bgmtd, k_bgtd, v_bgtd = self._project(x_btc, rotation)
        b, g, m, t, d = q_bgmtd.shape
        scores_bgqk = torch.matmul(q_bgmtd.reshape(b, g, m * t, d), k_bgtd.transpose(-2, -1))
        mask_qk = torch.full((t, t), MASKED).triu(1)
        weights = torch.softmax(scores_bgqk.reshape(b, g, m, t, t) + mask_qk, dim=-1)
        mixed_bgqd = torch.matmul(weights.reshape(b, g, m * t, t), v_bgtd)
        return x_btc + self._join(mixed_bgqd.reshape(b, g, m, t, d)), (k_bgtd[0].transpose(1, 2), v_bgtd[0])

    def decode(self, x_bc: Tensor, rotation: Rotation, position: Tensor, state: State) -> tuple[Tensor, State]:
        """One token; its key (g, d, 1) and value (g, 1, d) are what is new. Slots without a token do not count.

        Slots are the last axis of the keys and the last but one of the values: either product then runs along a vector.
        """
        keys_gds, values_gsd = state
        slots = keys_gds.shape[2]
        q_bgmtd, k_bgtd, v_bgtd = self._project(x_bc[:, None], rotation)
        q_gmd, k_gtd, v_gtd = q_bgmtd[0, :, :, 0], k_bgtd[0], v_bgtd[0]
        is_empty = torch.arange(slots, dtype=torch.int32) >= position
        mask_s = torch.where(is_empty, MASKED, 0.0)
        past_gms = torch.matmul(q_gmd, keys_gds) + mask_s
        own_gmt = (q_gmd * k_gtd).sum(-1, keepdim=True)
        weights = torch.softmax(torch.cat([past_gms, own_gmt], dim=-1), dim=-1)
        mixed_gmd = torch.matmul(weights[..., :slots], values_gsd) + weights[..., slots:] * v_gtd
        mixed_bc = self.leave(mixed_gmd.reshape(1, self.heads * self.head_channels))
        return x_bc + mixed_bc, (k_gtd.reshape(self.groups, self.head_channels, 1), v_gtd)

    def _project(self, x_btc: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated and scaled queries (b, g, m, t, d), rotated keys and plain values (b, g, t, d)."""
        b, t, _ = x_btc.shape
        g, m, d = self.groups, self.heads // self.groups, self.head_channels
        q_btc, k_btc, v_btc = self.enter(self.norm(x_btc)).split([g * m * d, g * d, g * d], dim=-1)
        q_bgmtd = q_btc.reshape(b, t, g, m, d).permute(0, 2, 3, 1, 4)
        k_bgtd = k_btc.reshape(b, t, g, d).transpose(1, 2)
        v_bgtd = v_btc.reshape(b, t, g, d).transpose(1, 2)
        return rotate(q_bgmtd * d**-0.5, rotation), rotate(k_bgtd, rotation), v_bgtd

    def _join(self, mixed_bgmtd: Tensor) -> Tensor:
        """Heads side by side again, and the last matrix."""
        b, g, m, t, d = mixed_bgmtd.shape
        return self.leave(mixed_bgmtd.permute(0, 3, 1, 2, 4).reshape(b, t, g * m * d))  # type: ignore[no-any-return]


class WindowAttention(GroupedAttention):
    """Attention to the token itself and the `window` tokens before it (Beltagy et al. 2020, section 3.1).

    Whole sequences go in chunks of `window`, each looking at itself and the chunk before: the cost grows with the
    number of tokens, not with its square. The cache is a ring of `window` slots.
    """

    def __init__(self, width: int, heads: int, groups: int, head_channels: int, window: int) -> None:
        super().__init__(width, heads, groups, head_channels)
        self.window = window

    def forward(self, x_btc: Tensor, rotation: Rotation) -> Tensor:
        """Keeps the shape."""
        return x_btc + self._attend(*self._project(x_btc, rotation))

    def prefill(self, x_btc: Tensor, rotation: Rotation, context: int) -> tuple[Tensor, State]:
        """As `forward`, and keys and values of the last tokens, each in the slot of its position."""
        q_bgmtd, k_bgtd, v_bgtd = self._project(x_btc, rotation)
        tokens, slots = x_btc.shape[1], min(context, self.window)
        # Token p lies in slot p modulo the slots; after `tokens` of them the oldest kept is at tokens - slots.
        kept = [cache[0, :, max(0, tokens - slots) :] for cache in (k_bgtd, v_bgtd)]
        if tokens > slots and tokens % slots:
            kept = [torch.cat([cache[:, -(tokens % slots) :], cache[:, : -(tokens % slots)]], dim=1) for cache in kept]
        return x_btc + self._attend(q_bgmtd, k_bgtd, v_bgtd), (kept[0].transpose(1, 2), kept[1])

    def _attend(self, q_bgmtd: Tensor, k_bgtd: Tensor, v_bgtd: Tensor) -> Tensor:
        b, g, m, t, d = q_bgmtd.shape
        size = min(self.window, t)
        chunks = -(-t // size)
        missing = chunks * size - t
        if missing:
            q_bgmtd = torch.cat([q_bgmtd, torch.zeros(b, g, m, missing, d)], dim=3)
            k_bgtd, v_bgtd = (torch.cat([x, torch.zeros(b, g, missing, d)], dim=2) for x in (k_bgtd, v_bgtd))
        q_bgnqd = q_bgmtd.reshape(b, g, m, chunks, size, d).transpose(2, 3).reshape(b, g, chunks, m * size, d)
        k_bgnkd, v_bgnkd = (_with_chunk_before(x, chunks, size) for x in (k_bgtd, v_bgtd))
        scores = torch.matmul(q_bgnqd, k_bgnkd.transpose(-2, -1)).reshape(b, g, chunks, m, size, 2 * size)
        weights = torch.softmax(scores + _window_mask(chunks, size, self.window), dim=-1)
        mixed = torch.matmul(weights.reshape(b, g, chunks, m * size, 2 * size), v_bgnkd)
        mixed_bgmtd = mixed.reshape(b, g, chunks, m, size, d).transpose(2, 3).reshape(b, g, m, chunks * size, d)
        return self._join(mixed_bgmtd[:, :, :, :t])


def _with_chunk_before(x_bgtd: Tensor, chunks: int, size: int) -> Tensor:
    """Each chunk with the one before it in front, (b, g, n, 2k, d); zeros before the first."""
    b, g, t, d = x_bgtd.shape
    late_bgtd = torch.cat([torch.zeros(b, g, size, d), x_bgtd], dim=2)[:, :, :t]
    parts = [x.reshape(b, g, chunks, size, d) for x in (late_bgtd, x_bgtd)]
    return torch.cat(parts, dim=3)


def _window_mask(chunks: int, size: int, window: int) -> Tensor:
    """What to add to the scores of each chunk, (n, 1, q, 2k): a query sees itself and `window` tokens before it."""
    query = torch.arange(size)[:, None] + size
    key = torch.arange(2 * size)[None]
    is_seen_qk = (key <= query) & (key >= query - window)
    # Nothing comes before the first chunk.
    is_there_nqk = (torch.arange(chunks)[:, None, None] > 0) | (key >= size)
    return torch.where(is_seen_qk & is_there_nqk, 0.0, MASKED)[:, None]
