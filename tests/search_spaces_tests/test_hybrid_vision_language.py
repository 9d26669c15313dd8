"""The vision-language space keeps the contract of all spaces, and its phases agree however awkward the image."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from search_spaces import vision_language_entry
from search_spaces.blocks import language_model, language_parts
from search_spaces.blocks.vision_language_model import VisionLanguageModel
from search_spaces.build import build_model, entry_point
from search_spaces.candidate import BlockSpec, Candidate, CandidateError
from search_spaces.hybrid_vision_language import SCALE, HybridVisionLanguageSpace
from search_spaces.layers import every_block, layers_of, layers_of_block, num_params, state_bytes
from search_spaces.registry import make_space
from search_spaces.space import SearchSpace, replay
from search_spaces.testing import SpaceContract
from search_spaces.vision_language_entry import fixed_image, vision_language_agreement
from search_spaces.vision_language_layers import image_tokens_of, num_image_tokens

ROUNDING = 1e-5
"""Logits of two forms of one network, per unit of the largest: a few hundred float32 rounding errors."""

AWKWARD = [(64, 64, 16), (1, 1, 8), (7, 5, 8), (9, 8, 8), (17, 40, 16), (8, 65, 8)]
"""Height, width and patch: whole patches; one pixel; less than a patch; one pixel more; sides that patches do not
divide; one row of nine patches."""


def make(height: int = 20, width: int = 12, context: int = 12, vocabulary: int = 17) -> HybridVisionLanguageSpace:
    sizes = {"channels": 3, "height": height, "width": width, "context": context, "vocabulary": vocabulary}
    return HybridVisionLanguageSpace(
        BlockSpec.of("image_text", **sizes), BlockSpec.of("vision_language_model", vocabulary=vocabulary)
    )


def network_of(
    *mixers: str, height: int = 20, width: int = 12, patch: int = 8, context: int = 12
) -> tuple[Candidate, nn.Module]:
    choices: dict[str, int | str] = {"stem.channels": 16, "stem.patch": patch, "width": 96, "depth": 2}
    for layer in range(2):
        choices |= {f"layer{layer}.mixer": mixers[layer % len(mixers)], f"layer{layer}.expansion": 1}
    candidate = replay(make(height, width, context), choices)
    torch.manual_seed(0)
    return candidate, build_model(candidate).eval()


class TestHybridVisionLanguageSpace(SpaceContract):
    def make_space(self) -> SearchSpace:
        space = make()
        return make_space("hybrid_vision_language", space.input, space.head)

    def training_inputs(self, candidate: Candidate, batch_size: int = 1) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(batch_size, 3, 20, 12, generator=generator), torch.randint(
            17, (batch_size, 12), generator=generator
        )

    def expected_output_shape(self, candidate: Candidate, batch_size: int) -> tuple[int, ...]:
        return (batch_size, 12, 17)


@pytest.mark.parametrize(("height", "width", "patch"), AWKWARD)
def test_the_number_of_image_tokens_is_that_which_leaves_the_stem(height: int, width: int, patch: int) -> None:
    candidate, model = network_of("conv_k3", height=height, width=width, patch=patch)
    assert isinstance(model, VisionLanguageModel)
    with torch.no_grad():
        tokens = model.encode_image(torch.randn(2, 3, height, width))
    assert tuple(tokens.shape) == (2, num_image_tokens(height, width, patch), 96)
    assert image_tokens_of(candidate) == num_image_tokens(height, width, patch)


@pytest.mark.parametrize(("height", "width", "patch"), AWKWARD)
@pytest.mark.parametrize("mixer", ["conv_k7", "attention_q8_kv2", "window64_q4_kv1", "linear_h4"])
def test_encoding_prefilling_and_decoding_agree_with_one_pass(mixer: str, height: int, width: int, patch: int) -> None:
    candidate, model = network_of(mixer, height=height, width=width, patch=patch)
    agreement = vision_language_agreement(model, candidate)
    assert agreement.relative_error < ROUNDING
    assert agreement.first_other_token is None
    assert agreement.num_tokens == 8


@pytest.mark.parametrize("mixer", tuple(SCALE.mixers))
def test_decoding_from_the_first_token_on_agrees_where_image_and_text_are_longer_than_the_window(mixer: str) -> None:
    """64 tokens of an image and 20 of text: more than the window and the chunk of linear attention."""
    candidate, model = network_of(mixer, height=64, width=64, context=20)
    assert vision_language_agreement(model, candidate, count=19).relative_error < ROUNDING


def test_text_does_not_see_later_text_and_sees_the_whole_image() -> None:
    candidate, model = network_of("attention_q4_kv1", context=8)
    tokens = torch.randint(17, (1, 8))
    later = tokens.clone()
    later[:, 5] = (later[:, 5] + 1) % 17
    image = fixed_image(candidate)
    with torch.no_grad():
        plain, other_text = model(image, tokens), model(image, later)
        torch.testing.assert_close(plain[:, :5], other_text[:, :5], rtol=0, atol=1e-6)
        assert not torch.allclose(plain[:, 5:], other_text[:, 5:], atol=1e-3)
        for row, column in ((0, 0), (0, 11), (19, 0), (19, 11)):
            changed = image.clone()
            changed[:, :, row, column] += 3.0
            assert not torch.allclose(plain[:, 0], model(changed, tokens)[:, 0], atol=1e-4), (row, column)


# Each plants one of the faults that cost days, and must be caught.
def _image_forgotten_in_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    real = language_model.LanguageModel.decode
    monkeypatch.setattr(
        language_model.LanguageModel,
        "decode",
        lambda self, token, position, *states: real(self, token, position - 6, *states),
    )


def _shifted_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(state: Tensor, new: Tensor, position: int) -> Tensor:
        return language_parts.write_state(state, new, position + 1)

    monkeypatch.setattr(language_model, "write_state", write)


def _logits_of_one_position_before(monkeypatch: pytest.MonkeyPatch) -> None:
    real = VisionLanguageModel.read
    monkeypatch.setattr(
        VisionLanguageModel, "read", lambda self, x_c: real(self, x_c.roll(1, 1) if x_c.ndim == 3 else x_c)
    )


def _text_before_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        vision_language_entry,
        "_sequence",
        lambda network, image, tokens: torch.cat([network.embed(tokens[None]), image], dim=1).detach(),
    )


@pytest.mark.parametrize(
    "fault", [_image_forgotten_in_positions, _shifted_cache, _logits_of_one_position_before, _text_before_the_image]
)
def test_a_fault_at_the_seam_of_image_and_text_is_caught(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate, model = network_of("attention_q4_kv4")
    fault(monkeypatch)
    assert vision_language_agreement(model, candidate).relative_error > 100 * ROUNDING


def test_encode_image_runs_the_stem_alone_and_the_other_phases_run_no_stem() -> None:
    candidate, model = network_of("conv_k3", "linear_h4")
    names = {
        phase.name: {layer.name.split(".")[1] for layer in layers_of(candidate, phase.name) if "head" not in layer.name}
        for phase in make().phases(candidate)
    }
    assert names == {"prefill@12": set("12345"), "encode_image": {"0"}, "decode@12": set("12345")}
    assert [placed.index for placed in every_block(candidate)] == list(range(7))
    assert num_params(candidate) == sum(parameter.numel() for parameter in model.parameters())


def test_states_are_those_worked_out_by_hand() -> None:
    """20 x 12 pixels in patches of 8 are 3 x 2 tokens; 12 more of text."""
    candidate, _ = network_of("attention_q8_kv2", "conv_k5")
    assert state_bytes(candidate, "decode@12") == 4 * (2 * 2 * 18 * 32 + 4 * 96)
    assert state_bytes(candidate, "prefill@5") == 4 * (2 * 2 * 11 * 32 + 4 * 96)
    assert state_bytes(candidate, "encode_image") is None


def test_an_entry_point_for_decode_stands_after_the_image_and_has_noise_where_no_token_is_yet() -> None:
    candidate, model = network_of("attention_q4_kv1")
    phase = make().phases(candidate)[-1]
    _, position, keys, *_ = entry_point(model, candidate, phase).inputs
    assert phase.name == "decode@12" and int(position) == 6 + 9
    assert keys.shape[2] == 18 and float(keys[:, :, 15:].abs().min()) > 0


def test_the_zoo_differs_in_its_mixers_alone_and_holds_the_losers() -> None:
    space = make(64, 64, 64, 256)
    zoo = {name: replay(space, choices) for name, choices in space.references().items()}
    assert next(iter(zoo)) == "lfm2_like"
    kinds = {name: {block.kind for block in each.blocks[2::2]} for name, each in zoo.items()}
    assert kinds["attention_only"] == {"grouped_attention"}
    assert kinds["convolution_only"] == {"short_convolution"}
    assert kinds["lfm2_like"] == {"grouped_attention", "short_convolution"}
    params = {name: num_params(each) for name, each in zoo.items()}
    assert 0.5e6 < params["lfm2_like"] < 1e6
    assert params["smallest"] == min(params.values()) and params["largest"] == max(params.values())


def test_the_share_of_work_of_all_kernels_is_at_most_one_and_none_is_missing() -> None:
    space = make(64, 64, 48, 50)
    kernels = space.kernels()
    assert math.isclose(sum(kernel.work_share for kernel in kernels), 1.0, abs_tol=0.05)
    known = {kernel.signature for kernel in kernels}
    for choices in space.references().values():
        candidate = replay(space, choices)
        for phase in space.phases(candidate):
            heavy = {layer.signature for layer in layers_of(candidate, phase.name) if layer.num_macs > 10_000}
            assert heavy <= known


def test_candidates_of_a_small_space_are_counted_exactly() -> None:
    assert make().num_candidates() == 2 * 2 * SCALE.num_choices()
    assert SCALE.num_choices() == 3 * sum((len(SCALE.mixers) * 3) ** depth for depth in (2, 4, 6))


GOOD_INPUT = {"channels": 3, "height": 8, "width": 8, "context": 12, "vocabulary": 17}


@pytest.mark.parametrize(
    ("kind", "changes", "head", "message"),
    [
        ("image", {}, BlockSpec.of("vision_language_model", vocabulary=17), "an image_text with"),
        ("image_text", {}, BlockSpec.of("language_model", vocabulary=17), "a vision_language_model"),
        ("image_text", {"height": 0}, BlockSpec.of("vision_language_model", vocabulary=17), "1 or more of each"),
        ("image_text", {"context": 3}, BlockSpec.of("vision_language_model", vocabulary=17), "4 or more"),
        ("image_text", {}, BlockSpec.of("vision_language_model", vocabulary=18), "one number"),
    ],
)
def test_data_that_no_candidate_could_have_is_refused(
    kind: str, changes: dict[str, int], head: BlockSpec, message: str
) -> None:
    with pytest.raises(CandidateError, match=message):
        HybridVisionLanguageSpace(BlockSpec.of(kind, **{**GOOD_INPUT, **changes}), head)


def test_more_text_than_the_context_is_refused() -> None:
    _, model = network_of("conv_k3")
    with pytest.raises(CandidateError, match="19 tokens; allowed: at most 18"):
        model(torch.zeros(1, 3, 20, 12), torch.zeros(1, 13, dtype=torch.int64))


@pytest.mark.parametrize(("patch", "message"), [(12, "powers of two"), (1, "powers of two"), (0, "powers of two")])
def test_a_patch_that_strided_convolutions_cannot_make_is_refused(patch: int, message: str) -> None:
    with pytest.raises(CandidateError, match=message):
        num_image_tokens(8, 8, patch)
    with pytest.raises(CandidateError, match=message):
        layers_of_block(BlockSpec.of("patch_stem", channels=16, patch=patch, width=96), (3, 8, 8))


def test_a_network_without_a_stem_is_refused() -> None:
    space = make()
    candidate = replay(space, space.references()["lfm2_like"])
    headless = Candidate(
        space=space.name, space_version=1, input=space.input, blocks=candidate.blocks[1:], head=space.head
    )
    for ask in (build_model, layers_of, space.choices_of):
        with pytest.raises(CandidateError, match="begins with"):
            ask(headless)  # type: ignore[operator]
