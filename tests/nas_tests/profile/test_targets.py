from __future__ import annotations

import json
from pathlib import Path

import pytest

from nas.ledger import Ledger
from nas.profile.targets import CandidateTarget, OnnxTarget, TargetError, find_target, parse_shapes
from tests.nas_tests.trials import make_candidate, make_record


@pytest.mark.parametrize("text", ["", "x", "x:", ":1x2", "x:0x3", "x:1x-3", "x:1x3x", "x:٣", "x:1.5"])
def test_sizes_that_cannot_be_read_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(TargetError, match="for instance x:1x3x224x224"):
        parse_shapes([text])


def test_an_inputs_name_may_hold_colons_and_is_given_once() -> None:
    assert parse_shapes(["a:0:2x3"]) == (("a:0", (2, 3)),)
    with pytest.raises(TargetError, match="given twice"):
        parse_shapes(["x:1", "x:2"])


def test_a_candidate_is_found_by_file_by_folder_and_by_the_start_of_its_id(tmp_path: Path) -> None:
    candidate = make_candidate()
    winner = tmp_path / "winners" / candidate.candidate_id
    winner.mkdir(parents=True)
    (winner / "candidate.json").write_text(json.dumps(candidate.to_json()))
    wanted = CandidateTarget(name=candidate.candidate_id, candidate=candidate)
    assert find_target(str(winner / "candidate.json"), None) == wanted
    assert find_target(str(winner), None) == wanted
    assert find_target(candidate.candidate_id[:4], tmp_path) == wanted


def test_a_study_without_that_candidate_says_which_it_has(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"no study\.db"):
        find_target("abc", tmp_path)
    record = make_record(0)
    with Ledger(f"sqlite:///{tmp_path / 'study.db'}") as ledger:
        ledger.record(record)
    with pytest.raises(TargetError, match=f"no candidate 'zzz'; it has {record.candidate.candidate_id}"):
        find_target("zzz", tmp_path)
    found = find_target(record.candidate.candidate_id, tmp_path)
    assert isinstance(found, CandidateTarget) and found.candidate == record.candidate


@pytest.mark.parametrize("content", ["{", "[]", '{"space": 1}', "\x00"])
def test_a_file_that_is_no_candidate_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "candidate.json"
    path.write_text(content)
    with pytest.raises(TargetError, match="not a candidate") as caught:
        find_target(str(path), None)
    assert "\n" not in str(caught.value)


def test_anything_else_is_taken_for_an_onnx_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"x")
    shapes = (("x", (1, 2)),)
    assert find_target(str(path), None, shapes) == OnnxTarget(name="model.onnx", path=path, shapes=shapes)
    with pytest.raises(TargetError, match="no such file"):
        find_target(str(tmp_path / "absent"), None)
