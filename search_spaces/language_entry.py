"""The phases of a language network as torch functions with inputs that make sense to it, and whether they agree.

Layout of tensors: t token, v vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from search_spaces.blocks.language_model import Decode, Decoder, LanguageModel, Prefill
from search_spaces.blocks.language_parts import slot_axis
from search_spaces.candidate import Candidate
from search_spaces.entry import INPUT_SEED, EntryPoint
from search_spaces.language_layers import network_state, parse_phase
from search_spaces.space import Phase

CHECKED_TOKENS = 8
"""Tokens that are decoded one by one beside a whole pass: the first after a prefill, and seven on a grown state."""


def language_entry(model: nn.Module, candidate: Candidate, phase: Phase) -> EntryPoint:
    """The entry point of `phase`: random tokens, and for decode a state that the network itself came to.

    Decode stands at three quarters of its context, with noise in the slots that hold no token yet: code that looks
    at the wrong slots answers wrongly.
    """
    network = cast(LanguageModel, model)
    kind, context = parse_phase(phase.name)
    tokens = fixed_tokens(candidate, context + 1)
    if kind == "prefill":
        return EntryPoint(module=Prefill(network, context), inputs=(tokens[None, :context],))
    position = max(1, context - context // 4)
    with torch.no_grad():
        x_btc = network.embed(tokens[None, :position])
    state = prefilled_state(network, candidate, x_btc, context, noise=True)
    inputs = (tokens[position : position + 1], torch.tensor([position], dtype=torch.int32), *state)
    return EntryPoint(module=Decode(network), inputs=inputs)


def fixed_tokens(candidate: Candidate, count: int) -> Tensor:
    """`count` random tokens of the vocabulary, int32; the same in every process."""
    generator = torch.Generator().manual_seed(INPUT_SEED)
    return torch.randint(candidate.head.integer("vocabulary"), (count,), generator=generator, dtype=torch.int32)


def prefilled_state(
    model: LanguageModel, candidate: Candidate, x_btc: Tensor, context: int, *, noise: bool = False
) -> list[Tensor]:
    """The state after the vectors of one sequence, in shapes for `context` tokens; empty slots hold zeros, or noise."""
    generator = torch.Generator().manual_seed(INPUT_SEED + 1)
    with torch.no_grad():
        _, *states = model.prefill(x_btc, context)
    grown = []
    for spec, state in zip(network_state(candidate, context), states, strict=True):
        if tuple(state.shape) != spec.shape:
            empty = torch.randn(spec.shape, generator=generator) if noise else torch.zeros(spec.shape)
            axis = slot_axis(spec.shape, state.shape)
            empty.narrow(axis, 0, state.shape[axis]).copy_(state)
            state = empty
        grown.append(state.contiguous())
    return grown


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far token-by-token decoding is from one pass over the whole sequence.

    Attributes:
        relative_error: largest difference of a logit, per unit of the largest logit.
        num_tokens: tokens that were decoded.
        first_other_token: position at which the most likely next token differs; None where all agree.
    """

    relative_error: float
    num_tokens: int
    first_other_token: int | None

    def contradiction(self, tolerance: float) -> str | None:
        """In what the two differ, by more than `tolerance` for logits; None where they agree."""
        if self.first_other_token is not None:
            return f"token {self.first_other_token} would be another one"
        if self.relative_error > tolerance:
            return f"logits differ by {self.relative_error:.2g} of the largest, allowed {tolerance:.2g}"
        return None


def decode_agreement(model: nn.Module, candidate: Candidate, context: int, count: int = CHECKED_TOKENS) -> Agreement:
    """Decodes `count` tokens after a prefill, and compares with the whole pass over the same tokens.

    A wrong position, a shifted or forgotten cache, a mask off by one: each makes the two differ.

    Args:
        model: the network of `candidate`, in evaluation mode.
        candidate: what it was made of.
        context: slots of the state; prefill takes what `count` leaves of it, and at least one token.
        count: tokens to decode.
    """
    network = cast(LanguageModel, model)
    count = min(count, context - 1)
    tokens = fixed_tokens(candidate, context)
    start = context - count
    with torch.no_grad():
        whole_tv = network(tokens[None].long())[0]
        x_btc = network.embed(tokens[None, :start])
    return compare_decoding(network, candidate, whole_tv[start - 1 :], x_btc, tokens[start:], context)


def compare_decoding(
    model: LanguageModel, candidate: Candidate, wanted_tv: Tensor, x_btc: Tensor, tokens: Tensor, slots: int
) -> Agreement:
    """Prefills with vectors, decodes `tokens` one by one, and compares with the logits of one whole pass.

    Args:
        model: the network of `candidate`, in evaluation mode.
        candidate: what it was made of.
        wanted_tv: logits after the last vector, and after each token.
        x_btc: the vectors of what goes before the tokens.
        tokens: what is decoded.
        slots: of the state.
    """
    start = x_btc.shape[1]
    with torch.no_grad():
        first, *_ = model.prefill(x_btc, slots)
    decoder = Decoder(model.decode, prefilled_state(model, candidate, x_btc, slots), start)
    steps_tv = torch.stack([first[0], *[decoder.feed(int(token)) for token in tokens]])
    error = float((steps_tv - wanted_tv).abs().max() / wanted_tv.abs().max())
    margin = wanted_tv.topk(2, dim=-1).values
    # Two tokens that are equally likely within rounding are both the right answer.
    is_sure = margin[:, 0] - margin[:, 1] > error * wanted_tv.abs().max()
    others = torch.nonzero((steps_tv.argmax(-1) != wanted_tv.argmax(-1)) & is_sure)
    first_other = None if not len(others) else start + int(others[0])
    return Agreement(relative_error=error, num_tokens=len(tokens), first_other_token=first_other)


def language_disagreement(model: nn.Module, candidate: Candidate, phase: Phase, tolerance: float) -> str | None:
    """What `decode_agreement` finds at the context of `decode@n`, which starts with a prefill, in one line.

    None for `prefill@n`: decode at the same context goes on from it.
    """
    kind, context = parse_phase(phase.name)
    if kind != "decode" or context < 2:
        return None
    contradiction = decode_agreement(model, candidate, context).contradiction(tolerance)
    if contradiction is None:
        return None
    return f"{phase.name}: decoding token by token contradicts one pass over {context} tokens: {contradiction}"
