"""Costs that torch cannot count are those worked out by hand, and what does not fit is refused."""

from __future__ import annotations

import pytest

from search_spaces.candidate import BlockSpec, Candidate, CandidateError
from search_spaces.image_layers import convolution
from search_spaces.layers import activation_bytes, input_shape, layers_of, layers_of_block, num_macs, num_params


def make_candidate(*blocks: BlockSpec, channels: int = 3) -> Candidate:
    return Candidate(
        space="conv_attention",
        space_version=1,
        input=BlockSpec.of("image", channels=channels, height=8, width=6),
        blocks=blocks,
        head=BlockSpec.of("classifier", classes=5),
    )


def test_bytes_of_a_convolution_with_a_residual_are_those_worked_out_by_hand() -> None:
    layer, shape = convolution("project", (64, 4, 3), width=32, kernel=1, epilogue="bias+add")
    assert shape == (32, 4, 3)
    assert layer.input_bytes == 4 * (64 * 12 + 32 * 12)
    assert layer.output_bytes == 4 * 32 * 12
    assert layer.weight_bytes == 4 * (64 * 32 + 32)
    assert layer.num_params == 64 * 32 + 2 * 32


def test_layers_of_attention_are_those_worked_out_by_hand() -> None:
    layers, shape = layers_of_block(BlockSpec.of("attention"), (64, 8, 6))
    assert shape == (64, 8, 6)
    assert [(layer.name, layer.kind, layer.num_macs) for layer in layers] == [
        ("qkv", "conv", 64 * 192 * 48),
        ("scores", "matmul", 64 * 48 * 48),
        ("softmax", "softmax", 0),
        ("mix", "matmul", 64 * 48 * 48),
        ("project", "conv", 64 * 64 * 48),
    ]
    assert layers[1].output_bytes == layers[2].input_bytes == layers[2].output_bytes == 4 * 2 * 48 * 48
    assert layers[3].input_bytes == 4 * (64 * 48 + 2 * 48 * 48)


def test_the_pointwise_pair_is_one_kernel_pair_for_both_families() -> None:
    wide, _ = layers_of_block(BlockSpec.of("inverted_residual", kernel=3, expansion=4), (32, 8, 8))
    convnext, _ = layers_of_block(BlockSpec.of("convnext"), (32, 8, 8))
    assert [wide[0].signature, wide[2].signature] == [convnext[1].signature, convnext[2].signature]


def test_kernels_that_differ_in_anything_that_is_compiled_differ_in_signature() -> None:
    def signature(**changes: object) -> object:
        arguments = {"width": 32, "kernel": 3, "epilogue": "bias+relu", **changes}
        return convolution("conv", (32, 8, 8), **arguments)[0].signature  # type: ignore[arg-type]

    changes: list[dict[str, object]] = [
        {}, {"width": 64}, {"kernel": 5}, {"epilogue": "bias"}, {"stride": 2}, {"is_depthwise": True},
    ]  # fmt: skip
    assert len({signature(**change) for change in changes}) == len(changes)


def test_totals_are_the_sums_over_the_layers() -> None:
    candidate = make_candidate(BlockSpec.of("stem", width=32, stride=4), BlockSpec.of("attention"))
    layers = layers_of(candidate)
    assert num_macs(candidate) == sum(layer.num_macs for layer in layers)
    assert num_params(candidate) == sum(layer.num_params for layer in layers)
    names = [layer.name for layer in layers]
    assert len(set(names)) == len(names)
    assert names[0] == "blocks.0.convs.0" and names[-1] == "head.linear"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (BlockSpec.of("mamba"), r"block kind 'mamba' is unknown; known: \['attention', 'classifier', 'convnext'"),
        (BlockSpec.of("attention"), "3 channels; allowed: multiples of 32"),
        (BlockSpec.of("stem", stride=3, width=32), r"stride is 3; allowed: \[1, 2, 4\]"),
        (BlockSpec.of("inverted_residual", kernel=4, expansion=2), "kernel must be odd"),
        (BlockSpec.of("inverted_residual", kernel=3), "has no option 'expansion'"),
        (BlockSpec.of("downsample", width=0), "width is 0"),
    ],
)
def test_a_block_that_cannot_be_is_refused(block: BlockSpec, message: str) -> None:
    with pytest.raises(CandidateError, match=message):
        layers_of(make_candidate(block))


def test_an_image_block_after_the_classifier_is_refused() -> None:
    with pytest.raises(CandidateError, match=r"takes \(channels, height, width\), seen \(5,\)"):
        layers_of(make_candidate(BlockSpec.of("classifier", classes=5)))


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(CandidateError, match=r"input kind 'sound' is unknown; known: \['image'"):
        input_shape(BlockSpec.of("sound", length=3))


def test_values_alive_at_once_are_at_least_what_any_layer_reads_and_writes() -> None:
    candidate = make_candidate(BlockSpec.of("stem", width=16, stride=1))
    largest = max(layer.input_bytes + layer.output_bytes for layer in layers_of(candidate))
    assert largest == 4 * (3 * 48 + 16 * 48)
    assert activation_bytes(candidate) == 2 * largest


def test_a_block_that_only_equals_one_seen_before_is_checked_anew() -> None:
    """1, 1.0 and True are one key of a dictionary; only the first is a stride."""
    assert layers_of(make_candidate(BlockSpec.of("stem", stride=1, width=16)))
    for stride in (True, 1.0):
        with pytest.raises(CandidateError, match="stride"):
            layers_of(make_candidate(BlockSpec.of("stem", stride=stride, width=16)))


def test_equal_blocks_in_two_places_are_named_by_their_places() -> None:
    same = BlockSpec.of("inverted_residual", width=16, kernel=3, expansion=2)
    for _ in range(2):
        names = [
            layer.name for layer in layers_of(make_candidate(BlockSpec.of("stem", stride=1, width=16), same, same))
        ]
        assert [name for name in names if name.startswith("blocks.1.")] == [
            name.replace("blocks.2.", "blocks.1.") for name in names if name.startswith("blocks.2.")
        ]
