from __future__ import annotations

import json
from pathlib import Path

import pytest

from nas.profile.targets import CandidateTarget, find_target
from search_spaces.candidate import Candidate
from search_spaces.registry import SPACES, example_space
from tests.nas_tests.cli.fake_machine import FakeMachine
from tests.nas_tests.search.small_studies import LARGE


def test_every_space_is_listed_with_both_its_counts(machine: FakeMachine) -> None:
    said = machine.nas("spaces")
    assert said.code == 0
    assert said.err == ""
    for name in SPACES:
        assert name in said.out
        for reference in example_space(name, {}).references():
            assert reference in said.out
    assert f"{LARGE.num_candidates():,}" in said.out
    assert f" {len(LARGE.kernels())} " in said.out


def test_the_overview_has_one_phase_of_a_kind_and_the_detail_all(machine: FakeMachine) -> None:
    overview, detail = machine.nas("spaces").out, machine.nas("spaces", "hybrid_language").out
    for phase in ("decode@512", "prefill@512"):
        assert phase in overview and phase in detail
    for phase in ("decode@128", "prefill@256"):
        assert phase not in overview and phase in detail
    assert "conv_attention" not in detail


def test_json_says_the_same_to_machines(machine: FakeMachine) -> None:
    found = {row["space"]: row for row in json.loads(machine.nas("spaces", "--json").out)["spaces"]}
    assert set(found) == set(SPACES)
    row = found["conv_attention"]
    assert row["input"]["options"] == {"channels": 1, "height": 8, "width": 8}
    assert row["head"]["options"] == {"classes": 10}
    assert row["candidates"] == LARGE.num_candidates() >= 1_000_000
    assert row["heavy_kernels"] == len(LARGE.kernels())
    assert set(row["references"]) == set(LARGE.references())
    assert row["references"]["reference"]["phases"]["infer"]["state_bytes"] is None
    attention = found["hybrid_language"]["references"]["attention_only"]
    assert attention["macs"] == attention["phases"]["decode@512"]["macs"]
    assert attention["phases"]["decode@512"]["state_bytes"] == 1_048_576
    assert "floor_ms" not in attention["phases"]["decode@512"]


def test_larger_images_are_counted_as_such(machine: FakeMachine) -> None:
    small, large = (
        json.loads(machine.nas("spaces", "--json", "--input", size).out)["spaces"][0] for size in ("1x8x8", "3x64x64")
    )
    assert large["references"]["reference"]["macs"] > small["references"]["reference"]["macs"]


def test_context_and_vocabulary_are_those_of_language_spaces_alone(machine: FakeMachine) -> None:
    options = ("spaces", "--json", "--context", "64", "--vocabulary", "300")
    found = {row["space"]: row for row in json.loads(machine.nas(*options).out)["spaces"]}
    for name in SPACES:
        if name.startswith("hybrid_language"):
            assert found[name]["input"]["options"] == {"context": 64, "vocabulary": 300}
            assert found[name]["head"]["options"] == {"vocabulary": 300}
    assert found["conv_attention"]["input"]["options"] == {"channels": 1, "height": 8, "width": 8}


@pytest.mark.parametrize("size", ["8x8", "axbxc", "0x8x8", "1x8x8x8", "1x-8x8"])
def test_an_image_of_no_size_is_a_usage_error(machine: FakeMachine, size: str) -> None:
    said = machine.nas("spaces", f"--input={size}")
    assert said.code == 2
    assert said.out == ""
    assert "CHANNELSxHEIGHTxWIDTH" in said.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--input", "1x2x2"), "image"),
        (("--context", "2"), "context is 2 tokens; allowed: 8 or more"),
        (("resnet",), "space 'resnet' is unknown; known: ['conv_attention'"),
        (("resnet", "--context", "64"), "space 'resnet' is unknown"),
        (("hybrid_language", "--classes", "3"), "--classes: the data of space 'hybrid_language' has context, vocab"),
        (("conv_attention", "--context", "64"), "--context: the data of space 'conv_attention' has channels"),
        (("hybrid_language", "--input", "1x8x8"), "--input: the data of space 'hybrid_language' has context"),
        (("hybrid_language", "--candidate", "best"), "no reference 'best'; it has lfm2_like"),
        (("--candidate", "lfm2_like"), "--candidate and --roofline are for one space"),
        (("--roofline",), "--candidate and --roofline are for one space"),
    ],
)
def test_what_no_space_serves_is_one_line(machine: FakeMachine, arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in machine.nas("spaces", *arguments).complaint


def test_a_reference_is_printed_as_a_file_that_other_commands_read(machine: FakeMachine, tmp_path: Path) -> None:
    said = machine.nas("spaces", "hybrid_language_350m", "--context", "512", "--candidate", "lfm2_like")
    path = tmp_path / "candidate.json"
    path.write_text(said.out)
    target = find_target(str(path), None)
    assert isinstance(target, CandidateTarget)
    assert target.candidate == Candidate.from_json(json.loads(said.out))
    assert target.candidate.input.integer("context") == 512
    mixers = [block.kind for block in target.candidate.blocks[1::2]]
    assert (mixers.count("short_convolution"), mixers.count("grouped_attention")) == (10, 6)


def test_floors_come_from_measured_peaks_and_are_called_predicted(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path))
    found = json.loads(machine.nas("spaces", "hybrid_language", "--roofline", "--json").out)
    peaks = found["peaks"]
    phases = found["spaces"][0]["references"]["largest"]["phases"]
    for cost in phases.values():
        rates = [each["bytes_per_s"] for each in peaks["bandwidths"] if each["footprint_bytes"] >= cost["weight_bytes"]]
        expected = max(2 * cost["macs"] / peaks["flops_per_s"], cost["moved_bytes"] / rates[0]) * 1e3
        assert cost["floor_ms"]["value"] == pytest.approx(expected)
        assert cost["floor_ms"]["source"] == "predicted"
    text = machine.nas("spaces", "hybrid_language", "--roofline").out
    assert "predicted floor, ms" in text and "never measured" in text
