"""The vision space passes the contract for several images, and its counts are exact."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from search_spaces.candidate import BlockSpec, Candidate, CandidateError
from search_spaces.conv_attention import ConvAttentionSpace, StageOptions
from search_spaces.kernels import HEAVY_MACS, CountedSpace
from search_spaces.layers import layers_of, num_macs, num_params
from search_spaces.registry import make_space
from search_spaces.space import RandomSuggest, SearchSpace, replay
from search_spaces.testing import SpaceContract


def space_for(channels: int, height: int, width: int, classes: int = 10) -> ConvAttentionSpace:
    image = BlockSpec.of("image", channels=channels, height=height, width=width)
    return ConvAttentionSpace(image, BlockSpec.of("classifier", classes=classes))


def draw(space: SearchSpace, count: int) -> list[Candidate]:
    return [space.sample(RandomSuggest(random.Random(seed))) for seed in range(count)]


class ImageContract(SpaceContract):
    """The contract for one image size."""

    image: tuple[int, int, int]
    classes = 10

    def make_space(self) -> SearchSpace:
        channels, height, width = self.image
        image = BlockSpec.of("image", channels=channels, height=height, width=width)
        return make_space("conv_attention", image, BlockSpec.of("classifier", classes=self.classes))


class TestDigits(ImageContract):
    image = (1, 8, 8)


class TestFashion(ImageContract):
    image = (1, 28, 28)


class TestColour(ImageContract):
    image = (3, 32, 32)


class TestOddSides(ImageContract):
    image = (3, 17, 23)
    classes = 2


class SmallSpace(ConvAttentionSpace):
    """Few enough candidates to enumerate."""

    stages = (StageOptions(widths=(32, 64), depths=(1, 2)), StageOptions(widths=(64,), depths=(1,)))


class Enumerate:
    """Answers like an odometer: `all_of` yields every candidate that any answers make."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.sizes: list[int] = []

    def choose(self, name: str, options: Sequence[object]) -> object:
        position = len(self.sizes)
        self.sizes.append(len(options))
        if position == len(self.answers):
            self.answers.append(0)
        return options[self.answers[position]]

    def all_of(self, space: SearchSpace) -> Iterator[Candidate]:
        while True:
            self.sizes.clear()
            yield space.sample(self)  # type: ignore[arg-type]
            while self.answers and self.answers[-1] + 1 == self.sizes[len(self.answers) - 1]:
                self.answers.pop()
            if not self.answers:
                return
            self.answers[-1] += 1


@pytest.mark.parametrize("side", [4, 8, 48])
def test_number_of_candidates_equals_a_brute_force_count(side: int) -> None:
    image = BlockSpec.of("image", channels=1, height=side, width=side)
    space = SmallSpace(image, BlockSpec.of("classifier", classes=2))
    ids = [candidate.candidate_id for candidate in Enumerate().all_of(space)]
    assert len(set(ids)) == len(ids) == space.num_candidates()


@pytest.mark.parametrize("image", [(1, 4, 4), (1, 8, 8), (1, 28, 28), (3, 64, 64), (3, 224, 224)])
def test_there_are_a_million_candidates_and_few_heavy_kernels(image: tuple[int, int, int]) -> None:
    space = space_for(*image)
    assert space.num_candidates() >= 1_000_000
    assert 0 < len(space.kernels()) <= 100


def test_the_space_can_count_itself() -> None:
    assert isinstance(space_for(1, 8, 8), CountedSpace)


@pytest.mark.parametrize("image", [(1, 8, 8), (3, 17, 23), (3, 64, 64)])
def test_random_candidates_need_no_kernel_that_was_not_listed(image: tuple[int, int, int]) -> None:
    space = space_for(*image)
    listed = {kernel.signature: kernel.num_macs for kernel in space.kernels()}
    seen = {
        layer.signature: layer.num_macs
        for candidate in draw(space, 300)
        for layer in layers_of(candidate)
        if layer.num_macs > HEAVY_MACS
    }
    assert seen == listed


def test_listed_uses_and_work_shares_are_what_random_candidates_show() -> None:
    space = space_for(1, 8, 8)
    uses: Counter[object] = Counter()
    work: Counter[object] = Counter()
    for candidate in draw(space, 1500):
        for layer in layers_of(candidate):
            uses[layer.signature] += 1
            work[layer.signature] += layer.num_macs
    for kernel in space.kernels():
        assert uses[kernel.signature] / 1500 == pytest.approx(kernel.expected_uses, rel=0.35)
        assert work[kernel.signature] / work.total() == pytest.approx(kernel.work_share, rel=0.4)
    shares = [kernel.work_share for kernel in space.kernels()]
    assert shares == sorted(shares, reverse=True)
    assert 0.99 < sum(shares) <= 1


def test_attention_is_offered_only_for_2_to_256_tokens() -> None:
    offers = {
        side: ["attention" in space_for(1, side, side).kinds(stage) for stage in range(3)] for side in (4, 32, 64)
    }
    assert offers == {4: [True, True, False], 32: [True] * 3, 64: [False, True, True]}


def test_odd_sides_are_rounded_up() -> None:
    space = space_for(3, 17, 23)
    candidate = replay(space, space.references()["smallest"])
    pool = next(layer for layer in layers_of(candidate) if layer.kind == "pool")
    assert pool.signature == ("pool", 128, 3, 3)


