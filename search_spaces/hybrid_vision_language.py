"""Vision-language networks: image patches and text tokens in one backbone of convolutions and attention.

A small searched stem of convolutions makes tokens of an image; the mixers and gated units are those of
`hybrid_language`. A mix that cannot carry what it saw of the image to the answer is in the space as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from search_spaces.candidate import BlockSpec, Candidate, CandidateError, TensorSpec, Value
from search_spaces.hybrid_language import SCALES
from search_spaces.kernels import Kernel, heavy_kernels
from search_spaces.language_layers import decode_inputs
from search_spaces.language_scale import LanguageScale
from search_spaces.layer import Layer
from search_spaces.layers import layers_of_block, num_macs, num_params, state_bytes
from search_spaces.space import Choices, Phase, Suggest, replay
from search_spaces.vision_language_layers import ENCODE_IMAGE, image_tokens_of, num_image_tokens, num_positions

MIN_CONTEXT = 4
"""A question of one token, a separator, an answer of one token and its end."""

STEM_CHANNELS = (16, 32)
"""Channels of a stem's first convolution."""

PATCHES = (8, 16)
"""Sides of a patch in pixels: a patch of 8 has four times the tokens of one of 16."""

SCALE = LanguageScale(
    widths=(96, 128, 192),
    depths=(2, 4, 6),
    mixers=SCALES["hybrid_language"].mixers,
    expansions=SCALES["hybrid_language"].expansions,
    attention="attention_q8_kv2",
    convolution="conv_k3",
    reference_width=128,
    reference_expansion=2,
    reference_depth=4,
    # With one of four layers, the third, colours were learnt about six times more slowly than with two.
    reference_attention=(1, 3),
)
"""Backbones about half as wide as those of `hybrid_language`: sequences are short, and questions of few forms."""

REFERENCE_STEM: Mapping[str, Value] = {"stem.channels": 16, "stem.patch": 16}
"""The stem of the references that differ in their mixers alone."""


