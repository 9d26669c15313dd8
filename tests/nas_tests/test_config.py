from __future__ import annotations

import json
import os
import tomllib
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.budget import parse_budget
from nas.config import (
    MAY_CHANGE,
    ConfigError,
    StudyConfig,
    commented_toml,
    differences,
    identity,
    load_config,
    to_toml,
    without_secrets,
)
from nas.config_defaults import DEFAULTS_OF_KIND
from nas.config_errors import fields_of
from search_spaces.registry import SPACES

KEYS = [key for key, _ in fields_of(StudyConfig)]


def _load(tmp_path: Path, text: str, **known: list[str]) -> StudyConfig:
    path = tmp_path / "study.toml"
    path.write_text(text)
    return load_config(path, known={key.replace("__", "."): names for key, names in known.items()})


def _mistakes(tmp_path: Path, text: str, **known: list[str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text, **known)
    assert str(tmp_path / "study.toml") in str(caught.value)
    assert all("\n" not in line for line in caught.value.mistakes)
    return caught.value.mistakes


def test_an_empty_file_is_the_default_configuration(tmp_path: Path) -> None:
    assert _load(tmp_path, "") == StudyConfig() == load_config()


def test_every_mistake_is_listed_with_its_key_the_value_seen_and_what_is_allowed(tmp_path: Path) -> None:
    lines = _mistakes(
        tmp_path,
        """
        [search]
        trials = 0
        sampler = "tpee"
        budgets = ["5"]
        minutes = -1
        [training]
        epochs = "twelve"
        epoch = 3
        learning_rate = nan
        [task]
        max_train_examples = 1979-05-27
        [device]
        threads = true
        """,
    )
    expected = {
        "search.trials": "seen 0; allowed: a whole number, at least 1",
        "search.sampler": "seen 'tpee'; allowed: one of budget, tpe, nsga2, gp, random",
        "search.budgets": "budget '5': the unit is missing; allowed: us, µs, ms, s; for instance latency=5ms",
        "search.minutes": "seen -1; allowed: a number, above 0",
        "training.epochs": "seen 'twelve'; allowed: a whole number, at least 1",
        "training.epoch": "unknown key (did you mean training.epochs?); allowed: epochs, epoch_examples,",
        "training.learning_rate": "seen nan; allowed: a number, above 0",
        "task.max_train_examples": "seen '1979-05-27'; allowed: a whole number",
        "device.threads": "seen True; allowed: a whole number, at least 1",
    }
    assert len(lines) == len(expected)
    for key, text in expected.items():
        line = next(line for line in lines if line.startswith(key + ": "))
        assert text in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[serach]\ntrials = 1", ["serach: unknown key", "did you mean search", "compile, device"]),
        ("[search]\nepochs = 1", ["search.epochs: unknown key (did you mean training.epochs?)", "allowed: space"]),
        ("trials = 1", ["trials: unknown key (did you mean search.trials?)"]),
        ("search = 5", ["search: seen 5; allowed: a section [search] with space, trials"]),
        ("[search]\nbudgets = '5ms'", ["search.budgets: seen '5ms'; allowed: a list of text"]),
        ("[search]\nbudgets = [5]", ["search.budgets[0]: seen 5; allowed: a list of text"]),
        ("[search]\nbudgets = ['5ms', 'latency=4ms']", ["latency=5ms and latency=4ms bound the same thing"]),
        ("[search]\nbudgets = [inf]", ["search.budgets: seen inf"]),
        ("[search]\ntrials = 2.5", ["search.trials: seen 2.5; allowed: a whole number"]),
        ("[output]\nout = 5", ["output.out: seen 5; allowed: a path"]),
        ("[search]\nspace = ''", ["search.space: seen ''; allowed: text, not empty"]),
    ],
)
def test_one_mistake_is_one_line(tmp_path: Path, text: str, words: list[str]) -> None:
    (line,) = _mistakes(tmp_path, text)
    for word in words:
        assert word in line


def test_a_name_no_registry_has_is_listed_with_the_other_mistakes(tmp_path: Path) -> None:
    lines = _mistakes(
        tmp_path,
        "[search]\nspace = 'conv_atention'\ntrials = 0",
        search__space=["conv_attention", "hybrid_language"],
    )
    assert any(
        "search.space: unknown 'conv_atention' (did you mean conv_attention?); allowed: conv_attention, hybrid" in line
        for line in lines
    )
    assert any(line.startswith("search.trials: ") for line in lines)


