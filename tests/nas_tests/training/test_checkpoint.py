from __future__ import annotations

import hashlib
import logging
import pickle
from pathlib import Path

import pytest
import torch

from nas.training import checkpoint
from nas.training.checkpoint import (
    CheckpointError,
    checkpoints_in,
    damaged_checkpoints,
    latest_checkpoint,
    load_state,
    save_checkpoint,
    save_state,
    sidecar_of,
)

STATE = {"weight": torch.arange(6.0).reshape(2, 3), "step": 4}


def test_what_is_saved_comes_back_and_equal_states_have_equal_hashes(tmp_path: Path) -> None:
    first, second = save_state(tmp_path / "a.pt", STATE), save_state(tmp_path / "sub" / "b.pt", STATE)
    state = load_state(tmp_path / "a.pt")
    assert torch.equal(state["weight"], STATE["weight"]) and state["step"] == 4
    assert first == second == hashlib.sha256((tmp_path / "a.pt").read_bytes()).hexdigest()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "a.pt.sha256", "sub"]


@pytest.mark.parametrize("damage", ["torn", "bit", "no_sidecar", "empty_sidecar", "gone"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "weights.pt"
    save_state(path, STATE)
    content = bytearray(path.read_bytes())
    if damage == "torn":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "bit":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "no_sidecar":
        sidecar_of(path).unlink()
    elif damage == "empty_sidecar":
        sidecar_of(path).write_text("")
    else:
        path.unlink()
    with pytest.raises(CheckpointError, match=r"weights\.pt"):
        load_state(path)


def test_the_hash_of_the_caller_wins_over_the_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    save_state(path, STATE)
    with pytest.raises(CheckpointError, match="expected 000000000000"):
        load_state(path, sha256="0" * 64)


class _Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("trap"),))


def test_code_inside_a_file_is_never_run_even_when_its_hash_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "weights.pt"
    torch.save({"weight": _Trap()}, path)
    with pytest.raises(CheckpointError, match="not a file of tensors"):
        load_state(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    path.write_bytes(pickle.dumps(_Trap(), protocol=2))
    with pytest.raises(CheckpointError, match="not a file of tensors"):
        load_state(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert not (tmp_path / "trap").exists()


def test_a_failed_write_leaves_the_old_file_and_no_scraps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.pt"
    save_state(path, STATE)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save_state(path, {"weight": torch.zeros(3)})
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["weights.pt", "weights.pt.sha256"]


def test_the_two_newest_checkpoints_are_kept_and_the_newest_is_found(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        save_checkpoint(tmp_path, step=step, identity="me", state=STATE)
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["checkpoint-000000010.pt", "checkpoint-000000100.pt"]
    state = latest_checkpoint(tmp_path, identity="me")
    assert state is not None and state["step"] == 100


def test_states_of_a_training_that_got_further_but_is_not_continued_go_first(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, step=100, identity="other", state=STATE)
    for step in (9, 10):
        save_checkpoint(tmp_path, step=step, identity="me", state=STATE)
    assert [path.name for path in checkpoints_in(tmp_path)] == ["checkpoint-000000009.pt", "checkpoint-000000010.pt"]
    (tmp_path / "checkpoint-000000010.pt").write_bytes(b"cut")
    (complaint,) = damaged_checkpoints(tmp_path)
    assert "checkpoint-000000010.pt" in complaint


def test_a_torn_checkpoint_is_passed_over_for_the_older_whole_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_checkpoint(tmp_path, step=9, identity="me", state=STATE)
    (tmp_path / "checkpoint-000000010.pt").write_bytes(b"half")  # killed before the sidecar came
    with caplog.at_level(logging.WARNING):
        state = latest_checkpoint(tmp_path, identity="me")
    assert state is not None and state["step"] == 9
    assert "checkpoint-000000010.pt" in caplog.text


def test_a_checkpoint_of_another_training_is_not_continued(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, step=9, identity="other", state=STATE)
    assert latest_checkpoint(tmp_path, identity="me") is None
