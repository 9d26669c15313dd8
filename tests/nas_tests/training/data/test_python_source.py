from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from nas.training.audit import audit_splits
from nas.training.data.python_source import library_files
from nas.training.data.sources import load_task
from nas.training.task import TaskError, TaskSettings

SETTINGS = TaskSettings(name="python-source", max_train_examples=64, max_val_examples=40, max_test_examples=40)


def test_the_library_of_this_python_is_a_task_of_one_domain() -> None:
    task = load_task(SETTINGS)
    assert (task.kind, task.domains) == ("language_modelling", ("python",))
    assert (len(task.train), len(task.val), len(task.test)) == (64, 40, 40)
    assert task.train.inputs.shape == (64, 512)
    assert task.val.groups is not None and len(np.unique(task.val.groups)) > 10
    assert load_task(SETTINGS).fingerprint == task.fingerprint


def test_its_files_are_source_that_people_wrote() -> None:
    files = library_files(Path(sysconfig.get_path("stdlib")))
    names = {file.name for file in files}
    assert {"dataclasses.py", "json/decoder.py", "ast.py"} <= names
    assert not {"site-packages", "test", "tests", "idle_test"} & {part for name in names for part in name.split("/")}
    assert not any("cp437" in name or name.endswith("topics.py") for name in names), "generated tables"
    assert sum(len(file.content) for file in files) > 5_000_000
    for file in files[::20]:
        ast.parse(file.content)


def test_its_splits_have_few_passages_in_common_and_no_sequence() -> None:
    task = load_task(TaskSettings(name="python-source", max_train_examples=4096, max_val_examples=128))
    for finding in audit_splits(task):
        assert finding.kind == "copied_text"
        assert finding.count / finding.num_checked < 0.05, finding


def test_a_python_without_source_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "encodings").mkdir()
    with pytest.raises(TaskError, match=r"'python-source': .*: no files; .*use task\.name = \"text\""):
        library_files(tmp_path)
