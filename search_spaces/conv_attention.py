"""The vision space `conv_attention`: three stages that mix inverted residuals, ConvNeXt-style blocks and attention.

Blocks inside a stage keep its width, so that few distinct kernels serve the whole space and one tuning
database covers it (`kernels`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from search_spaces.candidate import BlockSpec, Candidate, CandidateError, TensorSpec, Value
from search_spaces.image_layers import HEAD_CHANNELS
from search_spaces.kernels import Kernel, heavy_kernels
from search_spaces.layer import Layer, Shape
from search_spaces.layers import input_shape, layers_of, layers_of_block
from search_spaces.space import Choices, Phase, Suggest, replay

ATTENTION, CONVNEXT = "attention", "convnext"

LAYER_KINDS: dict[str, BlockSpec] = {
    "inverted_residual_k3_e2": BlockSpec.of("inverted_residual", kernel=3, expansion=2),
    "inverted_residual_k3_e4": BlockSpec.of("inverted_residual", kernel=3, expansion=4),
    "inverted_residual_k5_e2": BlockSpec.of("inverted_residual", kernel=5, expansion=2),
    "inverted_residual_k5_e4": BlockSpec.of("inverted_residual", kernel=5, expansion=4),
    CONVNEXT: BlockSpec.of("convnext"),
    ATTENTION: BlockSpec.of("attention"),
}
"""Answer to a `.kind` question to the block that it puts into the candidate."""

MAX_TOKENS = 256
"""Attention is offered up to here: both its products grow with the square of the map's area."""

MIN_TOKENS = 2
"""With one token the softmax is constant: queries and keys would never get a gradient."""

MIN_SIDE = 4
"""The two downsamplings leave at least one pixel, and an image smaller than this is no image."""

