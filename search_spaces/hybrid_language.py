"""The language spaces: decoders that mix short convolutions with three kinds of attention, after LFM2.

Each layer chooses a token mixer and the width of its gated unit. A mix without attention and one with attention only
are both in the space: it must contain the losers. The same space at 350 million and 1.2 billion parameters describes
and costs networks nobody trains here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from search_spaces.candidate import BlockSpec, Candidate, CandidateError, TensorSpec, Value
from search_spaces.kernels import Kernel, heavy_kernels
from search_spaces.language_layers import network_state, parse_phase
from search_spaces.layer import Layer
from search_spaces.layers import input_shape, layers_of, layers_of_block, state_bytes
from search_spaces.space import Choices, Phase, Suggest, replay

MIN_CONTEXT = 8
"""A shorter context has nothing to mix: a quarter of it is already two tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageScale:
    """What the networks of one scale are made of.

    Attributes:
        widths: channels of the network.
        depths: numbers of layers, a mixer and a gated unit each.
        mixers: answer to a `.mixer` question to the block that it puts into the candidate.
        expansions: widths of the gated unit, per channel of the network.
        attention, convolution: the mixers of the references.
        reference_width, reference_expansion, reference_depth: of the references.
    """

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    mixers: Mapping[str, BlockSpec]
    expansions: tuple[int, ...]
    attention: str
    convolution: str
    reference_width: int
    reference_expansion: int
    reference_depth: int


def _mixers(
    heads_and_groups: Sequence[tuple[int, int]], head_channels: int, window: tuple[int, int, int], linear_heads: int
) -> dict[str, BlockSpec]:
    """Short convolutions of three sizes, attention of several numbers of heads, one window, one linear attention."""
    mixers = {f"conv_k{kernel}": BlockSpec.of("short_convolution", kernel=kernel) for kernel in (3, 5, 7)}
    for heads, groups in heads_and_groups:
        mixers[f"attention_q{heads}_kv{groups}"] = BlockSpec.of(
            "grouped_attention", heads=heads, groups=groups, head_channels=head_channels
        )
    heads, groups, size = window
    mixers[f"window{size}_q{heads}_kv{groups}"] = BlockSpec.of(
        "window_attention", heads=heads, groups=groups, head_channels=head_channels, window=size
    )
    mixers[f"linear_h{linear_heads}"] = BlockSpec.of(
        "linear_attention", heads=linear_heads, head_channels=head_channels
    )
    return mixers


SCALES: dict[str, LanguageScale] = {
    "hybrid_language": LanguageScale(
        widths=(128, 192, 256),
        depths=(2, 4, 6),
        mixers=_mixers(((4, 1), (4, 4), (8, 2)), 32, (4, 1, 64), 4),
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
        mixers=_mixers(((16, 4), (16, 8), (16, 16)), 64, (16, 8, 1024), 16),
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
        mixers=_mixers(((32, 4), (32, 8), (32, 32)), 64, (32, 8, 1024), 32),
        expansions=(2, 3, 4),
        attention="attention_q32_kv8",
        convolution="conv_k3",
        reference_width=2048,
        reference_expansion=4,
        reference_depth=16,
    ),
}
"""Name of each language space to its scale."""

