from __future__ import annotations

from pathlib import Path

import pytest

from nas.config import StudyConfig, load_config
from nas.search.study import open_folder
from nas.search.study_lock import Holder, Host, StudyError, locked

HERE = Host.this()
ELSEWHERE = Host(name="other-board", machine="0123456789abcdef", boot="feed-beef")


def refusal(path: Path, host: Host = HERE) -> str:
    with pytest.raises(StudyError) as caught, locked(path, "study.db", host):
        pass
    message = str(caught.value)
    assert "\n" not in message
    return message


def config_of(folder: Path, storage: str | None = None) -> StudyConfig:
    return load_config(overrides={"output.out": folder, "output.storage": storage})


def left_by(host: Host, path: Path) -> None:
    """What a process leaves that was killed while it had the lock."""
    path.write_text(str(Holder(process=4711, host=host)))


def test_a_study_that_another_host_has_is_refused_with_the_reason(tmp_path: Path) -> None:
    left_by(ELSEWHERE, tmp_path / ".lock")
    with pytest.raises(StudyError) as caught, open_folder(config_of(tmp_path), fresh=False):
        pass
    message = str(caught.value)
    assert "in use by process 4711 on host other-board" in message
    assert "SQLite and a results folder serve the processes of one host" in message
    assert "--storage postgresql://" in message
    assert f"remove {tmp_path / '.lock'}" in message and "\n" not in message
    (tmp_path / ".lock").unlink()
    with open_folder(config_of(tmp_path), fresh=False):
        """What the message says helps."""


def test_a_refused_host_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    left_by(ELSEWHERE, path := tmp_path / ".lock")
    before = path.read_bytes()
    refusal(path)
    assert path.read_bytes() == before


def test_a_database_beside_no_results_folder_is_locked_as_well(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    with open_folder(config_of(tmp_path / "one", url), fresh=False):
        second = open_folder(config_of(tmp_path / "two", url), fresh=False)
        with pytest.raises(StudyError, match=r"shared.db: in use by process \d+; wait for it"):
            second.__enter__()
    left_by(ELSEWHERE, tmp_path / "shared.db.lock")
    with pytest.raises(StudyError, match=r"shared.db: in use by process 4711 on host other-board"):
        open_folder(config_of(tmp_path / "two", url), fresh=False).__enter__()


def test_while_it_is_held_another_host_hears_who_has_it(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", "study.db", HERE):
        assert f"on host {HERE.name} (this is other-board)" in refusal(tmp_path / "lock", ELSEWHERE)
        assert "in use by process" in refusal(tmp_path / "lock", HERE)


def test_a_kill_on_the_same_host_is_no_obstacle_after_a_restart_either(tmp_path: Path) -> None:
    for left in (
        HERE,
        Host(name="before-renaming", machine=HERE.machine, boot=HERE.boot),
        Host(name=HERE.name, machine=None, boot="an earlier boot"),
        Host(name="container", machine="f00", boot="same kernel"),
    ):
        left_by(left, tmp_path / "lock")
        with locked(tmp_path / "lock", "study.db", Host(name=HERE.name, machine="f1", boot="same kernel")
                    if left.boot == "same kernel" else HERE):  # fmt: skip
            pass
        assert (tmp_path / "lock").read_text() == ""


@pytest.mark.parametrize("text", ["", "process 12", "something else", "process 12 on host", "\x00" * 50])
def test_a_lock_file_of_before_or_with_nonsense_counts_as_left_here(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    with locked(tmp_path / "lock", "study.db", HERE):
        holder = Holder.read((tmp_path / "lock").read_text())
        assert holder is not None and holder.host == HERE


def test_the_machine_id_itself_is_not_written_down(tmp_path: Path) -> None:
    machine = Path("/etc/machine-id")
    if not machine.is_file() or not machine.read_text().strip():
        pytest.skip("this machine has no /etc/machine-id")
    with locked(tmp_path / "lock", "study.db"):
        assert machine.read_text().strip() not in (tmp_path / "lock").read_text()