class HybridVisionLanguageSpace:
    """Networks that answer in text a question about an image.

    Args:
        input: `BlockSpec.of("image_text", channels=, height=, width=, context=, vocabulary=)`: the image, the longest
            text in tokens (question, answer and what marks their ends), and how many different tokens there are.
        head: `BlockSpec.of("vision_language_model", vocabulary=)`, the same vocabulary.

    Raises:
        CandidateError: an input or head that no candidate could have.
    """

    name: str = "hybrid_vision_language"
    version: int = 1
    task_kind: str = "visual_question_answering"

    def __init__(self, input: BlockSpec, head: BlockSpec) -> None:
        _check(input, head)
        self.input, self.head = input, head
        self.scale = SCALE

    def sample(self, suggest: Suggest) -> Candidate:
        """Asks for `stem.channels`, `stem.patch`, then as `LanguageScale.choose` does."""
        channels = suggest.choose("stem.channels", STEM_CHANNELS)
        patch = suggest.choose("stem.patch", PATCHES)
        width, blocks = self.scale.choose(suggest)
        first = self._stem(channels, patch, width), self._embedding(width)
        return Candidate(
            space=self.name, space_version=self.version, input=self.input, blocks=(*first, *blocks), head=self.head
        )

    def phases(self, candidate: Candidate) -> tuple[Phase, ...]:
        """`prefill@T`, `encode_image` and `decode@T`, T tokens of text after the tokens of the image.

        `prefill@T`: `image_tokens` (1, i, width), `tokens` (1, T). `encode_image`: `image` (1, channels, height,
        width). `decode@T`: `token` and `position` (1,), the image's tokens counted, then the state.
        """
        self._check_own(candidate)
        context, width = self.input.integer("context"), candidate.blocks[0].integer("width")
        image_tokens = TensorSpec(name="image_tokens", shape=(1, image_tokens_of(candidate), width))
        tokens = TensorSpec(name="tokens", shape=(1, context), dtype="int32")
        image = TensorSpec(name="image", shape=(1, *self._image_shape))
        return (
            Phase(name=f"prefill@{context}", inputs=(image_tokens, tokens)),
            Phase(name=ENCODE_IMAGE, inputs=(image,)),
            Phase(name=f"decode@{context}", inputs=decode_inputs(candidate, num_positions(candidate))),
        )

    def encode(self, candidate: Candidate) -> tuple[float, ...]:
        """log2 stem channels and patch, the backbone (see `LanguageScale.encode`), then log MACs, params, state.

        MACs are those of an image and a prefill.

        Raises:
            CandidateError: this space cannot make `candidate`.
        """
        choices = self.choices_of(candidate)
        vector = [math.log2(float(choices[name])) for name in ("stem.channels", "stem.patch")]
        vector += self.scale.encode(choices)
        prefill, encode_image, decode = (phase.name for phase in self.phases(candidate))
        macs = num_macs(candidate, prefill) + num_macs(candidate, encode_image)
        state = state_bytes(candidate, decode) or 1
        return (*vector, math.log10(macs), math.log10(num_params(candidate)), math.log10(state))

    def choices_of(self, candidate: Candidate) -> Choices:
        """The choices that make `candidate`: the inverse of `sample`.

        Raises:
            CandidateError: this space cannot make it.
        """
        self._check_own(candidate)
        kinds = [block.kind for block in candidate.blocks[:2]]
        if kinds != ["patch_stem", "embedding"]:
            raise CandidateError(f"candidate {candidate.candidate_id} begins with {kinds}; allowed: stem, embedding")
        stem, _, *rest = candidate.blocks
        first = {"stem.channels": stem.integer("channels"), "stem.patch": stem.integer("patch")}
        choices = {**first, **self.scale.choices_of(stem.integer("width"), rest)}
        if replay(self, choices) != candidate:
            raise CandidateError(
                f"candidate {candidate.candidate_id} is for other data: it has {candidate.input.to_json()} and "
                f"{candidate.head.to_json()}, this space {self.input.to_json()} and {self.head.to_json()}"
            )
        return choices

    def references(self) -> Mapping[str, Choices]:
        """The zoo of `LanguageScale`, `lfm2_like` first; both ends have the stem with the fewest or most parameters."""
        smallest = {"stem.channels": min(STEM_CHANNELS), "stem.patch": min(PATCHES)}
        largest = {"stem.channels": max(STEM_CHANNELS), "stem.patch": max(PATCHES)}
        stems = {"smallest": smallest, "largest": largest}
        return {
            name: {**stems.get(name, REFERENCE_STEM), **choices} for name, choices in self.scale.references().items()
        }

    def num_candidates(self) -> int:
        """The exact number of candidates: every answer changes the network, so answers can be counted."""
        return len(STEM_CHANNELS) * len(PATCHES) * self.scale.num_choices()

    def kernels(self) -> tuple[Kernel, ...]:
        """Every distinct heavy kernel of all phases, the largest share of work first."""
        return heavy_kernels(self._expected_layers())

    def _expected_layers(self) -> Iterator[tuple[float, Layer]]:
        """Every layer that an option brings in each phase, with the mean number of times a candidate has it."""
        context = self.input.integer("context")
        _, height, image_width = self._image_shape
        for width in self.scale.widths:
            chance = 1 / len(self.scale.widths)
            for channels in STEM_CHANNELS:
                for patch in PATCHES:
                    layers, _ = layers_of_block(self._stem(channels, patch, width), self._image_shape)
                    yield from ((chance / len(STEM_CHANNELS) / len(PATCHES), layer) for layer in layers)
            for patch in PATCHES:
                positions = num_image_tokens(height, image_width, patch) + context
                for shape in ((positions, 0, width), (1, positions, width)):
                    for uses, block in ((1.0, self.head), *self.scale.expected_blocks(width)):
                        layers, _ = layers_of_block(block, shape)
                        yield from ((uses * chance / len(PATCHES), layer) for layer in layers)

    @property
    def _image_shape(self) -> tuple[int, int, int]:
        return self.input.integer("channels"), self.input.integer("height"), self.input.integer("width")

    def _stem(self, channels: int, patch: int, width: int) -> BlockSpec:
        return BlockSpec.of("patch_stem", channels=channels, patch=patch, width=width)

    def _embedding(self, width: int) -> BlockSpec:
        return BlockSpec.of("embedding", vocabulary=self.head.integer("vocabulary"), width=width)

    def _check_own(self, candidate: Candidate) -> None:
        if (candidate.space, candidate.space_version) != (self.name, self.version):
            raise CandidateError(
                f"candidate is of space {candidate.space!r} version {candidate.space_version}; "
                f"this is {self.name!r} version {self.version}"
            )


def _check(input: BlockSpec, head: BlockSpec) -> None:
    space = "space 'hybrid_vision_language'"
    names = ["channels", "context", "height", "vocabulary", "width"]
    if input.kind != "image_text" or [key for key, _ in input.options] != names:
        raise CandidateError(f"{space}: input is {input.to_json()}; allowed: an image_text with {', '.join(names)}")
    if head.kind != "vision_language_model" or [key for key, _ in head.options] != ["vocabulary"]:
        raise CandidateError(f"{space}: head is {head.to_json()}; allowed: a vision_language_model with a vocabulary")
    sides = [input.integer(name) for name in ("channels", "height", "width")]
    if min(sides) < 1:
        raise CandidateError(f"{space}: image of {sides} channels, rows and columns; allowed: 1 or more of each")
    if input.integer("context") < MIN_CONTEXT:
        raise CandidateError(f"{space}: context is {input.integer('context')} tokens; allowed: {MIN_CONTEXT} or more")
    vocabulary = input.integer("vocabulary")
    if vocabulary < 2 or vocabulary != head.integer("vocabulary"):
        raise CandidateError(
            f"{space}: vocabulary is {vocabulary} of the input, {head.integer('vocabulary')} of the head; "
            "allowed: one number, 2 or more"
        )
