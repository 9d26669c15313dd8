"""The mixers and gated units that decoders of one scale choose among: shared by all spaces with a language backbone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from search_spaces.candidate import BlockSpec, CandidateError, Value
from search_spaces.layers import layers_of_block
from search_spaces.space import Choices, Suggest

_ATTENTION_OF_16 = (2, 5, 8, 10, 12, 14)
"""The six attention layers of LFM2's sixteen, counted from 0 (Liquid AI 2025, model configuration)."""


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
        reference_attention: layers of `lfm2_like` that are attention, from 0; None: where LFM2 has them.
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
    reference_attention: tuple[int, ...] | None = None

    def choose(self, suggest: Suggest) -> tuple[int, tuple[BlockSpec, ...]]:
        """The width, and mixers and units in turn.

        Asks for `width`, `depth`, `layer0.mixer`, `layer0.expansion`, ...; only for layers that exist.
        """
        width = suggest.choose("width", self.widths)
        blocks: list[BlockSpec] = []
        for layer in range(suggest.choose("depth", self.depths)):
            blocks.append(self.mixers[suggest.choose(f"layer{layer}.mixer", tuple(self.mixers))])
            expansion = suggest.choose(f"layer{layer}.expansion", self.expansions)
            blocks.append(BlockSpec.of("gated_unit", hidden=expansion * width))
        return width, tuple(blocks)

    def choices_of(self, width: int, blocks: Sequence[BlockSpec]) -> Choices:
        """The choices that make these mixers and units: the inverse of `choose`.

        Raises:
            CandidateError: blocks that are no pairs of a mixer and a unit of this scale.
        """
        if len(blocks) % 2:
            raise CandidateError(f"{len(blocks)} blocks after the embedding; allowed: pairs of mixer and gated unit")
        names = {block: name for name, block in self.mixers.items()}
        layers: list[tuple[str, int]] = []
        for mixer, unit in zip(blocks[::2], blocks[1::2], strict=True):
            if mixer not in names or unit.kind != "gated_unit" or unit.integer("hidden") % width:
                odd = mixer if mixer not in names else unit
                raise CandidateError(f"block {odd.to_json()} does not belong here: no such mixer or gated unit")
            layers.append((names[mixer], unit.integer("hidden") // width))
        return _choices(width, layers)

    def encode(self, choices: Choices) -> list[float]:
        """log2 width, depth, and per slot a one-hot mixer (none included) and log2 expansion."""
        vector = [math.log2(float(choices["width"])), float(choices["depth"])]
        for slot in range(max(self.depths)):
            mixer = choices.get(f"layer{slot}.mixer", "none")
            vector += [float(mixer == known) for known in (*self.mixers, "none")]
            vector.append(math.log2(float(choices.get(f"layer{slot}.expansion", 0.5))))
        return vector

    def references(self) -> dict[str, Choices]:
        """The zoo: `lfm2_like`, `attention_only`, `convolution_only`, `linear_only`, `window_only`, and both ends.

        All but `smallest` and `largest` (fewest and most parameters) have one width, depth and expansion, so that they
        differ in their mixers alone.
        """
        depth, kinds = self.reference_depth, self.mixers
        attention = self.reference_attention or attention_layers(depth)
        window, linear = (next(name for name in kinds if name.startswith(start)) for start in ("window", "linear"))
        mixes = {
            "lfm2_like": [self.attention if layer in attention else self.convolution for layer in range(depth)],
            "attention_only": [self.attention] * depth,
            "convolution_only": [self.convolution] * depth,
            "window_only": [window] * depth,
            "linear_only": [linear] * depth,
        }
        zoo = {
            name: _choices(self.reference_width, [(mixer, self.reference_expansion) for mixer in mixers])
            for name, mixers in mixes.items()
        }
        return zoo | {"smallest": self._extreme(0), "largest": self._extreme(-1)}

    def num_choices(self) -> int:
        """In how many ways `choose` can be answered: every answer changes the network, so answers can be counted."""
        per_layer = len(self.mixers) * len(self.expansions)
        combinations = [per_layer**depth for depth in self.depths]
        return len(self.widths) * int(sum(combinations))

    def expected_blocks(self, width: int) -> Iterator[tuple[float, BlockSpec]]:
        """Every mixer and unit, with the mean number of times that a random network of this width has it."""
        mean_depth = sum(self.depths) / len(self.depths)
        yield from ((mean_depth / len(self.mixers), block) for block in self.mixers.values())
        for expansion in self.expansions:
            yield mean_depth / len(self.expansions), BlockSpec.of("gated_unit", hidden=expansion * width)

    def _extreme(self, end: int) -> Choices:
        """The choices with the fewest (`end` 0) or most (-1) parameters."""
        width = sorted(self.widths)[end]
        params = {
            name: sum(layer.num_params for layer in layers_of_block(block, (1, 1, width))[0])
            for name, block in self.mixers.items()
        }
        mixer = sorted(params, key=lambda name: params[name])[end]
        return _choices(width, [(mixer, sorted(self.expansions)[end])] * sorted(self.depths)[end])


def mixers_of(
    heads_and_groups: Sequence[tuple[int, int]], head_channels: int, window: tuple[int, int, int], linear_heads: int
) -> dict[str, BlockSpec]:
    """Short convolutions of three sizes, attention of several numbers of heads, one window, one linear attention.

    Args:
        heads_and_groups: heads, and key and value heads, of each grouped attention.
        head_channels: of every head.
        window: heads, key and value heads, and tokens of the window.
        linear_heads: of linear attention.

    >>> list(mixers_of([(4, 1)], 32, (4, 1, 64), 4))
    ['conv_k3', 'conv_k5', 'conv_k7', 'attention_q4_kv1', 'window64_q4_kv1', 'linear_h4']
    """
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
