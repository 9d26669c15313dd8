"""From an image to vectors of the size of text tokens: a few strided convolutions, then a matrix.

Layout of tensors: n batch, c channels, h height, w width; t image token.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from search_spaces.vision_language_layers import stem_channels


class PatchStem(nn.Module):
    """Strided 3x3 convolutions instead of one large step to a patch (Xiao et al. 2021, section 3), ReLU after each.

    No norm at all. A batch norm would make one image's tokens depend on others; a norm of each token would blow the
    faint differences of an empty background up to the size of what stands before it. The convolutions start with gain
    for ReLU and no bias, so that a patch near the mean of all pixels stays small, and the bias of the last matrix gives
    such a token a size and a direction of its own, which the norms of the mixers then leave as it is.

    Args:
        channels_in: of the image.
        channels: of the first convolution, see `vision_language_layers.stem_channels`.
        patch: side of a patch in pixels, a power of two: so many pixels of a side become one token.
        width: channels of a token.
    """

    def __init__(self, channels_in: int, channels: int, patch: int, width: int) -> None:
        super().__init__()
        convs: list[nn.Module] = []
        for channels_out in stem_channels(channels, patch):
            conv = nn.Conv2d(channels_in, channels_out, 3, 2, 1)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            nn.init.zeros_(cast(nn.Parameter, conv.bias))
            convs.append(conv)
            channels_in = channels_out
        self.convs = nn.ModuleList(convs)
        self.project = nn.Linear(channels_in, width)
        nn.init.normal_(self.project.weight, std=channels_in**-0.5)
        nn.init.normal_(self.project.bias)

    def forward(self, x_nchw: Tensor) -> Tensor:
        """(n, channels, h, w) to (n, t, width), tokens row by row."""
        for conv in self.convs:
            x_nchw = conv(x_nchw).relu()
        return cast(Tensor, self.project(x_nchw.flatten(2).transpose(1, 2)))
