"""A decoder-only language model, its entry points `prefill` and `decode`, and the host's half of decoding.

Layout of tensors: b batch, t token, c channels, v vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from search_spaces.blocks.grouped_attention import GroupedAttention
from search_spaces.blocks.language_parts import (
    Embedding,
    LanguageHead,
    Rotation,
    State,
    TokenMixer,
    rotary_table,
    write_state,
)
from search_spaces.candidate import CandidateError

Step = Callable[..., tuple[Tensor, ...]]
"""A decode step: (token, position, *state) to (logits, *what is new of the state)."""


class LanguageModel(nn.Module):
    """Embedding, blocks, head; position i of a sequence predicts token i + 1.

    Args:
        blocks: an `Embedding`, then token mixers and gated units in any order; what comes before the embedding is
            not part of the sequence, and is for a class that inherits.
        head: shares the embedding's table.
        context: the longest sequence, in tokens.
        state_sizes: how many tensors each block keeps between tokens, 0 for those without memory.
    """

    def __init__(
        self, blocks: Sequence[nn.Module], head: LanguageHead, context: int, state_sizes: Sequence[int]
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.head = head
        self.context = context
        self.first_mixer = 1 + next(place for place, block in enumerate(blocks) if isinstance(block, Embedding))
        self.state_sizes = tuple(state_sizes)
        channels = {block.head_channels for block in blocks if isinstance(block, GroupedAttention)}
        if len(channels) > 1:
            raise CandidateError(f"attention heads of {sorted(channels)} channels in one network; allowed: one size")
        cosine, sine = rotary_table(context, channels.pop() if channels else 2)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (b, t) to logits (b, t, v).

        Raises:
            CandidateError: more tokens than the context.
        """
        return self.logits(self.embed(tokens))

    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens (...) to vectors (..., c)."""
        return cast(Tensor, self._embedding(tokens))

    def logits(self, x_btc: Tensor) -> Tensor:
        """Vectors of whole sequences to logits at every position, (b, t, v)."""
        return self.read(self.mix(x_btc))

    def mix(self, x_btc: Tensor) -> Tensor:
        """Vectors of whole sequences through all mixers and gated units."""
        rotation = self.rotation(x_btc.shape[1])
        for block, num_states in self._sequence():
            x_btc = block(x_btc, rotation) if num_states else block(x_btc)
        return x_btc

    def read(self, x_c: Tensor) -> Tensor:
        """Mixed vectors (..., c) to logits (..., v)."""
        return self.head.logits(x_c, self._embedding.table.weight)

    def prefill(self, x_btc: Tensor, context: int) -> tuple[Tensor, ...]:
        """Vectors of one sequence to the logits after its last token, (1, v), and the state for `context` tokens."""
        rotation = self.rotation(x_btc.shape[1])
        states: list[Tensor] = []
        for block, num_states in self._sequence():
            if num_states:
                x_btc, state = cast(TokenMixer, block).prefill(x_btc, rotation, context)
                states += state
            else:
                x_btc = block(x_btc)
        return (self.read(x_btc[:, -1]), *states)

    def decode(self, token: Tensor, position: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """One token at `position` (both int32, shape (1,)) to logits (1, v) and what is new of each state."""
        x_bc = self.embed(token)
        # A look-up of rows, not an index: ONNX indexes by 64-bit numbers only.
        cosine, sine = (functional.embedding(position, cast(Tensor, table)) for table in (self.cosine, self.sine))
        rotation = cosine, sine
        news: list[Tensor] = []
        place = 0
        for block, num_states in self._sequence():
            if num_states:
                before: State = states[place : place + num_states]
                x_bc, new = cast(TokenMixer, block).decode(x_bc, rotation, position, before)
                news += new
                place += num_states
            else:
                x_bc = block(x_bc)
        return (self.read(x_bc), *news)

    def rotation(self, tokens: int) -> Rotation:
        """The angles of positions 0 to `tokens` - 1."""
        if tokens > self.context:
            raise CandidateError(f"{tokens} tokens; allowed: at most {self.context}, the context of this network")
        return cast(Tensor, self.cosine)[:tokens], cast(Tensor, self.sine)[:tokens]

    @property
    def _embedding(self) -> Embedding:
        return cast(Embedding, self.blocks[self.first_mixer - 1])

    def _sequence(self) -> Iterator[tuple[nn.Module, int]]:
        """Mixers and gated units, and how many tensors each keeps."""
        return zip(self.blocks[self.first_mixer :], self.state_sizes[self.first_mixer :], strict=True)


class Prefill(nn.Module):
    """Entry point `prefill@n`: tokens (1, n) to the logits after the last, (1, v), and the state."""

    def __init__(self, model: LanguageModel, context: int) -> None:
        super().__init__()
        self.model, self.context = model, context

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """See the class."""
        return self.model.prefill(self.model.embed(tokens), self.context)


class Decode(nn.Module):
    """Entry point `decode@n`: one token, its position and the state of n slots to logits and what is new."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, position: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """See the class."""
        return self.model.decode(token, position, *states)


class Decoder:
    """The host's half of decoding: keeps the state of one sequence and calls a decode step, torch's or a compiled one.

    Args:
        step: the entry point `decode@n`.
        state: the state before the next token, shapes as the step wants them; the decoder changes it in place.
        position: tokens that went before.
    """

    def __init__(self, step: Step, state: Sequence[Tensor], position: int) -> None:
        self._step, self._state, self.position = step, [tensor.clone() for tensor in state], position

    def feed(self, token: int) -> Tensor:
        """The logits (v,) after one more token."""
        number = torch.tensor([token], dtype=torch.int32)
        with torch.no_grad():
            logits, *news = self._step(number, torch.tensor([self.position], dtype=torch.int32), *self._state)
        self._state = [
            write_state(old, new, self.position) for old, new in zip(self._state, news, strict=True)
        ]  # fmt: skip
        self.position += 1
        return logits[0]
