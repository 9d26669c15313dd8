"""The language spaces keep the contract of all spaces, and their three forms of one network agree."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from search_spaces.blocks import grouped_attention, language_model, language_parts
from search_spaces.blocks.grouped_attention import GroupedAttention
from search_spaces.build import build_model, disagreement, entry_point
from search_spaces.candidate import BlockSpec, Candidate, CandidateError
from search_spaces.hybrid_language import SCALES, HybridLanguageSpace
from search_spaces.language_entry import decode_agreement, fixed_tokens
from search_spaces.layers import layers_of, layers_of_block, num_params, state_bytes
from search_spaces.registry import make_space
from search_spaces.space import SearchSpace, replay
from search_spaces.testing import SpaceContract

ROUNDING = 1e-5
"""Logits of two forms of one network, per unit of the largest: a few hundred float32 rounding errors."""

MIXERS = tuple(SCALES["hybrid_language"].mixers)


def text_space(context: int = 48, vocabulary: int = 50) -> HybridLanguageSpace:
    text = BlockSpec.of("text", context=context, vocabulary=vocabulary)
    return HybridLanguageSpace(text, BlockSpec.of("language_model", vocabulary=vocabulary))


def network_of(*mixers: str, context: int = 48) -> tuple[Candidate, nn.Module]:
    choices: dict[str, int | str] = {"width": 128, "depth": 2}
    for layer in range(2):
        choices |= {f"layer{layer}.mixer": mixers[layer % len(mixers)], f"layer{layer}.expansion": 1}
    candidate = replay(text_space(context), choices)
    torch.manual_seed(0)
    return candidate, build_model(candidate).eval()


class TestHybridLanguageSpace(SpaceContract):
    def make_space(self) -> SearchSpace:
        text = BlockSpec.of("text", context=24, vocabulary=17)
        return make_space("hybrid_language", text, BlockSpec.of("language_model", vocabulary=17))

    def training_inputs(self, candidate: Candidate, batch_size: int = 1) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(0)
        return (torch.randint(17, (batch_size, 24), generator=generator),)

    def expected_output_shape(self, candidate: Candidate, batch_size: int) -> tuple[int, ...]:
        return (batch_size, 24, 17)


@pytest.mark.parametrize("context", [8, 48, 130])
@pytest.mark.parametrize("mixer", MIXERS)
def test_decoding_token_by_token_agrees_with_one_pass(mixer: str, context: int) -> None:
    """130 is neither a multiple of the window nor of the chunk, and longer than both."""
    candidate, model = network_of(mixer, context=context)
    agreement = decode_agreement(model, candidate, context)
    assert agreement.relative_error < ROUNDING
    assert agreement.first_other_token is None
    assert agreement.num_tokens == min(8, context - 1)


@pytest.mark.parametrize("mixer", MIXERS)
def test_decoding_from_the_first_token_on_agrees_with_one_pass(mixer: str) -> None:
    candidate, model = network_of(mixer, context=80)
    assert decode_agreement(model, candidate, 80, count=79).relative_error < ROUNDING


@pytest.mark.parametrize("mixer", MIXERS)
def test_no_token_sees_a_later_one(mixer: str) -> None:
    candidate, model = network_of(mixer, context=80)
    tokens = fixed_tokens(candidate, 80)[None].long()
    changed = tokens.clone()
    changed[:, 40] = (changed[:, 40] + 1) % 50
    with torch.no_grad():
        one, other = model(tokens), model(changed)
    torch.testing.assert_close(one[:, :40], other[:, :40], rtol=0, atol=1e-6)
    assert not torch.allclose(one[:, 40:], other[:, 40:], atol=1e-3)


def test_a_window_ends_where_it_says() -> None:
    """One layer of window 64: token 70 still depends on token 6, and no longer on token 5."""
    choices = {"width": 128, "depth": 2, "layer0.mixer": "window64_q4_kv1", "layer0.expansion": 1,
               "layer1.mixer": "conv_k3", "layer1.expansion": 1}  # fmt: skip
    candidate = replay(text_space(80), choices)
    torch.manual_seed(0)
    model = build_model(candidate).eval()
    block = model.get_submodule("blocks.1")
    x_btc = torch.randn(1, 80, 128)
    rotation = model.rotation(80)  # type: ignore[operator]
    with torch.no_grad():
        before = block(x_btc, rotation)
        for token, is_seen in ((5, False), (6, True)):
            changed = x_btc.clone()
            changed[0, token] += 1.0
            assert torch.equal(block(changed, rotation)[0, 70], before[0, 70]) is not is_seen


# Each plants one of the faults that cost days, and must be caught.
def _late_position(monkeypatch: pytest.MonkeyPatch) -> None:
    real = language_model.LanguageModel.decode
    monkeypatch.setattr(
        language_model.LanguageModel,
        "decode",
        lambda self, token, position, *states: real(self, token, position + 1, *states),
    )


def _shifted_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(state: Tensor, new: Tensor, position: int) -> Tensor:
        return language_parts.write_state(state, new, position + 1)

    monkeypatch.setattr(language_model, "write_state", write)


def _forgotten_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "write_state", lambda state, new, position: state)


def _unrotated_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    real = GroupedAttention._project

    def project(self: GroupedAttention, x_btc: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        if x_btc.shape[1] > 1:
            return real(self, x_btc, rotation)
        still = torch.ones_like(rotation[0]), torch.zeros_like(rotation[1])
        return real(self, x_btc, still)

    monkeypatch.setattr(GroupedAttention, "_project", project)


def _mask_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.arange
    # Decode alone asks for int32 slots: the newest token in the cache would not count.
    monkeypatch.setattr(
        grouped_attention.torch, "arange", lambda *a, **k: real(*a, **k) + (1 if k.get("dtype") == torch.int32 else 0)
    )


@pytest.mark.parametrize(
    ("fault", "mixer"),
    [
        (_late_position, "attention_q4_kv1"),
        (_shifted_cache, "attention_q4_kv4"),
        (_shifted_cache, "window64_q4_kv1"),
        (_forgotten_token, "attention_q8_kv2"),
        (_forgotten_token, "conv_k3"),
        (_forgotten_token, "linear_h4"),
        (_unrotated_keys, "attention_q4_kv1"),
        (_mask_off_by_one, "attention_q4_kv1"),
    ],
)
def test_a_position_or_cache_fault_is_caught(
    fault: Callable[[pytest.MonkeyPatch], None], mixer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate, model = network_of(mixer)
    fault(monkeypatch)
    assert decode_agreement(model, candidate, 48).relative_error > 100 * ROUNDING


def test_an_entry_point_for_decode_has_noise_where_no_token_is_yet() -> None:
    candidate, model = network_of("attention_q4_kv1")
    phase = text_space().phases(candidate)[0]
    token, position, keys, *_ = entry_point(model, candidate, phase).inputs
    assert phase.name == "decode@48" and int(position) == 36
    assert float(keys[:, :, 36:].abs().min()) > 0
    assert not torch.equal(token, token + 1)


def test_states_are_those_worked_out_by_hand() -> None:
    candidate, _ = network_of("attention_q8_kv2", "conv_k5")
    assert state_bytes(candidate, "decode@48") == 4 * (2 * 2 * 48 * 32 + 4 * 128)
    window, _ = network_of("window64_q4_kv1", "linear_h4", context=512)
    assert state_bytes(window, "decode@512") == 4 * (2 * 1 * 64 * 32 + 4 * 32 * 32)
    assert state_bytes(window, "decode@16") == 4 * (2 * 1 * 16 * 32 + 4 * 32 * 32)


def test_the_zoo_differs_in_its_mixers_alone_and_holds_the_losers() -> None:
    space = text_space(512, 256)
    zoo = {name: replay(space, choices) for name, choices in space.references().items()}
    assert next(iter(zoo)) == "lfm2_like"
    kinds = {name: {block.kind for block in each.blocks[1::2]} for name, each in zoo.items()}
    assert kinds["attention_only"] == {"grouped_attention"}
    assert kinds["convolution_only"] == {"short_convolution"}
    assert kinds["lfm2_like"] == {"grouped_attention", "short_convolution"}
    params = {name: num_params(each) for name, each in zoo.items()}
    assert params["smallest"] == min(params.values()) and params["largest"] == max(params.values())


@pytest.mark.parametrize(
    ("name", "low", "high"), [("hybrid_language_350m", 0.30, 0.40), ("hybrid_language_1b2", 1.0, 1.3)]
)
def test_lfm2_like_networks_at_scale_have_the_parameters_of_their_name(name: str, low: float, high: float) -> None:
    text = BlockSpec.of("text", context=4096, vocabulary=65_536)
    space = make_space(name, text, BlockSpec.of("language_model", vocabulary=65_536))
    candidate = replay(space, space.references()["lfm2_like"])
    assert low < num_params(candidate) / 1e9 < high
    assert sum(layer.weight_bytes for layer in layers_of(candidate, "decode@4096")) > 3.9 * num_params(candidate)
    assert len({block.kind for block in candidate.blocks[1::2]}) == 2


def test_the_share_of_work_of_all_kernels_is_at_most_one_and_none_is_missing() -> None:
    space = text_space(64, 50)
    kernels = space.kernels()
    assert math.isclose(sum(kernel.work_share for kernel in kernels), 1.0, abs_tol=0.05)
    known = {kernel.signature for kernel in kernels}
    for choices in space.references().values():
        candidate = replay(space, choices)
        for phase in ("decode@64", "prefill@64"):
            heavy = {layer.signature for layer in layers_of(candidate, phase) if layer.num_macs > 10_000}
            assert heavy <= known


@pytest.mark.parametrize(
    ("text", "head", "message"),
    [
        (BlockSpec.of("image", channels=1, height=8, width=8), BlockSpec.of("language_model", vocabulary=9), "a text"),
        (BlockSpec.of("text", context=16, vocabulary=9), BlockSpec.of("classifier", classes=9), "language_model"),
        (BlockSpec.of("text", context=7, vocabulary=9), BlockSpec.of("language_model", vocabulary=9), "8 or more"),
        (BlockSpec.of("text", context=16, vocabulary=9), BlockSpec.of("language_model", vocabulary=8), "one number"),
    ],
)
def test_data_that_no_candidate_could_have_is_refused(text: BlockSpec, head: BlockSpec, message: str) -> None:
    with pytest.raises(CandidateError, match=message):
        HybridLanguageSpace(text, head)


def test_more_tokens_than_the_context_are_refused() -> None:
    _, model = network_of("conv_k3")
    with pytest.raises(CandidateError, match="49 tokens; allowed: at most 48"):
        model(torch.zeros(1, 49, dtype=torch.int64))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (BlockSpec.of("grouped_attention", heads=3, groups=2, head_channels=32), "multiple of groups"),
        (BlockSpec.of("grouped_attention", heads=2, groups=1, head_channels=3), "even number"),
        (BlockSpec.of("short_convolution", kernel=1), "2 or more"),
        (BlockSpec.of("window_attention", heads=2, groups=1, head_channels=4, window=0), "window is 0"),
        (BlockSpec.of("gated_unit", hidden=0), "hidden is 0"),
    ],
)
def test_blocks_that_cannot_be_are_refused(block: BlockSpec, message: str) -> None:
    with pytest.raises(CandidateError, match=message):
        layers_of_block(block, (1, 16, 128))
    with pytest.raises(CandidateError, match="an embedding first"):
        layers_of_block(block, (1, 16, 0))


def test_a_disagreement_is_one_line_that_names_the_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate, model = network_of("attention_q4_kv1")
    decode, prefill, *_ = text_space().phases(candidate)
    assert disagreement(model, candidate, decode, ROUNDING) is None
    _late_position(monkeypatch)
    assert re.fullmatch(
        "decode@48: decoding token by token contradicts .*", disagreement(model, candidate, decode, ROUNDING) or ""
    )
    assert disagreement(model, candidate, prefill, ROUNDING) is None
