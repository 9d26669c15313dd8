"""Gated linear attention: a memory of fixed size instead of a cache.

Layout of tensors: b batch, t token, c channels of the network; h head, d channel of a head, n chunk, i and j tokens
of a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from search_spaces.blocks.language_parts import MASKED, RmsNorm, Rotation, State, linear
from search_spaces.language_layers import CHUNK_TOKENS

DECAY_TEMPERATURE = 16.0
"""Divides the log of the forget gate, so that a new network forgets slowly (Yang et al. 2023, section 4.4)."""

DECAY_BIAS = 2.0
"""First value of the gate's bias: with the temperature, half of a memory is left after about 90 tokens."""


class LinearAttention(nn.Module):
    """A memory per head that fades by a gate and learns key-value pairs; residual, after a norm.

    `S_t = a_t S_(t-1) + k_t v_t'`, `o_t = q_t S_t` (Yang et al. 2023, equation 3) with one gate a head and token
    (Dao and Gu 2024, section 2), a norm over each head and an output gate. Whole sequences go in chunks of 64:
    products inside a chunk, the memory from chunk to chunk.
    """

    def __init__(self, width: int, heads: int, head_channels: int) -> None:
        super().__init__()
        self.heads, self.head_channels = heads, head_channels
        self.norm = RmsNorm(width)
        self.enter = linear(width, 4 * heads * head_channels)
        self.decay = nn.Linear(width, heads)
        nn.init.normal_(self.decay.weight, std=width**-0.5)
        nn.init.constant_(self.decay.bias, DECAY_BIAS)
        self.head_norm = RmsNorm(head_channels)
        self.leave = linear(heads * head_channels, width, is_last=True)

    def forward(self, x_btc: Tensor, rotation: Rotation) -> Tensor:
        """Keeps the shape."""
        return self._sequence(x_btc)[0]

    def prefill(self, x_btc: Tensor, rotation: Rotation, context: int) -> tuple[Tensor, State]:
        """As `forward`, and the memory (h, d, d) after the last token."""
        y_btc, memory_bhdd = self._sequence(x_btc)
        return y_btc, (memory_bhdd[0],)

    def decode(self, x_bc: Tensor, rotation: Rotation, position: Tensor, state: State) -> tuple[Tensor, State]:
        """One token, and the memory after it."""
        h, d = self.heads, self.head_channels
        normed_bc = self.norm(x_bc)
        q, k, v, gate = self.enter(normed_bc).chunk(4, dim=-1)
        kept_h = torch.exp(_log_sigmoid(self.decay(normed_bc)) * (1.0 / DECAY_TEMPERATURE)).reshape(h, 1, 1)
        memory_hdd = state[0] * kept_h + k.reshape(h, d, 1) * v.reshape(h, 1, d)
        mixed_htd = torch.matmul(q.reshape(h, 1, d) * d**-0.5, memory_hdd)
        y_bc = self.head_norm(mixed_htd).reshape(1, h * d) * torch.sigmoid(gate)
        return x_bc + self.leave(y_bc), (memory_hdd,)

    def _sequence(self, x_btc: Tensor) -> tuple[Tensor, Tensor]:
        b, t, _ = x_btc.shape
        h, d = self.heads, self.head_channels
        size = min(CHUNK_TOKENS, t)
        chunks = -(-t // size)
        normed_btc = self.norm(x_btc)
        q, k, v, gate_btc = self.enter(normed_btc).chunk(4, dim=-1)
        log_bth = _log_sigmoid(self.decay(normed_btc)) * (1.0 / DECAY_TEMPERATURE)
        # Tokens that fill the last chunk neither fade the memory (log 0) nor add to it (key 0).
        q_bhnid, k_bhnid, v_bhnid = (self._chunked(x, chunks, size) for x in (q * d**-0.5, k, v))
        log_bhni = _padded(log_bth.transpose(1, 2)[..., None], chunks * size)[..., 0].reshape(b, h, chunks, size)
        so_far_bhni = torch.matmul(log_bhni, torch.ones(size, size).triu())
        fade = torch.exp(
            so_far_bhni[..., :, None] - so_far_bhni[..., None, :] + torch.full((size, size), MASKED).triu(1)
        )
        inside = torch.matmul(torch.matmul(q_bhnid, k_bhnid.transpose(-2, -1)) * fade, v_bhnid)
        total_bhn = so_far_bhni[..., -1:]
        left = torch.exp(total_bhn - so_far_bhni)[..., None]
        learnt_bhndd = torch.matmul((k_bhnid * left).transpose(-2, -1), v_bhnid)
        before_bhndd, memory_bhdd = _carry(learnt_bhndd, torch.exp(total_bhn)[..., None])
        across = torch.matmul(q_bhnid * torch.exp(so_far_bhni)[..., None], before_bhndd)
        mixed_bthd = (inside + across).reshape(b, h, chunks * size, d)[:, :, :t].transpose(1, 2)
        y_btc = self.head_norm(mixed_bthd).reshape(b, t, h * d) * torch.sigmoid(gate_btc)
        return x_btc + self.leave(y_btc), memory_bhdd

    def _chunked(self, x_btc: Tensor, chunks: int, size: int) -> Tensor:
        b, t, _ = x_btc.shape
        x_bhtd = x_btc.reshape(b, t, self.heads, self.head_channels).transpose(1, 2)
        return _padded(x_bhtd, chunks * size).reshape(b, self.heads, chunks, size, self.head_channels)


def _padded(x_bhtd: Tensor, tokens: int) -> Tensor:
    b, h, t, d = x_bhtd.shape
    return x_bhtd if t == tokens else torch.cat([x_bhtd, torch.zeros(b, h, tokens - t, d)], dim=2)


def _carry(learnt_bhndd: Tensor, kept_bhn11: Tensor) -> tuple[Tensor, Tensor]:
    """The memory before each chunk (b, h, n, d, d) and after the last (b, h, d, d)."""
    memory = torch.zeros_like(learnt_bhndd[:, :, 0])
    before = []
    for chunk in range(learnt_bhndd.shape[2]):
        before.append(memory)
        memory = memory * kept_bhn11[:, :, chunk] + learnt_bhndd[:, :, chunk]
    return torch.stack(before, dim=2), memory


def _log_sigmoid(x: Tensor) -> Tensor:
    """`log(sigmoid(x))` of operators that every compiler knows; the floor keeps the log finite below x = -69."""
    return torch.log(torch.sigmoid(x) + 1e-30)