def test_broken_toml_is_named_with_line_and_column(tmp_path: Path) -> None:
    (line,) = _mistakes(tmp_path, "[search]\ntrials 5\n")
    assert "line 2, column 8" in line
    (line,) = _mistakes(tmp_path, "[search]\nspace = 'a")
    assert "line 2, column 11" in line


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: no such file; `nas init`"):
        load_config(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 0"):
        load_config(tmp_path / "latin.toml")


@pytest.fixture
def language_space(monkeypatch: pytest.MonkeyPatch) -> str:
    """A space of language models, by name."""

    class Space:
        task_kind = "language_modelling"

    monkeypatch.setitem(SPACES, "tests_language", partial(Space))
    return "tests_language"


def test_a_space_brings_data_and_recipe_and_the_user_has_the_last_word(tmp_path: Path, language_space: str) -> None:
    defaults = DEFAULTS_OF_KIND["language_modelling"]
    config = _load(tmp_path, f"[search]\nspace = '{language_space}'\n[training]\nepochs = 3\n")
    assert (config.task.name, config.task.context) == ("python-source", 512)
    assert config.training.label_smoothing == 0
    assert config.training.epochs == 3
    assert config.training.learning_rate == defaults["training.learning_rate"]
    assert config.results_dir.as_posix() == "results/tests_language-python-source"
    assert identity(config)["task.vocabulary"] == 256
    by_option = load_config(overrides={"search.space": language_space, "task.context": 64, "training.epochs": None})
    assert (by_option.task.context, by_option.training.epochs) == (64, defaults["training.epochs"])
    assert load_config() == StudyConfig(), "spaces of images keep their defaults"


def test_every_default_of_a_space_is_a_key_with_an_allowed_value(language_space: str) -> None:
    config = load_config(overrides={"search.space": language_space})
    for key, value in DEFAULTS_OF_KIND["language_modelling"].items():
        section, _, name = key.partition(".")
        assert getattr(getattr(config, section), name) == value, key


def test_mistakes_in_a_section_that_has_defaults_are_still_one_line_each(tmp_path: Path, language_space: str) -> None:
    lines = _mistakes(tmp_path, f"task = 5\n[search]\nspace = '{language_space}'\n[training]\nepochs = 0\n")
    assert sorted(line.partition(":")[0] for line in lines) == ["task", "training.epochs"]


def test_the_commented_file_of_a_space_shows_its_defaults_and_reads_back_to_them(
    tmp_path: Path, language_space: str
) -> None:
    text = commented_toml(language_space)
    assert f'space = "{language_space}"' in text and "\ncontext = 512\n" in text
    assert _load(tmp_path, text) == load_config(overrides={"search.space": language_space})


def test_domains_survive_toml_in_the_form_that_people_write(tmp_path: Path) -> None:
    config = _load(tmp_path, "[task]\nname = 'text'\n[task.domains]\n'two words' = 'b/'\ncode = 'src/'\n")
    assert config.task.domains == (("code", "src/"), ("two words", "b/"))
    assert 'domains = {code = "src/", "two words" = "b/"}' in to_toml(config)
    assert _load(tmp_path, to_toml(config)) == config
    assert json.loads(json.dumps(identity(config)))["task.domains"] == {"code": "src/", "two words": "b/"}
    assert hash(config.task) == hash(_load(tmp_path, to_toml(config)).task)


def test_overrides_win_over_the_file_and_none_means_not_given(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("[search]\ntrials = 5\nseed = 3\n")
    overrides = {"search.trials": 7, "search.seed": None, "output.out": tmp_path, "search.budgets": ["5ms"]}
    config = load_config(path, overrides)
    assert (config.search.trials, config.search.seed, config.output.out) == (7, 3, tmp_path)
    assert config.search.parsed_budgets == (parse_budget("5ms"),)


def test_a_wrong_override_is_a_mistake_like_any_other() -> None:
    with pytest.raises(ConfigError, match=r"search\.trials: seen 0; .*") as caught:
        load_config(overrides={"search.trials": 0, "search.trails": 1})
    assert len(caught.value.mistakes) == 2


def test_every_key_has_a_meaning() -> None:
    for key, field in fields_of(StudyConfig):
        assert field.description, key


def test_the_commented_file_is_the_default_and_has_every_key(tmp_path: Path) -> None:
    text = commented_toml()
    assert _load(tmp_path, text) == StudyConfig()
    # Uncommented, the keys that are not set by default are there as well.
    sections: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), set())
        elif "=" in line and (words := line.removeprefix("# ").split(" ="))[0].isidentifier():
            section.add(words[0])
    assert {f"{section}.{key}" for section, keys in sections.items() for key in keys} == set(KEYS)
    assert max(len(line) for line in text.splitlines()) <= 100


