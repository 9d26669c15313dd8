from __future__ import annotations

from pathlib import Path

from nas.config import StudyConfig, load_config
from tests.nas_tests.cli.fake_machine import FakeMachine


def test_what_init_writes_reads_back_to_the_defaults(machine: FakeMachine, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    said = machine.nas("init", path)
    assert (said.code, said.out, said.err) == (0, f"wrote {path}; run: nas search {path}\n", "")
    assert load_config(path) == StudyConfig()
    for section, inner in StudyConfig().model_dump().items():
        assert f"[{section}]" in path.read_text()
        assert all(f"\n{key} = " in path.read_text() or f"\n# {key} =" in path.read_text() for key in inner)


def test_init_overwrites_nothing(machine: FakeMachine, tmp_path: Path) -> None:
    path = tmp_path / "nas.toml"
    path.write_text("mine")
    assert f"{path}: is already there" in machine.nas("init", path).complaint
    assert path.read_text() == "mine"


def test_init_without_a_folder_to_write_to_is_one_line(machine: FakeMachine, tmp_path: Path) -> None:
    assert "cannot be written (No such file or directory)" in machine.nas("init", tmp_path / "a" / "b.toml").complaint


def test_init_shows_the_defaults_of_a_space_and_refuses_an_unknown_one(machine: FakeMachine, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert machine.nas("init", path, "--space", "conv_attention").code == 0
    assert load_config(path) == StudyConfig()
    line = machine.nas("init", tmp_path / "other.toml", "--space", "conv_atention").complaint
    assert "--space: unknown 'conv_atention' (did you mean conv_attention?)" in line


def test_init_can_print_instead(machine: FakeMachine, tmp_path: Path) -> None:
    said = machine.nas("init", "--stdout")
    path = tmp_path / "printed.toml"
    path.write_text(said.out)
    assert load_config(path) == StudyConfig()
