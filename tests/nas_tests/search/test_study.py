from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nas.config import StudyConfig, load_config
from nas.ledger import LedgerError
from nas.search.study import command_line, open_folder, open_ledger, open_optuna_study, write_manifest
from nas.search.study_lock import StudyError
from nas.training.data.sources import load_task
from profilers.testing import FAKE_DEVICE


def config_of(folder: Path, **overrides: object) -> StudyConfig:
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_config(overrides={"output.out": folder, **keys})


def made(config: StudyConfig) -> Path:
    """A folder that holds a study, database and all."""
    with open_folder(config, fresh=False) as folder, open_ledger(config) as ledger:
        ledger.add_event("marker", {})
        write_manifest(folder, config, load_task(config.task), FAKE_DEVICE, {})
    return folder


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def refusal(config: StudyConfig, *, fresh: bool = False) -> str:
    with pytest.raises(StudyError) as caught, open_folder(config, fresh=fresh):
        pass
    message = str(caught.value)
    assert "\n" not in message
    return message


# Which folder


def test_the_same_study_opens_again_and_may_have_more_trials(tmp_path: Path) -> None:
    folder = made(config_of(tmp_path / "study"))
    with open_folder(config_of(tmp_path / "study", search__trials=99), fresh=False) as again:
        assert again == folder


def test_another_study_is_refused_and_every_key_that_differs_is_named(tmp_path: Path) -> None:
    folder = made(config_of(tmp_path / "study"))
    before = content(folder)
    message = refusal(config_of(folder, search__seed=7, training__epochs=3, search__trials=99))
    assert "search.seed: 0 in the folder, 7 now" in message
    assert "training.epochs: 8 in the folder, 3 now" in message
    assert "search.trials" not in message
    assert "--out" in message and "--fresh" in message
    assert content(folder) == before


def test_a_folder_with_files_of_someone_is_refused_also_with_fresh(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter1.txt").write_text("my only copy")
    for fresh in (False, True):
        assert "holds files but no study (first: chapter1.txt)" in refusal(config_of(folder), fresh=fresh)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_file_instead_of_a_folder_is_refused(tmp_path: Path, fresh: bool) -> None:
    (tmp_path / "study").write_text("a file")
    assert "is a file; choose another with --out" in refusal(config_of(tmp_path / "study"), fresh=fresh)
    assert "Not a directory" in refusal(config_of(tmp_path / "study" / "below"))


@pytest.mark.parametrize(
    "left", ["study.db", "study.db-wal", "study.db-shm", "study.db-journal", ".manifest.json.7.tmp"]
)
def test_what_a_kill_before_the_manifest_leaves_is_no_obstacle(tmp_path: Path, left: str) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / left).touch()
    with open_folder(config_of(folder), fresh=False):
        pass
    assert (folder / left).exists()


@pytest.mark.parametrize("text", ["{", "[]", "{}", "null", '{"identity": 5}', "\x00"])
def test_a_damaged_manifest_is_refused_and_can_be_moved_aside(tmp_path: Path, text: str) -> None:
    config = config_of(tmp_path / "study")
    folder = made(config)
    (folder / "manifest.json").write_text(text)
    assert "manifest.json: cannot be read" in refusal(config)
    assert (folder / "manifest.json").read_text() == text
    with open_folder(config, fresh=True):
        pass


def test_a_folder_that_was_made_for_nothing_is_taken_away_again(tmp_path: Path) -> None:
    with pytest.raises(LedgerError), open_folder(config_of(tmp_path / "a" / "b"), fresh=False):
        raise LedgerError("no answer")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_stays_even_when_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    with pytest.raises(LedgerError), open_folder(config_of(tmp_path / "study"), fresh=False):
        raise LedgerError("no answer")
    assert (tmp_path / "study").is_dir()


# Anew


def test_fresh_moves_the_study_aside_and_deletes_nothing(tmp_path: Path) -> None:
    config = config_of(tmp_path / "study")
    before = content(made(config))
    for number in (1, 2):
        with open_folder(config_of(tmp_path / "study", search__seed=number), fresh=True) as folder:
            assert [path.name for path in folder.iterdir()] == [".lock"]
            (folder / "manifest.json").write_text("{}")
    aside = sorted(tmp_path.glob("study.before-*"))
    assert len(aside) == 2, "two within a second do not collide"
    assert [content(path) for path in aside if (path / "study.db").exists()] == [before]


def test_fresh_with_nothing_there_is_a_plain_start(tmp_path: Path) -> None:
    with open_folder(config_of(tmp_path / "study"), fresh=True):
        pass
    (tmp_path / "study").mkdir(exist_ok=True)
    with open_folder(config_of(tmp_path / "study"), fresh=True):
        pass
    assert list(tmp_path.glob("*before*")) == []


def test_fresh_cannot_move_a_database_elsewhere_and_says_so(tmp_path: Path) -> None:
    config = config_of(tmp_path / "study", output__storage=f"sqlite:///{tmp_path}/shared.db")
    made(config)
    assert "--fresh moves a results folder aside, but this study is in sqlite:///" in refusal(config, fresh=True)


