"""What a call of a phase costs, against figures worked out by hand from shapes."""

from __future__ import annotations

import pytest

from search_spaces.candidate import Candidate, CandidateError
from search_spaces.hybrid_language import SCALES
from search_spaces.layers import num_params
from search_spaces.phase_cost import phase_cost
from search_spaces.registry import SPACES, example_space
from search_spaces.space import replay


def reference(space: str, name: str, **sizes: int) -> Candidate:
    made = example_space(space, sizes)
    return replay(made, made.references()[name])


def test_decode_reads_every_weight_once_and_one_row_of_the_table() -> None:
    candidate = reference("hybrid_language", "attention_only")
    cost = phase_cost(candidate, "decode@512")
    one_row = 192
    assert cost.weight_bytes == 4 * (num_params(candidate) + one_row)
    assert cost.moved_bytes > cost.weight_bytes + (cost.state_bytes or 0)


def test_the_cache_of_attention_grows_with_the_context_and_a_convolutions_does_not() -> None:
    attention, convolution = (reference("hybrid_language", f"{kind}_only") for kind in ("attention", "convolution"))
    # Four layers, keys and values, two groups of 32 channels, four bytes each.
    assert phase_cost(attention, "decode@512").state_bytes == 4 * 2 * 2 * 32 * 512 * 4
    assert phase_cost(attention, "decode@128").state_bytes == 4 * 2 * 2 * 32 * 128 * 4
    # Four layers, two earlier values of 192 channels.
    assert {phase_cost(convolution, f"decode@{n}").state_bytes for n in (128, 512)} == {4 * 2 * 192 * 4}


def test_an_image_network_keeps_no_state() -> None:
    assert phase_cost(reference("conv_attention", "reference"), "infer").state_bytes is None


def test_a_phase_of_another_kind_of_network_is_refused() -> None:
    with pytest.raises(CandidateError, match="phase 'infer': allowed: prefill@N and decode@N"):
        phase_cost(reference("hybrid_language", "lfm2_like"), "infer")


@pytest.mark.parametrize("space", list(SPACES))
def test_every_phase_of_every_reference_has_a_cost(space: str) -> None:
    made = example_space(space, {})
    for choices in made.references().values():
        candidate = replay(made, choices)
        for phase in made.phases(candidate):
            cost = phase_cost(candidate, phase.name)
            assert 0 < cost.weight_bytes < cost.moved_bytes
            assert cost.num_operations == 2 * cost.num_macs > 0


@pytest.mark.parametrize(
    ("space", "low", "high"), [("hybrid_language_350m", 300, 400), ("hybrid_language_1b2", 1100, 1300)]
)
def test_the_large_scales_are_as_large_as_their_names_say(space: str, low: int, high: int) -> None:
    assert space in SCALES
    assert low <= num_params(reference(space, "lfm2_like")) / 1e6 <= high
