from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from nas.cli.main import is_mendable, report
from nas.errors import NasError
from nas.training.task import TaskError
from profilers.errors import ProfilerError
from search_spaces.candidate import CandidateError
from tests.nas_tests.cli.fake_machine import FakeMachine

HEAVY = ("torch", "tvm", "optuna", "pandas", "matplotlib", "sqlalchemy", "numpy", "sklearn", "onnx", "onnxruntime")

CHILD = """
import sys
from nas.cli.main import main
sys.argv = ["nas", *sys.argv[1:]]
try:
    main()
finally:
    print("loaded:", *sorted(set(sys.modules) & set({heavy!r})), file=sys.stderr)
"""


def child(*arguments: str, code: str = CHILD.format(heavy=HEAVY)) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize("arguments", [["--help"], ["search", "--help"], ["init", "--help"], ["spaces", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    done = child(*arguments)
    assert done.returncode == 0
    assert "Usage: nas" in done.stdout
    assert done.stderr.splitlines() == ["loaded:"]


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    done = child(code=f"import sys, nas.cli.main; print(sorted(set(sys.modules) & set({HEAVY!r})))")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_every_command_is_in_the_help(machine: FakeMachine) -> None:
    said = machine.nas("--help")
    for command in ("search", "spaces", "init"):
        assert command in said.out


@pytest.mark.parametrize("arguments", [["serch"], ["search", "--no-such-option"], ["search", "--trials", "many"]])
def test_what_is_no_command_ends_with_2(
    machine: FakeMachine, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = machine.nas(*arguments)
    assert said.code == 2
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [NasError, TaskError, ProfilerError, CandidateError, OSError])
def test_what_a_user_can_mend_is_one_line(capsys: pytest.CaptureFixture[str], error: type[Exception]) -> None:
    assert report(error("the message")) == 2
    assert capsys.readouterr().err == "nas: the message\n"


@pytest.mark.parametrize("error", [ValueError, KeyError, AssertionError, RuntimeError])
def test_what_only_we_can_mend_is_unexpected(capsys: pytest.CaptureFixture[str], error: type[Exception]) -> None:
    assert not is_mendable(error("x"))
    assert report(error("x")) == 3
    assert f"nas: unexpected {error.__name__}" in capsys.readouterr().err


def test_ctrl_c_while_libraries_are_still_loaded_ends_with_130(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loading(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "nas.search.session", Loading("nas.search.session"))
    said = machine.nas("search", "--out", tmp_path / "study")
    assert said.code == 130
    assert "Run the same command again to go on." in said.err
    assert list(tmp_path.iterdir()) == []