def test_fresh_does_not_move_the_folder_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(config_of(tmp_path / "study"))
    monkeypatch.chdir(folder)
    assert "--fresh cannot move the current folder" in refusal(config_of(Path()), fresh=True)


# One process at a time

HOLDER = """
import sys
from pathlib import Path
from nas.config import load_config
from nas.search.study import open_folder
with open_folder(load_config(overrides={"output.out": Path(sys.argv[1])}), fresh=False):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_who_has_the_folder(tmp_path: Path) -> None:
    folder = made(config_of(tmp_path / "study"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        before = content(folder)
        for fresh in (False, True):
            message = refusal(config_of(folder), fresh=fresh)
            assert f"in use by process {child.pid}; wait for it, or choose another with --out" in message
        assert content(folder) == before
        child.kill()
    with open_folder(config_of(folder), fresh=False):
        """The lock of a process that was killed is free."""


# The database


def test_the_database_of_another_study_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    open_ledger(config_of(tmp_path / "one", output__storage=url)).close()
    with pytest.raises(StudyError, match=r"shared.db holds another study: search.seed: 0 in the folder, 7 now"):
        open_ledger(config_of(tmp_path / "two", output__storage=url, search__seed=7))


def test_a_study_has_two_objectives_and_is_found_again(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with open_optuna_study(config, "maximize") as study:
        assert [direction.name for direction in study.directions] == ["MAXIMIZE", "MINIMIZE"]
        study.enqueue_trial({})
    with open_optuna_study(config, "maximize") as study:
        assert len(study.trials) == 1


# The manifest


def test_the_manifest_says_what_the_study_was(tmp_path: Path) -> None:
    config = config_of(tmp_path / "study", output__storage="postgresql://me:hunter2@host/db")
    folder = tmp_path / "study"
    folder.mkdir()
    task = load_task(config.task)
    write_manifest(folder, config, task, FAKE_DEVICE, {"started_at": "now"})
    text = (folder / "manifest.json").read_text()
    manifest = json.loads(text)
    assert set(manifest) == {
        "identity", "config", "device", "task", "versions", "git", "command", "started_at",
    }  # fmt: skip
    assert "hunter2" not in text
    assert manifest["device"]["fingerprint"] == FAKE_DEVICE.fingerprint
    assert set(manifest["device"]) == {"id", "fingerprint", "target", "cores", "num_threads", "runtimes", "facts"}
    assert (manifest["task"]["fingerprint"], manifest["task"]["num_train"]) == (task.fingerprint, len(task.train))
    assert {"nas", "python", "torch", "optuna", "apache-tvm"} <= set(manifest["versions"])
    assert manifest["git"] is None or len(manifest["git"]["commit"]) == 40
    assert manifest["config"]["search"]["trials"] == StudyConfig().search.trials


# What a hostile or careless hand leaves in the folder


@pytest.mark.parametrize("content_left", [None, b""])
def test_a_study_whose_database_is_gone_is_refused_not_started_anew(tmp_path: Path, content_left: bytes | None) -> None:
    folder = made(config_of(tmp_path / "study"))
    (folder / "study.db").unlink()
    if content_left is not None:
        (folder / "study.db").write_bytes(content_left)
    assert "study.db: missing or empty" in refusal(config_of(folder))


def test_a_lock_that_is_a_link_is_refused_and_its_target_left_alone(tmp_path: Path) -> None:
    folder = made(config_of(tmp_path / "study"))
    (tmp_path / "precious").write_text("precious")
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(tmp_path / "precious")
    assert ".lock: cannot be opened as a plain file" in refusal(config_of(folder))
    assert (tmp_path / "precious").read_text() == "precious"


def test_winners_that_are_a_link_are_refused(tmp_path: Path) -> None:
    folder = made(config_of(tmp_path / "study"))
    (tmp_path / "elsewhere").mkdir()
    (folder / "winners").symlink_to(tmp_path / "elsewhere")
    assert "winners: is a link" in refusal(config_of(folder))


@pytest.mark.parametrize("name", ["q?x=1", "a%20b", "c#d"])
def test_the_database_is_in_the_folder_whatever_its_name(tmp_path: Path, name: str) -> None:
    made(config_of(tmp_path / name))
    assert (tmp_path / name / "study.db").stat().st_size > 0
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("words", [["--storage", "postgresql://u:geheim@h/db"], ["--storage=postgresql://u:geheim@h/db"],
                                   ["--storage", "postgresql://h/db?user=u&password=geheim"]])  # fmt: skip
def test_the_command_that_is_written_down_holds_no_password(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["nas", "search", *words])
    assert "geheim" not in command_line()
    assert "postgresql://" in command_line()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
def test_a_database_in_memory_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="in memory cannot be resumed"):
        open_ledger(config_of(tmp_path / "study", output__storage=url))
