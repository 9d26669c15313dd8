"""Spaces are found by name, and a name is taken once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from search_spaces import registry
from search_spaces.candidate import BlockSpec, CandidateError
from search_spaces.conv_attention import ConvAttentionSpace

IMAGE = BlockSpec.of("image", channels=1, height=8, width=8)
HEAD = BlockSpec.of("classifier", classes=10)


def test_an_unknown_space_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CandidateError, match=r"space 'resnet' is unknown; known: \['conv_attention'"):
        registry.make_space("resnet", IMAGE, HEAD)


def test_a_registered_space_is_made_by_its_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SPACES", dict(registry.SPACES))
    registry.register("mine", ConvAttentionSpace)
    assert isinstance(registry.make_space("mine", IMAGE, HEAD), ConvAttentionSpace)


def test_a_name_that_is_taken_raises_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SPACES", dict(registry.SPACES))
    before = registry.SPACES["conv_attention"]
    with pytest.raises(CandidateError, match="'conv_attention' is already registered"):
        registry.register("conv_attention", lambda input, head: ConvAttentionSpace(input, head))
    assert registry.SPACES["conv_attention"] is before


@pytest.mark.parametrize("name", list(registry.SPACES))
def test_every_space_can_be_described_without_data(name: str) -> None:
    space = registry.example_space(name, {})
    assert space.references()
    assert space.name == name


def test_sizes_change_the_example_of_the_spaces_that_have_them_and_of_no_other() -> None:
    sizes = {"context": 64, "vocabulary": 300, "classes": 3}
    text = registry.EXAMPLES["hybrid_language"].resized(sizes)
    assert text == registry.text_of(context=64, vocabulary=300)
    image = registry.EXAMPLES["conv_attention"].resized(sizes)
    assert image.input == registry.EXAMPLES["conv_attention"].input
    assert image.head == BlockSpec.of("classifier", classes=3)


def test_a_registered_space_is_described_for_the_example_that_came_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SPACES", dict(registry.SPACES))
    monkeypatch.setattr(registry, "EXAMPLES", dict(registry.EXAMPLES))
    registry.register("mine", ConvAttentionSpace, registry.ExampleData(input=IMAGE, head=HEAD))
    registry.register("bare", ConvAttentionSpace)
    assert registry.example_space("mine", {"height": 32}).input.integer("height") == 32  # type: ignore[attr-defined]
    with pytest.raises(CandidateError, match="space 'bare' has no example data"):
        registry.example_space("bare", {})
    with pytest.raises(CandidateError, match="space 'none' is unknown; known"):
        registry.example_space("none", {})


def test_spaces_and_layers_come_without_torch() -> None:
    code = "import sys, search_spaces.registry, search_spaces.testing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0
