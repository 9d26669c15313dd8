from __future__ import annotations

import json

import pytest

from search_spaces.registry import SPACES
from tests.nas_tests.cli.fake_machine import FakeMachine
from tests.nas_tests.search.small_studies import LARGE


def test_every_space_is_listed_with_both_its_counts(machine: FakeMachine) -> None:
    said = machine.nas("spaces")
    assert said.code == 0
    assert said.err == ""
    for name in SPACES:
        assert name in said.out
    assert f"{LARGE.num_candidates():,}" in said.out
    assert f" {len(LARGE.kernels())} " in said.out
    for name in LARGE.references():
        assert name in said.out


def test_json_says_the_same_to_machines(machine: FakeMachine) -> None:
    said = machine.nas("spaces", "--json")
    found = json.loads(said.out)
    assert (found["input"], found["classes"]) == ("1x8x8", 10)
    (row,) = [row for row in found["spaces"] if row["space"] == "conv_attention"]
    assert row["candidates"] == LARGE.num_candidates() >= 1_000_000
    assert row["heavy_kernels"] == len(LARGE.kernels())
    assert set(row["references"]) == set(LARGE.references())


def test_larger_images_are_counted_as_such(machine: FakeMachine) -> None:
    small, large = (
        json.loads(machine.nas("spaces", "--json", "--input", size).out)["spaces"][0] for size in ("1x8x8", "3x64x64")
    )
    assert large["references"]["reference"]["macs"] > small["references"]["reference"]["macs"]


@pytest.mark.parametrize("size", ["8x8", "axbxc", "0x8x8", "1x8x8x8", "1x-8x8"])
def test_an_image_of_no_size_is_a_usage_error(machine: FakeMachine, size: str) -> None:
    said = machine.nas("spaces", f"--input={size}")
    assert said.code == 2
    assert said.out == ""
    assert "CHANNELSxHEIGHTxWIDTH" in said.err


def test_data_that_no_space_serves_is_one_line(machine: FakeMachine) -> None:
    assert "image" in machine.nas("spaces", "--input", "1x2x2").complaint