@pytest.mark.parametrize("image", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 17, 23), (3, 224, 224)])
def test_about_seven_in_ten_random_candidates_are_lighter_than_the_reference(image: tuple[int, int, int]) -> None:
    space = space_for(*image)
    name, choices = next(iter(space.references().items()))
    reference = num_macs(replay(space, choices))
    share = sum(num_macs(candidate) < reference for candidate in draw(space, 400)) / 400
    assert name == "reference"
    assert 0.6 < share < 0.8


@pytest.mark.parametrize("image", [(1, 8, 8), (3, 64, 64)])
def test_smallest_and_largest_enclose_every_random_candidate(image: tuple[int, int, int]) -> None:
    space = space_for(*image)
    smallest, largest = (num_macs(replay(space, space.references()[name])) for name in ("smallest", "largest"))
    assert all(smallest <= num_macs(candidate) <= largest for candidate in draw(space, 300))


def test_references_hold_the_blocks_that_their_names_promise() -> None:
    space = space_for(1, 28, 28)
    attention = {
        name: [block.kind for block in replay(space, choices).blocks].count("attention")
        for name, choices in space.references().items()
    }
    assert attention["reference"] == 1
    assert attention["convolution_only"] == 0
    assert attention["attention_heavy"] == 6


def test_references_replay_where_no_stage_offers_attention_at_the_end() -> None:
    space = space_for(1, 4, 4)
    for choices in space.references().values():
        assert num_params(replay(space, choices)) > 0


def test_the_phase_is_one_image() -> None:
    space = space_for(3, 17, 23)
    (phase,) = space.phases(draw(space, 1)[0])
    assert phase.name == "infer"
    assert [(spec.name, spec.shape, spec.dtype) for spec in phase.inputs] == [("image", (1, 3, 17, 23), "float32")]


def test_a_candidate_of_another_space_is_refused() -> None:
    space = space_for(1, 8, 8)
    data = draw(space, 1)[0].to_json()
    foreign = Candidate.from_json({**data, "space_version": 2})
    with pytest.raises(CandidateError, match=r"version 2; this is 'conv_attention' version 1"):
        space.encode(foreign)
    strange = Candidate.from_json({**data, "blocks": [{"kind": "convnext", "options": {}}]})
    with pytest.raises(CandidateError, match="does not belong here in space 'conv_attention'"):
        space.encode(strange)
    short = Candidate.from_json({**data, "blocks": data["blocks"][:2]})
    with pytest.raises(CandidateError, match=r"'stage2\.width' is missing"):
        space.encode(short)
    with pytest.raises(CandidateError, match="is for other data"):
        space_for(1, 9, 8).encode(draw(space, 1)[0])


def test_choices_of_a_candidate_are_those_that_made_it() -> None:
    space = space_for(1, 8, 8)
    for seed in range(50):
        suggest = RandomSuggest(random.Random(seed))
        candidate = space.sample(suggest)
        assert space.choices_of(candidate) == suggest.choices


def test_an_encoding_holds_width_depth_and_kind_of_every_slot() -> None:
    space = space_for(1, 8, 8)
    vector = space.encode(replay(space, space.references()["reference"]))
    one_hot = {
        "none": [0.0, 0, 0, 0, 0, 0, 1],
        "k3_e4": [0.0, 1, 0, 0, 0, 0, 0],
        "k5_e2": [0.0, 0, 1, 0, 0, 0, 0],
        "attention": [0.0, 0, 0, 0, 0, 1, 0],
    }
    assert vector[:23] == (5, 2, *one_hot["k3_e4"], *one_hot["k3_e4"], *one_hot["none"])
    assert vector[23:46] == (7, 2, *one_hot["k3_e4"], *one_hot["k5_e2"], *one_hot["none"])
    assert vector[46:69] == (8, 2, *one_hot["k3_e4"], *one_hot["attention"], *one_hot["none"])
    assert len(vector) == 71 and 10 ** vector[70] == pytest.approx(1368810)


@pytest.mark.parametrize(
    ("image", "head", "message"),
    [
        (BlockSpec.of("image", channels=1, height=3, width=8), None, "image is 1x3x8; allowed: .*4x4"),
        (BlockSpec.of("image", channels=0, height=8, width=8), None, "image is 0x8x8; allowed: at least 1 channel"),
        (BlockSpec.of("image", height=8, width=8), None, "allowed: an image with channels, height and width"),
        (BlockSpec.of("text", length=8), None, "allowed: an image with channels, height and width"),
        (BlockSpec.of("image", channels=1, height=8.0, width=8), None, "'height' is 8.0; allowed: a whole number"),
        (None, BlockSpec.of("classifier", classes=1), "1 classes; allowed: 2 or more"),
        (None, BlockSpec.of("regression"), "allowed: a classifier with a number of classes"),
    ],
)
def test_bad_inputs_and_heads_are_refused_in_one_line(
    image: BlockSpec | None, head: BlockSpec | None, message: str
) -> None:
    with pytest.raises(CandidateError, match=message) as refusal:
        make_space(
            "conv_attention",
            image or BlockSpec.of("image", channels=1, height=8, width=8),
            head or BlockSpec.of("classifier", classes=10),
        )
    assert "\n" not in str(refusal.value)