_ATTENTION_OF_16 = (2, 5, 8, 10, 12, 14)
"""The six attention layers of LFM2's sixteen, counted from 0 (Liquid AI 2025, model configuration)."""


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
        self._names = {block: name for name, block in self.scale.mixers.items()}

    def sample(self, suggest: Suggest) -> Candidate:
        """Asks for `width`, `depth`, `layer0.mixer`, `layer0.expansion`, ...; only for layers that exist."""
        width = suggest.choose("width", self.scale.widths)
        blocks = [BlockSpec.of("embedding", vocabulary=self.head.integer("vocabulary"), width=width)]
        for layer in range(suggest.choose("depth", self.scale.depths)):
            blocks.append(self.scale.mixers[suggest.choose(f"layer{layer}.mixer", tuple(self.scale.mixers))])
            expansion = suggest.choose(f"layer{layer}.expansion", self.scale.expansions)
            blocks.append(BlockSpec.of("gated_unit", hidden=expansion * width))
        return Candidate(
            space=self.name, space_version=self.version, input=self.input, blocks=tuple(blocks), head=self.head
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
        choices = self.choices_of(candidate)
        vector = [math.log2(float(choices["width"])), float(choices["depth"])]
        for slot in range(max(self.scale.depths)):
            mixer = choices.get(f"layer{slot}.mixer", "none")
            vector += [float(mixer == known) for known in (*self.scale.mixers, "none")]
            vector.append(math.log2(float(choices.get(f"layer{slot}.expansion", 0.5))))
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
        blocks = candidate.blocks
        if len(blocks) % 2 == 0 or not blocks or blocks[0].kind != "embedding":
            raise CandidateError(f"candidate {candidate.candidate_id}: not an embedding and pairs of mixer and unit")
        width = blocks[0].integer("width")
        layers: list[tuple[str, int]] = []
        for mixer, unit in zip(blocks[1::2], blocks[2::2], strict=True):
            if mixer not in self._names or unit.kind != "gated_unit" or unit.integer("hidden") % width:
                odd = mixer if mixer not in self._names else unit
                raise CandidateError(f"block {odd.to_json()} does not belong here in space {self.name!r}")
            layers.append((self._names[mixer], unit.integer("hidden") // width))
        choices = _choices(width, layers)
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
        scale = self.scale
        depth, kinds = scale.reference_depth, scale.mixers
        window, linear = (next(name for name in kinds if name.startswith(start)) for start in ("window", "linear"))
        mixes = {
            "lfm2_like": [
                scale.attention if layer in attention_layers(depth) else scale.convolution for layer in range(depth)
            ],
            "attention_only": [scale.attention] * depth,
            "convolution_only": [scale.convolution] * depth,
            "window_only": [window] * depth,
            "linear_only": [linear] * depth,
        }
        zoo = {
            name: _choices(scale.reference_width, [(mixer, scale.reference_expansion) for mixer in mixers])
            for name, mixers in mixes.items()
        }
        return zoo | {"smallest": self._extreme(0), "largest": self._extreme(-1)}

    def num_candidates(self) -> int:
        """The exact number of candidates: every answer changes the network, so answers can be counted."""
        per_layer = len(self.scale.mixers) * len(self.scale.expansions)
        combinations = [per_layer**depth for depth in self.scale.depths]
        return len(self.scale.widths) * int(sum(combinations))

    def kernels(self) -> tuple[Kernel, ...]:
        """Every distinct heavy kernel of decode and prefill at the whole context, the largest share of work first."""
        return heavy_kernels(self._expected_layers())

    def _expected_layers(self) -> Iterator[tuple[float, Layer]]:
        """Every layer that an option brings in both phases, with the mean number of times a candidate has it."""
        scale, context = self.scale, self.input.integer("context")
        mean_depth = sum(scale.depths) / len(scale.depths)
        for width, kind in itertools.product(scale.widths, ("decode", "prefill")):
            tokens, past, _ = input_shape(self.input, f"{kind}@{context}")
            shape, chance = (tokens, past, width), 1 / len(scale.widths)
            embedding = BlockSpec.of("embedding", vocabulary=self.head.integer("vocabulary"), width=width)
            per_layer = mean_depth * chance
            blocks = [(chance, embedding), (chance, self.head)]
            blocks += [(per_layer / len(scale.mixers), block) for block in scale.mixers.values()]
            blocks += [
                (per_layer / len(scale.expansions), BlockSpec.of("gated_unit", hidden=expansion * width))
                for expansion in scale.expansions
            ]
            for uses, block in blocks:
                yield from ((uses, layer) for layer in layers_of_block(block, shape)[0])

    def _extreme(self, end: int) -> Choices:
        """The choices with the fewest (`end` 0) or most (-1) parameters."""
        scale = self.scale
        width = sorted(scale.widths)[end]
        params = {
            name: sum(layer.num_params for layer in layers_of_block(block, (1, 1, width))[0])
            for name, block in scale.mixers.items()
        }
        mixer = sorted(params, key=lambda name: params[name])[end]
        return _choices(width, [(mixer, sorted(scale.expansions)[end])] * sorted(scale.depths)[end])

    def _check_own(self, candidate: Candidate) -> None:
        if (candidate.space, candidate.space_version) != (self.name, self.version):
            raise CandidateError(
                f"candidate is of space {candidate.space!r} version {candidate.space_version}; "
                f"this is {self.name!r} version {self.version}"
            )


def attention_layers(depth: int) -> tuple[int, ...]:
    """Which layers of an LFM2-like network are attention: the six of sixteen, or as far down for other depths.

    >>> attention_layers(16)
    (2, 5, 8, 10, 12, 14)
    >>> attention_layers(4)
    (2,)
    """
    if depth == 16:
        return _ATTENTION_OF_16
    return tuple(range(2, depth, 3))


def _choices(width: int, layers: Sequence[tuple[str, int]]) -> Choices:
    choices: dict[str, Value] = {"width": width, "depth": len(layers)}
    for index, (mixer, expansion) in enumerate(layers):
        choices[f"layer{index}.mixer"] = mixer
        choices[f"layer{index}.expansion"] = expansion
    return choices


def _prefill(context: int) -> Phase:
    return Phase(name=f"prefill@{context}", inputs=(TensorSpec(name="tokens", shape=(1, context), dtype="int32"),))


def _decode(candidate: Candidate, context: int) -> Phase:
    name = f"decode@{context}"
    assert parse_phase(name)
    first = tuple(TensorSpec(name=each, shape=(1,), dtype="int32") for each in ("token", "position"))
    return Phase(name=name, inputs=(*first, *network_state(candidate, context)))


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
