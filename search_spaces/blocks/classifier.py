"""The head of an image classifier, and the network that it ends.

Layout of tensors: n batch, c channels, h height, w width, k classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn


class Classifier(nn.Module):
    """Mean over the map, then a linear layer to one logit a class."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, classes)

    def forward(self, x_nchw: Tensor) -> Tensor:
        """(n, channels, h, w) to logits (n, classes)."""
        return cast(Tensor, self.linear(x_nchw.mean(dim=(2, 3))))


class ImageClassifier(nn.Module):
    """Blocks one after the other, then the head; its parameters' names follow the candidate's order of blocks."""

    def __init__(self, blocks: Sequence[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*blocks)
        self.head = head

    def forward(self, image: Tensor) -> Tensor:
        """Images (n, channels, height, width) to logits (n, classes)."""
        return cast(Tensor, self.head(self.blocks(image)))
