from __future__ import annotations

import random
from typing import Any

import pytest

from nas.compile.kernels import KernelTask
from nas.compile.space_kernels import matching_macs, space_kernels, survey
from search_spaces.candidate import BlockSpec
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.layers import layers_of
from search_spaces.space import RandomSuggest


def make_space(*sizes: int) -> ConvAttentionSpace:
    names = ("channels", "height", "width")
    image = BlockSpec.of("image", **dict(zip(names, sizes, strict=True)))
    return ConvAttentionSpace(image, BlockSpec.of("classifier", classes=10))


def make_task(key: str, operations: float, **changes: Any) -> KernelTask:
    values = {"name": "n", "num_uses": 1, "is_heavy": True, "workload_json": ""}
    return KernelTask(key=key, num_operations=operations, **{**values, **changes})


@pytest.mark.parametrize("sizes", [(1, 8, 8), (3, 32, 32)])
def test_a_handful_of_candidates_holds_every_kernel_that_the_space_counts(sizes: tuple[int, ...]) -> None:
    space = make_space(*sizes)
    work = survey(space)
    held = {layer.signature for candidate in work.cover for layer in layers_of(candidate)}
    assert {kernel.signature for kernel in space.kernels()} <= held
    assert len(work.cover) <= 12
    assert sum(work.share_by_macs.values()) == pytest.approx(1.0)


def test_a_random_candidate_needs_no_layer_that_the_cover_lacks() -> None:
    space, generator = make_space(1, 8, 8), random.Random(7)
    held = {layer.signature for candidate in survey(space).cover for layer in layers_of(candidate)}
    for _ in range(200):
        assert {layer.signature for layer in layers_of(space.sample(RandomSuggest(generator)))} <= held


def test_the_sampled_shares_agree_with_the_spaces_own_count() -> None:
    space = make_space(1, 8, 8)
    counted: dict[int, float] = {}
    for kernel in space.kernels():
        counted[kernel.num_macs] = counted.get(kernel.num_macs, 0.0) + kernel.work_share
    sampled = survey(space).share_by_macs
    for size, share in counted.items():
        assert sampled[size] == pytest.approx(share, abs=0.02)


def test_kernels_come_by_their_share_of_the_work_and_light_ones_last() -> None:
    tasks = [
        make_task("small", 210.0),
        make_task("often", 2050.0, num_uses=3),
        make_task("seldom", 2060.0),
        make_task("light", 7.0, is_heavy=False),
    ]
    found = space_kernels([tasks], {100: 0.1, 1000: 0.9})
    assert [each.task.key for each in found] == ["often", "seldom", "small", "light"]
    assert [each.work_share for each in found] == pytest.approx([0.675, 0.225, 0.1, 0.0])


def test_a_kernel_that_is_heavy_in_one_network_is_heavy_in_the_space() -> None:
    networks = [[make_task("a", 210.0, is_heavy=heavy)] for heavy in (False, True, False)]
    (found,) = space_kernels(networks, {100: 1.0})
    assert found.task.is_heavy


def test_operations_match_the_layer_that_they_are_twice_the_macs_and_an_epilogue_of() -> None:
    assert matching_macs(2000.0, [1000, 990]) == 1000
    assert matching_macs(1999.0, [1000]) is None
    assert matching_macs(20.0, [9]) == 9  # a depthwise kernel of 3x3 with bias and activation