_configs = st.builds(
    lambda trials, seed, minutes, rate, out, storage: load_config(
        overrides={
            "search.trials": trials,
            "search.seed": seed,
            "search.minutes": minutes,
            "training.learning_rate": rate,
            "output.out": out,
            "output.storage": storage,
            "search.budgets": ["params=7", "5ms"],
        }
    ),
    st.integers(1, 10**9),
    st.integers(0, 2**32 - 1),
    st.none() | st.floats(1e-9, 1e9),
    st.floats(1e-12, 1e12),
    st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)


@given(_configs)
def test_a_configuration_survives_toml(config: StudyConfig) -> None:
    assert StudyConfig.model_validate(tomllib.loads(to_toml(config))) == config


def test_what_may_change_are_keys_that_exist() -> None:
    assert set(KEYS) >= MAY_CHANGE
    assert set(identity(StudyConfig())) == set(KEYS) - MAY_CHANGE


def test_a_study_may_be_resumed_with_more_trials_and_workers(tmp_path: Path) -> None:
    later = load_config(
        overrides={"search.trials": 99, "search.minutes": 1, "compile.workers": 3, "output.out": tmp_path}
    )
    assert differences(identity(StudyConfig()), identity(later)) == []


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("search.seed", 1, "search.seed: 0 in the folder, 1 now"),
        ("search.sampler", "gp", "search.sampler: 'budget' in the folder, 'gp' now"),
        ("training.epochs", 3, "training.epochs: 8 in the folder, 3 now"),
        ("device.threads", 2, "device.threads: 1 in the folder, 2 now"),
        ("search.budgets", ["5ms"], "search.budgets: [] in the folder, ['latency=5ms'] now"),
        ("task.name", "fashion-mnist", "task.name: 'digits' in the folder, 'fashion-mnist' now"),
        ("compile.tuning_trials", 0, "compile.tuning_trials: 16 in the folder, 0 now"),
    ],
)
def test_another_study_is_told_apart_by_key(key: str, value: object, line: str) -> None:
    later = load_config(overrides={key: value})
    assert differences(identity(StudyConfig()), identity(later)) == [line]


def test_the_same_budgets_in_other_words_are_the_same_study() -> None:
    one = load_config(overrides={"search.budgets": ["5ms", "model=1MB"]})
    other = load_config(overrides={"search.budgets": ["model=1000kB", "latency=0.005s"]})
    assert differences(identity(one), identity(other)) == []


def test_a_key_of_another_version_is_a_difference() -> None:
    now = identity(StudyConfig())
    old = {key: value for key, value in now.items() if key != "search.seed"}
    assert differences(old, now) == ["search.seed: no such key in the folder, 0 now"]


def test_a_study_of_before_a_key_came_is_resumed_when_the_key_is_not_set() -> None:
    now = identity(StudyConfig())
    old = {key: value for key, value in now.items() if key != "task.context"}
    assert differences(old, now) == []
    assert differences(old, now | {"task.context": 64}) == ["task.context: no such key in the folder, 64 now"]


def test_the_results_folder_and_database_follow_from_space_and_task(tmp_path: Path) -> None:
    assert StudyConfig().storage_url == "sqlite:///results/conv_attention-digits/study.db"
    assert load_config(overrides={"output.out": tmp_path}).storage_url == f"sqlite:///{tmp_path}/study.db"


def test_a_password_is_masked_for_reports() -> None:
    config = load_config(overrides={"output.storage": "postgresql://me:hunter2@host/db"})
    assert "hunter2" not in to_toml(without_secrets(config))
    assert config.storage_url == "postgresql+psycopg://me:hunter2@host/db"


@pytest.mark.parametrize("text", ["[search]\ntrials = " + "1" * 5000, "a = " + "[" * 5000, "#" * (2 << 20)])
def test_monstrous_files_are_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "nas.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "nas.toml")
    assert len(str(caught.value)) < 1000


def test_a_pipe_is_no_configuration_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "nas.toml")
    with pytest.raises(ConfigError, match="no plain file"):
        load_config(tmp_path / "nas.toml")
