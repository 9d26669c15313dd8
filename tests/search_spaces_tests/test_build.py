"""Built networks compute what their blocks say, and unknown kinds are refused by name."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from search_spaces.blocks.attention import Attention
from search_spaces.blocks.convolution import ConvNextBlock, ConvNormAct, InvertedResidual
from search_spaces.build import BLOCKS, build_model
from search_spaces.candidate import BlockSpec, Candidate, CandidateError, TensorSpec
from search_spaces.entry import normal_inputs
from search_spaces.layers import BLOCKS as LAYER_BLOCKS
from search_spaces.space import Phase


def make_candidate(*blocks: BlockSpec, head: BlockSpec | None = None) -> Candidate:
    return Candidate(
        space="conv_attention",
        space_version=1,
        input=BlockSpec.of("image", channels=1, height=8, width=6),
        blocks=blocks,
        head=head or BlockSpec.of("classifier", classes=5),
    )


def test_every_block_that_can_be_counted_can_be_built_and_the_reverse() -> None:
    assert set(BLOCKS) == set(LAYER_BLOCKS)


def test_attention_equals_a_loop_over_heads_and_pixels() -> None:
    torch.manual_seed(0)
    attention = Attention(64).eval()
    x_nchw = torch.randn(2, 64, 3, 5)
    with torch.no_grad():
        actual = attention(x_nchw)
        q_nct, k_nct, v_nct = attention.qkv(x_nchw).flatten(2).split(64, dim=1)
        mixed_nct = torch.zeros_like(v_nct)
        for image in range(2):
            for head in (slice(0, 32), slice(32, 64)):
                for query in range(15):
                    scores = [float(q_nct[image, head, query] @ k_nct[image, head, key]) for key in range(15)]
                    exponents = [math.exp(score / math.sqrt(32)) for score in scores]
                    for key in range(15):
                        share = exponents[key] / sum(exponents)
                        mixed_nct[image, head, query] += share * v_nct[image, head, key]
        expected = x_nchw + attention.project(mixed_nct.reshape(2, 64, 3, 5))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", [InvertedResidual(32, 3, 2), ConvNextBlock(32), Attention(32)])
def test_a_block_whose_last_norm_is_zero_is_the_identity(block: nn.Module) -> None:
    x_nchw = torch.randn(2, 32, 4, 3)
    nn.init.zeros_(block.project[1].weight)  # type: ignore[index,union-attr]
    with torch.no_grad():
        assert torch.equal(block.eval()(x_nchw), x_nchw)


def test_every_norm_follows_a_convolution_without_bias_so_that_one_rule_folds_all() -> None:
    blocks = (
        BlockSpec.of("inverted_residual", kernel=5, expansion=2),
        BlockSpec.of("convnext"),
        BlockSpec.of("attention"),
    )
    model = build_model(
        make_candidate(BlockSpec.of("stem", width=32, stride=4), *blocks, BlockSpec.of("downsample", width=64))
    )
    pairs = [module for module in model.modules() if isinstance(module, ConvNormAct)]
    assert len(pairs) == sum(isinstance(module, nn.BatchNorm2d) for module in model.modules()) == 11
    for pair in pairs:
        assert isinstance(pair[0], nn.Conv2d) and pair[0].bias is None
        assert isinstance(pair[1], nn.BatchNorm2d)


def test_one_seed_gives_equal_weights() -> None:
    candidate = make_candidate(BlockSpec.of("stem", width=32, stride=1), BlockSpec.of("attention"))
    states = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        states.append(build_model(candidate).state_dict()["blocks.1.qkv.0.weight"])
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_unknown_kinds_are_refused_with_the_known_ones() -> None:
    with pytest.raises(CandidateError, match=r"block kind 'mamba' is unknown; known: \['attention'"):
        build_model(make_candidate(BlockSpec.of("mamba")))
    with pytest.raises(CandidateError, match=r"head kind 'boxes' is unknown; known: \['classifier'"):
        build_model(make_candidate(head=BlockSpec.of("boxes")))


def test_a_block_that_does_not_fit_is_refused_before_torch_sees_it() -> None:
    with pytest.raises(CandidateError, match="1 channels; allowed: multiples of 32"):
        build_model(make_candidate(BlockSpec.of("attention")))


def test_fixed_inputs_have_the_phases_shapes_and_no_relation_to_each_other() -> None:
    specs = (TensorSpec(name="a", shape=(2, 3)), TensorSpec(name="b", shape=(2, 3)))
    a, b = normal_inputs(Phase(name="p", inputs=specs))
    assert a.shape == b.shape == (2, 3)
    assert a.dtype == torch.float32
    assert not torch.equal(a, b)