FULL_SIZE_SIDE, HALF_SIZE_SIDE = 16, 64
"""Longest side up to which the stem keeps the size, or halves it; larger images are quartered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """What one stage can be: its widths in channels and its numbers of layers."""

    widths: tuple[int, ...]
    depths: tuple[int, ...] = (1, 2, 3)


STAGES = (
    StageOptions(widths=(32, 64)),
    StageOptions(widths=(64, 128)),
    StageOptions(widths=(128, 256)),
)

_REFERENCE_WIDTHS = (32, 128, 256)
_REFERENCE_KINDS = (
    ("inverted_residual_k3_e4", "inverted_residual_k3_e4"),
    ("inverted_residual_k3_e4", "inverted_residual_k5_e2"),
    ("inverted_residual_k3_e4", CONVNEXT),
)


class ConvAttentionSpace:
    """Image classifiers of three stages for one image size and number of classes.

    The stem is a 3x3 convolution (two strided ones for images above 64 pixels); stages 2 and 3 begin with a
    3x3 convolution of stride 2; the head is a global average pool and a linear layer.

    Args:
        input: `BlockSpec.of("image", channels=, height=, width=)`, at least 4x4.
        head: `BlockSpec.of("classifier", classes=)`, at least 2.

    Raises:
        CandidateError: an input or head that no candidate could have.
    """

    name: str = "conv_attention"
    version: int = 1
    task_kind: str = "image_classification"
    stages: tuple[StageOptions, ...] = STAGES

    def __init__(self, input: BlockSpec, head: BlockSpec) -> None:
        _check_input(input)
        _check_head(head)
        self.input = input
        self.head = head
        self._input_shape = input_shape(input)
        self._stem_stride = _stem_stride(self._input_shape)
        # They depend on the image alone, and every layer of every candidate asks for them.
        self._kinds = tuple(self._kinds_in(stage) for stage in range(len(self.stages)))

    def sample(self, suggest: Suggest) -> Candidate:
        """Asks for `stage1.width`, `stage1.depth`, `stage1.layer0.kind`, ...; only for layers that exist."""
        blocks: list[BlockSpec] = []
        for index, stage in enumerate(self.stages):
            name = f"stage{index + 1}"
            width = suggest.choose(f"{name}.width", stage.widths)
            blocks.append(self._entry(index, width))
            for layer in range(suggest.choose(f"{name}.depth", stage.depths)):
                blocks.append(LAYER_KINDS[suggest.choose(f"{name}.layer{layer}.kind", self.kinds(index))])
        return Candidate(
            space=self.name, space_version=self.version, input=self.input, blocks=tuple(blocks), head=self.head
        )

    def phases(self, candidate: Candidate) -> tuple[Phase, ...]:
        """One phase, `infer`: a single image `image` of shape (1, channels, height, width)."""
        self._check_own(candidate)
        return (Phase(name="infer", inputs=(TensorSpec(name="image", shape=(1, *input_shape(candidate.input))),)),)

    def encode(self, candidate: Candidate) -> tuple[float, ...]:
        """Per stage log2 width, depth and a one-hot kind for each layer slot (none included), then log MACs, params.

        Raises:
            CandidateError: this space cannot make `candidate`.
        """
        choices = self.choices_of(candidate)
        vector: list[float] = []
        for index, stage in enumerate(self.stages, start=1):
            vector += [math.log2(float(choices[f"stage{index}.width"])), float(choices[f"stage{index}.depth"])]
            for slot in range(max(stage.depths)):
                kind = choices.get(f"stage{index}.layer{slot}.kind", "none")
                vector += [float(kind == known) for known in (*LAYER_KINDS, "none")]
        layers = layers_of(candidate)
        vector.append(math.log10(sum(layer.num_macs for layer in layers)))
        vector.append(math.log10(sum(layer.num_params for layer in layers)))
        return tuple(vector)

    def choices_of(self, candidate: Candidate) -> Choices:
        """The choices that make `candidate`: the inverse of `sample`.

        Raises:
            CandidateError: this space cannot make it.
        """
        self._check_own(candidate)
        names = {block: kind for kind, block in LAYER_KINDS.items()}
        widths: list[int] = []
        kinds: list[list[str]] = []
        for block in candidate.blocks:
            if block.kind in ("stem", "downsample"):
                widths.append(block.integer("width"))
                kinds.append([])
            elif kinds and block in names:
                kinds[-1].append(names[block])
            else:
                raise CandidateError(f"block {block.to_json()} does not belong here in space {self.name!r}")
        choices = self._choices(widths, kinds)
        if replay(self, choices) != candidate:
            raise CandidateError(
                f"candidate {candidate.candidate_id} is for other data, or has a block that is not offered: it has "
                f"{candidate.input.to_json()} and {candidate.head.to_json()}, this space {self.input.to_json()} "
                f"and {self.head.to_json()}"
            )
        return choices

    def references(self) -> Mapping[str, Choices]:
        """`reference`, `convolution_only`, `attention_heavy`, `smallest` and `largest` (fewest and most MACs).

        The reference is a convolution network whose last layer is attention. About 65 to 75% of random candidates
        have fewer MACs, so that a budget taken from it is neither out of reach nor idle. Where the last map is too
        small or too large for attention, its place is taken by a ConvNeXt-style block.
        """
        last = len(self.stages) - 1
        plain = [list(kinds) for kinds in _REFERENCE_KINDS[: last + 1]]
        reference = [*plain[:last], [*plain[last][:-1], ATTENTION]]
        return {
            "reference": self._choices(_REFERENCE_WIDTHS, reference),
            "convolution_only": self._choices(_REFERENCE_WIDTHS, plain),
            "attention_heavy": self._choices(_REFERENCE_WIDTHS, [[ATTENTION] * len(kinds) for kinds in plain]),
            "smallest": self._extreme(0),
            "largest": self._extreme(-1),
        }

    def kinds(self, stage: int) -> tuple[str, ...]:
        """The layer kinds offered in a stage, counted from 0: attention only where its map is small enough."""
        return self._kinds[stage]

    def _kinds_in(self, stage: int) -> tuple[str, ...]:
        _, height, width = self._shape_in(stage)
        offers_attention = MIN_TOKENS <= height * width <= MAX_TOKENS
        return tuple(kind for kind in LAYER_KINDS if kind != ATTENTION or offers_attention)

    def num_candidates(self) -> int:
        """The exact number of candidates: every answer changes the network, so answers can be counted."""
        count = 1
        for index, stage in enumerate(self.stages):
            num_kinds = len(self.kinds(index))
            count *= len(stage.widths) * sum(num_kinds**depth for depth in stage.depths)
        return count

    def kernels(self) -> tuple[Kernel, ...]:
        """Every distinct heavy kernel, from the options alone; the largest share of the work first."""
        return heavy_kernels(self._expected_layers())

    def _expected_layers(self) -> Iterator[tuple[float, Layer]]:
        """Every layer that an option brings, with the mean number of times a random candidate has it."""
        widths_before: tuple[int, ...] = (self._input_shape[0],)
        for index, stage in enumerate(self.stages):
            for width in stage.widths:
                for before in widths_before:
                    chance = 1 / len(stage.widths) / len(widths_before)
                    entry, _ = layers_of_block(self._entry(index, width), (before, *self._map_before(index)))
                    yield from ((chance, layer) for layer in entry)
                kinds = self.kinds(index)
                uses = sum(stage.depths) / len(stage.depths) / len(kinds) / len(stage.widths)
                for kind in kinds:
                    layers, _ = layers_of_block(LAYER_KINDS[kind], self._shape_in(index, width))
                    yield from ((uses, layer) for layer in layers)
            widths_before = stage.widths
        for width in widths_before:
            head, _ = layers_of_block(self.head, self._shape_in(len(self.stages) - 1, width))
            yield from ((1 / len(widths_before), layer) for layer in head)

    def _entry(self, stage: int, width: int) -> BlockSpec:
        """The block that begins a stage and sets its width."""
        if stage == 0:
            return BlockSpec.of("stem", stride=self._stem_stride, width=width)
        return BlockSpec.of("downsample", width=width)

    def _map_before(self, stage: int) -> tuple[int, int]:
        """(height, width) of the map that enters a stage's first block."""
        _, height, width = self._input_shape if stage == 0 else self._shape_in(stage - 1)
        return height, width

    def _shape_in(self, stage: int, width: int = HEAD_CHANNELS) -> tuple[int, int, int]:
        """The shape inside a stage of `width` channels, after its first block."""
        before = (self._input_shape[0] if stage == 0 else HEAD_CHANNELS, *self._map_before(stage))
        _, shape = layers_of_block(self._entry(stage, width), before)
        return shape[0], shape[1], shape[2]

    def _choices(self, widths: Sequence[int], kinds: Sequence[Sequence[str]]) -> Choices:
        """Choices for these widths and layer kinds; attention that is not offered becomes ConvNeXt-style."""
        choices: dict[str, Value] = {}
        for index, (width, stage_kinds) in enumerate(zip(widths, kinds, strict=False)):
            choices[f"stage{index + 1}.width"] = width
            choices[f"stage{index + 1}.depth"] = len(stage_kinds)
            for layer, kind in enumerate(stage_kinds):
                choices[f"stage{index + 1}.layer{layer}.kind"] = kind if kind in self.kinds(index) else CONVNEXT
        return choices

    def _extreme(self, end: int) -> Choices:
        """The choices with the fewest (`end` 0) or most (-1) MACs: they grow with each answer taken alone."""
        widths, kinds = [], []
        for index, stage in enumerate(self.stages):
            widths.append(sorted(stage.widths)[end])
            macs = {kind: self._macs_of_kind(kind, index, widths[-1]) for kind in self.kinds(index)}
            kinds.append([sorted(macs, key=lambda kind: macs[kind])[end]] * sorted(stage.depths)[end])
        return self._choices(widths, kinds)

    def _macs_of_kind(self, kind: str, stage: int, width: int) -> int:
        layers, _ = layers_of_block(LAYER_KINDS[kind], self._shape_in(stage, width))
        return sum(layer.num_macs for layer in layers)

    def _check_own(self, candidate: Candidate) -> None:
        if (candidate.space, candidate.space_version) != (self.name, self.version):
            raise CandidateError(
                f"candidate is of space {candidate.space!r} version {candidate.space_version}; "
                f"this is {self.name!r} version {self.version}"
            )


