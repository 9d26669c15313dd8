from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from profilers.artifact import Artifact
from search_spaces.registry import example_space
from search_spaces.space import replay
from tests.nas_tests.cli.fake_machine import FakeMachine

SPACE = example_space("hybrid_language", {"context": 16, "vocabulary": 17})


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    path = tmp_path / "candidate.json"
    path.write_text(json.dumps(replay(SPACE, SPACE.references()["smallest"]).to_json()))
    return path


def test_an_unknown_phase_lists_the_known_ones(machine: FakeMachine, candidate: Path, tmp_path: Path) -> None:
    said = machine.nas("export", candidate, "--out", tmp_path / "o", "--phase", "decode@16", "--phase", "infer")
    assert "phase 'infer' is unknown; allowed: decode@16, prefill@16, decode@8" in said.complaint
    assert not (tmp_path / "o").exists()


def test_a_folder_with_something_in_it_is_not_overwritten(
    machine: FakeMachine, candidate: Path, tmp_path: Path
) -> None:
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "mine").touch()
    assert "is not an empty folder" in machine.nas("export", candidate, "--out", tmp_path / "o").complaint
    assert (tmp_path / "o" / "mine").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"space": 1}'])
def test_what_is_no_candidate_is_one_line(machine: FakeMachine, candidate: Path, tmp_path: Path, content: str) -> None:
    candidate.write_text(content)
    assert "candidate" in machine.nas("export", candidate, "--out", tmp_path / "o").complaint
    assert "no such file" in machine.nas("export", tmp_path / "none", "--out", tmp_path / "o").complaint
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("command", ["export", "profile"])
def test_a_network_that_no_memory_or_file_holds_is_one_line(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path / "cache"))
    printed = machine.nas("spaces", "hybrid_language_1b2", "--vocabulary", str(10**9), "--candidate", "lfm2_like").out
    (tmp_path / "huge.json").write_text(printed)
    options = ["--out", tmp_path / "o", "--phase", "decode@4096"] if command == "export" else []
    said = machine.nas(command, tmp_path / "huge.json", *options)
    assert (said.code, said.out) == (2, "")
    assert "8196.14 GB of weights" in said.err.splitlines()[-1]
    assert not (tmp_path / "o").exists()


def test_damaged_weights_are_one_line_and_leave_nothing_behind(
    machine: FakeMachine, candidate: Path, tmp_path: Path
) -> None:
    winner = tmp_path / "winner"
    winner.mkdir()
    shutil.copy(candidate, winner / "candidate.json")
    (winner / "weights.pt").write_bytes(b"not weights")
    (winner / "weights.pt.sha256").write_text(f"{'0' * 64}  weights.pt\n")
    said = machine.nas("export", winner, "--out", tmp_path / "o", "--phase", "decode@16")
    assert "the file is damaged" in said.complaint
    assert "random" not in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["candidate.json", "winner"]


def test_a_network_is_written_by_default_in_the_first_phase_of_each_kind(
    machine: FakeMachine, candidate: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "files"
    said = machine.nas("export", candidate, "--out", out, "--json")
    assert said.code == 0, said.err
    assert "random weights" in said.err
    answer = json.loads(said.out)
    assert answer["weights"] == "random"
    assert [each["phase"] for each in answer["phases"]] == ["decode@16", "prefill@16"]
    for each in answer["phases"]:
        artifact = Artifact.load(Path(each["folder"]))
        artifact.verify()
        assert (artifact.phase, artifact.candidate_id) == (each["phase"], answer["candidate_id"])
        assert each["inputs"] == {spec.name: list(spec.shape) for spec in artifact.inputs}
        assert set(each["files"]) == {"model.onnx", "parity.npz"}
        assert each["parity_max_abs"] < 1e-3
    assert [path.name for path in out.parent.iterdir()] == ["files"]
