"""The language spaces: decoders that mix short convolutions with three kinds of attention, after LFM2.

Each layer chooses a token mixer and the width of its gated unit. A mix without attention and one with attention only
are both in the space: it must contain the losers. The same space at 350 million and 1.2 billion parameters describes
and costs networks nobody trains here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from search_spaces.candidate import BlockSpec, Candidate, CandidateError, TensorSpec
from search_spaces.kernels import Kernel, heavy_kernels
from search_spaces.language_layers import decode_inputs
from search_spaces.language_scale import LanguageScale, mixers_of
from search_spaces.layer import Layer
from search_spaces.layers import input_shape, layers_of, layers_of_block, state_bytes
from search_spaces.space import Choices, Phase, Suggest, replay

MIN_CONTEXT = 8
"""A shorter context has nothing to mix: a quarter of it is already two tokens."""


SCALES: dict[str, LanguageScale] = {
    "hybrid_language": LanguageScale(
        widths=(128, 192, 256),
        depths=(2, 4, 6),
        mixers=mixers_of(((4, 1), (4, 4), (8, 2)), 32, (4, 1, 64), 4),
        expansions=(1, 2, 4),
        attention="attention_q8_kv2",
        convolution="conv_k3",
        reference_width=192,
        reference_expansion=2,
        reference_depth=4,
    ),
    # Liquid AI's LFM2 of 350 million and 1.2 billion parameters: widths 1,024 and 2,048, 16 layers, ten of them
    # short convolutions and six attention (Liquid AI 2025, table 1).
    "hybrid_language_350m": LanguageScale(
        widths=(768, 1024, 1280),
        depths=(12, 16, 20),
        mixers=mixers_of(((16, 4), (16, 8), (16, 16)), 64, (16, 8, 1024), 16),
        expansions=(2, 3, 4),
        attention="attention_q16_kv8",
        convolution="conv_k3",
        reference_width=1024,
        reference_expansion=4,
        reference_depth=16,
    ),
    "hybrid_language_1b2": LanguageScale(
        widths=(1536, 2048, 2560),
        depths=(12, 16, 20),
        mixers=mixers_of(((32, 4), (32, 8), (32, 32)), 64, (32, 8, 1024), 32),
        expansions=(2, 3, 4),
        attention="attention_q32_kv8",
        convolution="conv_k3",
        reference_width=2048,
        reference_expansion=4,
        reference_depth=16,
    ),
}
"""Name of each language space to its scale."""


class HybridLanguageSpace:
    """Language models of one scale for one vocabulary and context.

    Args:
        input: `BlockSpec.of("text", context=, vocabulary=)`: the longest sequence in tokens, at least 8.
        head: `BlockSpec.of("language_model", vocabulary=)`, the same vocabulary.
        name: one of `SCALES`.

    Raises:
        CandidateError: an input or head that no candidate could have.
    """

    version: int = 1
    task_kind: str = "language_modelling"

    def __init__(self, input: BlockSpec, head: BlockSpec, name: str = "hybrid_language") -> None:
        _check(name, input, head)
        self.name, self.input, self.head = name, input, head
        self.scale = SCALES[name]

    def sample(self, suggest: Suggest) -> Candidate:
        """Asks for `width`, `depth`, `layer0.mixer`, `layer0.expansion`, ...; only for layers that exist."""
        width, blocks = self.scale.choose(suggest)
        embedding = BlockSpec.of("embedding", vocabulary=self.head.integer("vocabulary"), width=width)
        return Candidate(
            space=self.name, space_version=self.version, input=self.input, blocks=(embedding, *blocks), head=self.head
        )

    def phases(self, candidate: Candidate) -> tuple[Phase, ...]:
        """Decode and prefill at the whole context, half of it and a quarter.

        `prefill@n`: `tokens` (1, n). `decode@n`: `token` and `position` (1,), then the state of n earlier tokens, named
        by block, see `language_layers.network_state`.
        """
        self._check_own(candidate)
        context = self.input.integer("context")
        lengths = (context, context // 2, context // 4)
        return tuple(phase for length in lengths for phase in (_decode(candidate, length), _prefill(length)))

    def encode(self, candidate: Candidate) -> tuple[float, ...]:
        """log2 width, depth, per slot a one-hot mixer (none included) and log2 expansion, then log MACs, params, state.

        Raises:
            CandidateError: this space cannot make `candidate`.
        """
        vector = self.scale.encode(self.choices_of(candidate))
        layers = layers_of(candidate)
        vector.append(math.log10(sum(layer.num_macs for layer in layers)))
        vector.append(math.log10(sum(layer.num_params for layer in layers)))
        bytes_of_state = state_bytes(candidate, f"decode@{self.input.integer('context')}")
        vector.append(math.log10(float(bytes_of_state or 1)))
        return tuple(vector)

    def choices_of(self, candidate: Candidate) -> Choices:
        """The choices that make `candidate`: the inverse of `sample`.

        Raises:
            CandidateError: this space cannot make it.
        """
        self._check_own(candidate)
        first, *rest = candidate.blocks or (candidate.head,)
        if first.kind != "embedding":
            raise CandidateError(f"block {first.to_json()} does not belong here: space {self.name!r} has an embedding")
        choices = self.scale.choices_of(first.integer("width"), rest)
        if replay(self, choices) != candidate:
            raise CandidateError(
                f"candidate {candidate.candidate_id} is for other data: it has {candidate.input.to_json()} and "
                f"{candidate.head.to_json()}, this space {self.input.to_json()} and {self.head.to_json()}"
            )
        return choices

    def references(self) -> Mapping[str, Choices]:
        """The zoo: `lfm2_like`, `attention_only`, `convolution_only`, `linear_only`, `window_only`, and both ends.

        All but `smallest` and `largest` (fewest and most parameters) have one width, depth and expansion, so that they
        differ in their mixers alone.
        """
        return self.scale.references()

    def num_candidates(self) -> int:
        """The exact number of candidates: every answer changes the network, so answers can be counted."""
        return self.scale.num_choices()

    def kernels(self) -> tuple[Kernel, ...]:
        """Every distinct heavy kernel of decode and prefill at the whole context, the largest share of work first."""
        return heavy_kernels(self._expected_layers())

    def _expected_layers(self) -> Iterator[tuple[float, Layer]]:
        """Every layer that an option brings in both phases, with the mean number of times a candidate has it."""
        context = self.input.integer("context")
        for width, kind in itertools.product(self.scale.widths, ("decode", "prefill")):
            tokens, past, _ = input_shape(self.input, f"{kind}@{context}")
            embedding = BlockSpec.of("embedding", vocabulary=self.head.integer("vocabulary"), width=width)
            for uses, block in [(1.0, embedding), (1.0, self.head), *self.scale.expected_blocks(width)]:
                layers, _ = layers_of_block(block, (tokens, past, width))
                yield from ((uses / len(self.scale.widths), layer) for layer in layers)

    def _check_own(self, candidate: Candidate) -> None:
        if (candidate.space, candidate.space_version) != (self.name, self.version):
            raise CandidateError(
                f"candidate is of space {candidate.space!r} version {candidate.space_version}; "
                f"this is {self.name!r} version {self.version}"
            )


def _prefill(context: int) -> Phase:
    return Phase(name=f"prefill@{context}", inputs=(TensorSpec(name="tokens", shape=(1, context), dtype="int32"),))


def _decode(candidate: Candidate, context: int) -> Phase:
    return Phase(name=f"decode@{context}", inputs=decode_inputs(candidate, context))


def _check(name: str, input: BlockSpec, head: BlockSpec) -> None:
    if input.kind != "text" or [key for key, _ in input.options] != ["context", "vocabulary"]:
        raise CandidateError(f"space {name!r}: input is {input.to_json()}; allowed: a text with context and vocabulary")
    if head.kind != "language_model" or [key for key, _ in head.options] != ["vocabulary"]:
        raise CandidateError(f"space {name!r}: head is {head.to_json()}; allowed: a language_model with a vocabulary")
    context, vocabulary = input.integer("context"), input.integer("vocabulary")
    if context < MIN_CONTEXT:
        raise CandidateError(f"space {name!r}: context is {context} tokens; allowed: {MIN_CONTEXT} or more")
    if vocabulary < 2 or vocabulary != head.integer("vocabulary"):
        raise CandidateError(
            f"space {name!r}: vocabulary is {vocabulary} of the input, {head.integer('vocabulary')} of the head; "
            "allowed: one number, 2 or more"
        )
