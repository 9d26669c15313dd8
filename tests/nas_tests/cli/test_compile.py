from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from profilers.artifact import Artifact
from tests.nas_tests.cli.fake_machine import FakeMachine
from tests.nas_tests.compile.candidates import SHALLOW


@pytest.fixture
def candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "candidate.json"
    path.write_text(json.dumps(SHALLOW.to_json()))
    return path


def test_an_unknown_target_lists_the_known_ones(machine: FakeMachine, candidate: Path, tmp_path: Path) -> None:
    said = machine.nas("compile", candidate, "--target", "z80", "--out", tmp_path / "o")
    assert "target 'z80' is unknown; allowed: aarch64, riscv64, rpi5" in said.complaint


@pytest.mark.parametrize("content", ["", "[]", '{"space": 1}', "[" * 100_000])
def test_what_is_no_candidate_is_one_line(
    machine: FakeMachine, candidate: Path, tmp_path: Path, content: str, linkers: None
) -> None:
    candidate.write_text(content)
    complaint = machine.nas("compile", candidate, "--target", "rpi5", "--out", tmp_path / "o").complaint
    assert str(candidate) in complaint or "candidate" in complaint
    assert not (tmp_path / "o").exists()


def test_a_folder_with_something_in_it_is_not_overwritten(
    machine: FakeMachine, candidate: Path, tmp_path: Path, linkers: None
) -> None:
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "mine").touch()
    said = machine.nas("compile", candidate, "--target", "rpi5", "--out", tmp_path / "o")
    assert "is not an empty folder" in said.complaint
    assert (tmp_path / "o" / "mine").exists()


def test_an_unknown_phase_lists_the_known_ones(
    machine: FakeMachine, candidate: Path, tmp_path: Path, linkers: None
) -> None:
    said = machine.nas("compile", candidate, "--target", "rpi5", "--phase", "decode", "--out", tmp_path / "o")
    assert "phase 'decode' is unknown; allowed: infer" in said.complaint


@pytest.mark.slow
def test_a_candidate_becomes_a_library_for_the_target(
    machine: FakeMachine, candidate: Path, tmp_path: Path, linkers: None
) -> None:
    out = tmp_path / "new" / "library"
    said = machine.nas("compile", candidate, "--target", "rpi5", "--threads", "4", "--out", out, "--json")
    assert said.code == 0, said.err
    assert "random weights" in said.err
    answer = json.loads(said.out)
    assert (answer["target"], answer["threads"], answer["tuned_coverage"]) == ("rpi5", 4, 0.0)
    artifact = Artifact.load(out)
    artifact.verify()
    assert json.loads(artifact.target)["mcpu"] == "cortex-a76"
    assert (out / "model.so").read_bytes()[18] == 183  # EM_AARCH64 of the ELF specification


@pytest.fixture
def linkers() -> None:
    if shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("aarch64-linux-gnu-gcc is not installed")