def _stem_stride(shape: Shape) -> int:
    """The factor that the stem divides a (channels, height, width) image's sides by.

    >>> [_stem_stride((3, side, side)) for side in (8, 28, 224)]
    [1, 2, 4]
    """
    side = max(shape[1:])
    return 1 if side <= FULL_SIZE_SIDE else 2 if side <= HALF_SIZE_SIDE else 4


def _check_input(spec: BlockSpec) -> None:
    names = [name for name, _ in spec.options]
    if spec.kind != "image" or names != ["channels", "height", "width"]:
        raise CandidateError(
            f"space 'conv_attention': input is {spec.to_json()}; allowed: an image with channels, height and width"
        )
    channels, height, width = input_shape(spec)
    if channels < 1 or min(height, width) < MIN_SIDE:
        raise CandidateError(
            f"space 'conv_attention': image is {channels}x{height}x{width}; allowed: at least 1 channel and "
            f"{MIN_SIDE}x{MIN_SIDE} pixels; resize the images"
        )


def _check_head(spec: BlockSpec) -> None:
    if spec.kind != "classifier" or [name for name, _ in spec.options] != ["classes"]:
        raise CandidateError(
            f"space 'conv_attention': head is {spec.to_json()}; allowed: a classifier with a number of classes"
        )
    if spec.integer("classes") < 2:
        raise CandidateError(f"space 'conv_attention': {spec.integer('classes')} classes; allowed: 2 or more")
