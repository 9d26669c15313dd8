"""The phases of a vision-language network as torch functions with inputs that make sense to it, and whether they agree.

Layout of tensors: i image token, t text token, c channels, v vocabulary.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from search_spaces.blocks.language_model import Decode
from search_spaces.blocks.vision_language_model import EncodeImage, VisionLanguageModel, VisionLanguagePrefill
from search_spaces.candidate import Candidate
from search_spaces.entry import INPUT_SEED, EntryPoint
from search_spaces.language_entry import (
    CHECKED_TOKENS,
    Agreement,
    compare_decoding,
    fixed_tokens,
    prefilled_state,
)
from search_spaces.language_layers import parse_phase
from search_spaces.space import Phase
from search_spaces.vision_language_layers import ENCODE_IMAGE, image_tokens_of, num_positions


def vision_language_entry(model: nn.Module, candidate: Candidate, phase: Phase) -> EntryPoint:
    """The entry point of `phase`: a random image, its tokens as the network makes them, random text.

    Decode stands at three quarters of its text, on a state that the network itself came to, with noise in the slots
    that hold no token yet.
    """
    network = cast(VisionLanguageModel, model)
    image = fixed_image(candidate)
    if phase.name == ENCODE_IMAGE:
        return EntryPoint(module=EncodeImage(network), inputs=(image,))
    kind, context = parse_phase(phase.name)
    slots = num_positions(candidate, context)
    with torch.no_grad():
        image_bic = network.encode_image(image).contiguous()
    tokens = fixed_tokens(candidate, context + 1)
    if kind == "prefill":
        module = VisionLanguagePrefill(network, slots)
        return EntryPoint(module=module, inputs=(image_bic, tokens[None, :context]))
    fed = max(1, context - context // 4)
    x_bsc = _sequence(network, image_bic, tokens[:fed])
    state = prefilled_state(network, candidate, x_bsc, slots, noise=True)
    position = torch.tensor([image_tokens_of(candidate) + fed], dtype=torch.int32)
    return EntryPoint(module=Decode(network), inputs=(tokens[fed : fed + 1], position, *state))


def fixed_image(candidate: Candidate) -> Tensor:
    """A standard normal image (1, channels, h, w) of the size that `candidate` takes; the same in every process."""
    size = [candidate.input.integer(name) for name in ("channels", "height", "width")]
    return torch.randn(1, *size, generator=torch.Generator().manual_seed(INPUT_SEED))


def vision_language_agreement(model: nn.Module, candidate: Candidate, count: int = CHECKED_TOKENS) -> Agreement:
    """Encodes an image, prefills, decodes `count` tokens, and compares with one pass over image and text.

    Positions and slots count the tokens of the image: a phase that forgets them, or counts them otherwise than the
    whole pass does, differs from it.

    Args:
        model: the network of `candidate`, in evaluation mode.
        candidate: what it was made of.
        count: tokens to decode; prefill takes what they leave of the text, and at least one.
    """
    network = cast(VisionLanguageModel, model)
    context = candidate.input.integer("context")
    start = context - min(count, context - 1)
    image, tokens = fixed_image(candidate), fixed_tokens(candidate, context)
    with torch.no_grad():
        whole_tv = network(image, tokens[None].long())[0]
        x_bsc = _sequence(network, network.encode_image(image), tokens[:start])
    slots = num_positions(candidate)
    return compare_decoding(network, candidate, whole_tv[start - 1 :], x_bsc, tokens[start:], slots)


def vision_language_disagreement(model: nn.Module, candidate: Candidate, phase: Phase, tolerance: float) -> str | None:
    """What `vision_language_agreement` finds, in one line; None for the phases that decode goes on from."""
    if not phase.name.startswith("decode"):
        return None
    contradiction = vision_language_agreement(model, candidate).contradiction(tolerance)
    if contradiction is None:
        return None
    positions = num_positions(candidate)
    return (
        f"{phase.name}: encoding, prefilling and decoding contradict one pass over an image and its text, "
        f"{positions} tokens: {contradiction}"
    )


def _sequence(network: VisionLanguageModel, image_bic: Tensor, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([image_bic, network.embed(tokens[None])], dim=1)
