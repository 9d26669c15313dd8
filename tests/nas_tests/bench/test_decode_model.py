from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nas.bench import decode_model
from nas.bench.decode_model import CACHE_TOKENS, HEAD, PHASE, SPACE, WIDTH, DecodeSpace, num_weight_bytes
from search_spaces import build, layers, registry
from search_spaces.entry import normal_inputs


@pytest.fixture
def installed() -> Iterator[None]:
    decode_model.install()
    yield
    for known in (layers.BLOCKS, build.BLOCKS, build.NETWORKS):
        del known[HEAD]  # type: ignore[attr-defined]
    del registry.SPACES[SPACE]


def test_it_has_27_million_parameters_and_its_bytes_are_theirs(installed: None) -> None:
    model = build.build_model(decode_model.candidate())
    count = sum(parameter.numel() for parameter in model.parameters())
    assert 27_000_000 < count < 28_000_000
    assert 4 * count == num_weight_bytes()


def test_installing_twice_is_fine_and_the_space_then_knows_its_phase(installed: None) -> None:
    decode_model.install()
    candidate = decode_model.candidate()
    space = registry.make_space(SPACE, candidate.input, candidate.head)
    (phase,) = space.phases(candidate)
    assert phase.name == PHASE
    assert {spec.name: spec.shape for spec in phase.inputs}["keys"][2] == CACHE_TOKENS


def test_a_step_depends_on_its_state_and_moves_it_on_by_one_token(installed: None) -> None:
    import torch

    torch.manual_seed(0)
    model = build.build_model(decode_model.candidate()).eval()
    candidate = decode_model.candidate()
    (phase,) = DecodeSpace(candidate.input, candidate.head).phases(candidate)
    inputs = normal_inputs(phase)
    with torch.no_grad():
        logits, convs, keys, values = model(*inputs)
        for place in (4, 5, 6):  # the state of convolutions, keys, values
            changed = [each.clone() for each in inputs]
            changed[place][..., -1] += 1.0
            assert not np.allclose(model(*changed)[0], logits)
    assert logits.shape == (1, decode_model.VOCABULARY)
    x_names: dict[str, Any] = {"keys": (keys, inputs[5]), "values": (values, inputs[6])}
    for new, old in x_names.values():
        assert torch.equal(new[:, :, :-1], old[:, :, 1:])
    assert convs.shape == inputs[4].shape == (decode_model.NUM_CONVS, WIDTH, decode_model.TAPS - 1)
    assert torch.equal(convs[..., 0], inputs[4][..., 1])
