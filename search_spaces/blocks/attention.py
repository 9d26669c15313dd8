"""Multi-head attention over the pixels of a small map.

Layout of tensors: n batch, c channels, h height, w width; b batch, m head, d channel of a head, t token.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from search_spaces.blocks.convolution import RESIDUAL_GAIN, ConvNormAct
from search_spaces.image_layers import HEAD_CHANNELS


class Attention(nn.Module):
    """Attention among all pixels, heads of 32 channels, residual (Vaswani et al. 2017, equation 1).

    Queries, keys and values come from one 1x1 convolution, normalised after it as in LeViT (Graham et al. 2021,
    section 4): a norm in front would need a folding rule of its own. No positional embedding: the padded
    convolutions before it already tell a pixel where it is (Islam et al. 2020).

    The products are written out because `scaled_dot_product_attention` compiles to masks, `where` and casts that
    fuse badly. Tokens stay the last axis, as the convolutions leave them, so that only queries are transposed
    between the convolutions and the products, not the result.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_heads = width // HEAD_CHANNELS
        self.qkv = ConvNormAct(width, 3 * width, 1, has_activation=False)
        self.project = ConvNormAct(width, width, 1, has_activation=False, gain=RESIDUAL_GAIN)

    def forward(self, x_nchw: Tensor) -> Tensor:
        """Keeps the shape."""
        n, c, h, w = x_nchw.shape
        qkv_bmdt = self.qkv(x_nchw).reshape(n, 3 * self.num_heads, HEAD_CHANNELS, h * w)
        q_bmdt, k_bmdt, v_bmdt = qkv_bmdt.chunk(3, dim=1)
        q_bmtd = (q_bmdt * HEAD_CHANNELS**-0.5).transpose(-2, -1)
        weights_bmqk = torch.softmax(torch.matmul(q_bmtd, k_bmdt), dim=-1)
        mixed_bmdt = torch.matmul(v_bmdt, weights_bmqk.transpose(-2, -1))
        return torch.add(x_nchw, self.project(mixed_bmdt.reshape(n, c, h, w)))
