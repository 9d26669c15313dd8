from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from nas.training.data import text_files
from nas.training.data.text_files import read_texts, why_no_text
from nas.training.task import TaskError


def complaint(root: Path) -> str:
    with pytest.raises(TaskError) as caught:
        read_texts(root)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_every_text_below_a_folder_is_read_in_the_order_of_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "deep.txt").write_text("deep")
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"packed"))
    (tmp_path / ".hidden").write_text("hidden")
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    seen = [(file.name, file.content) for file in read_texts(tmp_path)]
    assert seen == [("a.txt", b"first"), ("b/deep.txt", b"deep"), ("c.txt.gz", b"packed")]
    assert [file.name for file in read_texts(tmp_path / "b" / "deep.txt")] == ["deep.txt"]


def test_what_is_no_text_is_said_of_a_file_that_was_named(tmp_path: Path) -> None:
    for content, words in (
        (b"", "empty"),
        (b"text\0more", "binary (it holds NUL bytes)"),
        (bytes(range(128, 256)) * 9, "of its bytes are not UTF-8"),
        ("utf-16".encode("utf-16"), "NUL"),
    ):
        (tmp_path / "file").write_bytes(content)
        assert words in complaint(tmp_path / "file")
    assert why_no_text("Größe, Maß und Süßigkeit in einer alten Kodierung, wie es sie gibt".encode("latin-1")) is None


def test_a_folder_without_text_says_what_it_has(tmp_path: Path) -> None:
    assert "no files; allowed: a folder with text files" in complaint(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"\0")
    assert "1 files and no text (first: " in complaint(tmp_path)


def test_what_is_not_there_or_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert "no such file or folder" in complaint(tmp_path / "absent")
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"text" * 1000)[:30])
    assert "torn.gz: cannot be read" in complaint(tmp_path)
    (tmp_path / "torn.gz").write_bytes(b"no gzip at all")
    assert "torn.gz: cannot be read" in complaint(tmp_path)
    (tmp_path / "torn.gz").unlink()
    os.mkfifo(tmp_path / "pipe")
    assert "neither a file nor a folder" in complaint(tmp_path / "pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "locked").write_text("text")
    (tmp_path / "locked").chmod(0)
    assert "cannot be read" in complaint(tmp_path)


def test_links_that_lead_in_a_circle_out_or_nowhere_are_refused_by_name(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "a.txt").write_text("text")
    link = root / "inner" / "back"
    link.symlink_to(root)
    assert f"{link}: a link back to" in complaint(root)
    for target in (link, "absent"):
        link.unlink()
        link.symlink_to(target)
        assert f"{link}: a link that leads nowhere" in complaint(root)
    link.unlink()
    (tmp_path / "outside.txt").write_text("text")
    link.symlink_to(tmp_path / "outside.txt")
    assert f"outside {root}; copy it into the folder" in complaint(root)
    assert [file.name for file in read_texts(root, follow_links=False)] == ["inner/a.txt"]
    link.unlink()
    link.symlink_to(root / "inner" / "a.txt")
    assert [file.name for file in read_texts(root)] == ["inner/a.txt", "inner/back"]
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert f"{loop}: cannot be read" in complaint(loop)


def test_more_text_than_memory_should_hold_is_refused_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "MAX_TEXT_BYTES", 1000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"a" * 1001))
    assert "more than 1000 bytes" in complaint(tmp_path / "bomb.gz")
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"a" * 600))
    assert len(read_texts(tmp_path)) == 1
    (tmp_path / "z.txt").write_text("b" * 600)
    assert "z.txt: with it there is more than 1000 bytes" in complaint(tmp_path)
