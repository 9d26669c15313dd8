"""A decoder that reads an image before its text, and its entry points.

Layout of tensors: b batch, h height, w width; i image token, t text token, c channels, v vocabulary.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from search_spaces.blocks.language_model import LanguageModel


class VisionLanguageModel(LanguageModel):
    """A language model whose sequences begin with the tokens of one image (Liu et al. 2023, section 4.1).

    Image and text are one causal sequence: an image token sees those before it, text sees all of the image. The first
    block is a `PatchStem`, the second the `Embedding`; `context` counts tokens of both.
    """

    def forward(self, image: Tensor, tokens: Tensor) -> Tensor:  # type: ignore[override]
        """Images (b, channels, h, w) and text (b, t) to logits (b, t, v): those of the text positions alone.

        Raises:
            CandidateError: more tokens than the context leaves beside the image.
        """
        image_bic = self.encode_image(image)
        x_bsc = self.mix(torch.cat([image_bic, self.embed(tokens)], dim=1))
        return self.read(x_bsc[:, image_bic.shape[1] :])

    def encode_image(self, image: Tensor) -> Tensor:
        """Images (b, channels, h, w) to vectors (b, i, c)."""
        return cast(Tensor, self.blocks[0](image))


class EncodeImage(nn.Module):
    """Entry point `encode_image`: one image to its tokens (1, i, c)."""

    def __init__(self, model: VisionLanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        """See the class."""
        return self.model.encode_image(image)


class VisionLanguagePrefill(nn.Module):
    """Entry point `prefill@n`: image tokens (1, i, c) and text (1, n) to the logits after the last, and the state."""

    def __init__(self, model: VisionLanguageModel, slots: int) -> None:
        super().__init__()
        self.model, self.slots = model, slots

    def forward(self, image_tokens: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        """See the class."""
        return self.model.prefill(torch.cat([image_tokens, self.model.embed(tokens)], dim=1), self.slots)
