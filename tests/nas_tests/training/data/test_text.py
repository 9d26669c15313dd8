from __future__ import annotations

import os
from pathlib import Path

import pytest

from nas.config import ConfigError, load_config
from nas.training.data.sources import load_task
from nas.training.task import TaskError, TaskSettings
from tests.nas_tests.training.small_texts import CONTEXT, files_of

TEXTS = os.environ.get("NAS_TEST_TEXTS")
"""A folder with texts to try: `tinyshakespeare.txt.gz` and `wikitext2_valid.txt.gz`."""


def write(folder: Path, words: str) -> Path:
    folder.mkdir()
    for file in files_of(words):
        (folder / file.name).write_bytes(file.content)
    return folder


def test_a_folder_is_one_domain_and_a_table_of_folders_several(tmp_path: Path) -> None:
    english, numbers = write(tmp_path / "e", "english"), write(tmp_path / "n", "numbers")
    one = load_task(TaskSettings(name="text", path=str(english), context=CONTEXT))
    assert one.domains == ("text",)
    path = tmp_path / "study.toml"
    path.write_text(
        f'[search]\nspace = "conv_attention"\n[task]\nname = "text"\ncontext = {CONTEXT}\n'
        f'[task.domains]\nnumbers = "{numbers}"\nenglish = "{english}"\n'
    )
    assert load_task(load_config(path).task).domains == ("english", "numbers")


def test_without_a_path_or_with_two_kinds_of_path_the_forms_are_shown(tmp_path: Path) -> None:
    for settings in (TaskSettings(name="text"), TaskSettings(name="text", path="a", domains=(("b", "c"),))):
        with pytest.raises(TaskError, match=r"\[task\.domains\] with english = \"books/\", code = \"src/\""):
            load_task(settings)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("[task.domains]\na = 'x'\na = 'y'", "not valid TOML: Cannot overwrite a value"),
        ("[task.domains]\nCode = 'x'\ncode = 'y'", "two domains are called 'code' and 'Code'"),
        ("[task.domains]\ncode = ''", "'code' is ''; allowed: a name and a file or folder"),
        ("[task.domains]\ncode = 5", "allowed: a table of names and paths"),
        ("[task]\ndomains = 'books/'", "allowed: a table of names and paths"),
        ("[task]\ndomains = {}", "allowed: a table of names and paths"),
        ("[task]\ncontext = 7", "task.context: seen 7; allowed: a whole number, at least 8"),
        ("[task]\nvocabulary = 100", "task.vocabulary: seen 100; allowed: a whole number, at least 256"),
    ],
)
def test_bad_settings_are_one_line(tmp_path: Path, lines: str, words: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(lines)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert words in str(caught.value)
    assert len(caught.value.mistakes) == 1


@pytest.mark.skipif(TEXTS is None, reason="NAS_TEST_TEXTS names no folder with texts")
def test_a_play_and_an_encyclopedia_are_two_domains_cut_from_one_file_each() -> None:
    root = Path(str(TEXTS))
    domains = (("play", str(root / "tinyshakespeare.txt.gz")), ("wiki", str(root / "wikitext2_valid.txt.gz")))
    task = load_task(TaskSettings(name="text", domains=domains))
    assert task.domains == ("play", "wiki")
    assert task.train.labels.nbytes > 1_000_000
    assert bytes(task.train.inputs[task.train.domains == 0].ravel()).count(b"KING") > 50
