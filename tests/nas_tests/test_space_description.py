from __future__ import annotations

import pytest

from nas.space_description import DescriptionError, describe, predicted_floor, reference_candidate, sizes_of
from profilers.roofline import DevicePeaks
from search_spaces.phase_cost import PhaseCost
from search_spaces.registry import SPACES, example_space

SLOW_MEMORY = DevicePeaks(flops_per_s=1e9, bandwidths=((1 << 20, 1e9), (1 << 30, 1e8)))


def cost_of(num_macs: int, weight_bytes: int, moved_bytes: int) -> PhaseCost:
    return PhaseCost(
        phase="infer", num_macs=num_macs, state_bytes=None, weight_bytes=weight_bytes, moved_bytes=moved_bytes
    )


def test_a_floor_counts_two_operations_for_each_mac() -> None:
    floor = predicted_floor(cost_of(num_macs=10**6, weight_bytes=10, moved_bytes=20), SLOW_MEMORY)
    assert (floor.latency_ms, floor.bound) == (pytest.approx(2.0), "operations")


def test_bytes_move_at_the_bandwidth_of_the_memory_that_holds_the_weights() -> None:
    near = predicted_floor(cost_of(num_macs=1, weight_bytes=1 << 19, moved_bytes=1 << 21), SLOW_MEMORY)
    far = predicted_floor(cost_of(num_macs=1, weight_bytes=1 << 20 | 1, moved_bytes=1 << 21), SLOW_MEMORY)
    assert (near.bound, far.bound) == ("bytes", "bytes")
    assert near.latency_ms == pytest.approx((1 << 21) / 1e9 * 1e3)
    assert far.latency_ms == pytest.approx(10 * near.latency_ms)


@pytest.mark.parametrize("name", list(SPACES))
def test_a_description_has_every_reference_in_every_phase(name: str) -> None:
    described = describe(name, {})
    assert described.num_candidates is not None
    space = example_space(name, {})
    assert [each.name for each in described.references] == list(space.references())
    for reference in described.references:
        assert [cost.phase for cost in reference.phases] == [phase.name for phase in space.phases(reference.candidate)]


def test_a_reference_is_the_candidate_that_the_space_makes_for_the_sizes_given() -> None:
    candidate = reference_candidate("hybrid_language", "lfm2_like", {"context": 64})
    assert candidate.input.integer("context") == 64
    described = describe("hybrid_language", {"context": 64})
    assert candidate in [each.candidate for each in described.references]


def test_an_unknown_reference_lists_the_known_ones() -> None:
    with pytest.raises(DescriptionError, match="'hybrid_language' has no reference 'x'; it has lfm2_like, attention"):
        reference_candidate("hybrid_language", "x", {})


def test_spaces_have_the_sizes_of_their_own_data_only() -> None:
    assert sizes_of(["hybrid_language"]) == {"context", "vocabulary"}
