from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.config import StudyConfig, differences, identity, load_config
from nas.ledger import Ledger
from nas.search.progress import Silent
from nas.search.study import write_manifest
from nas.search.testing import plausible
from nas.search.warm_start import MAX_TAKEN, WarmStartError, earlier_scores, take_over
from nas.training.data.sources import load_task
from nas.training.task import Task
from nas.trial import TrialRecord
from profilers.testing import FAKE_DEVICE
from search_spaces.space import replay
from tests.nas_tests.search.small_studies import LARGE, configure, run


class Listener(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(StudyConfig().task)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, task: Task) -> tuple[Path, tuple[TrialRecord, ...]]:
    """A study of 25 random candidates within 12 ms, with its database and manifest."""
    folder = tmp_path_factory.mktemp("earlier") / "study"
    config = configure(folder, trials=25, budgets=["infer=12ms"], sampler="random")
    records = run(config, space=LARGE, script=plausible).records
    write_manifest(folder, config, task, FAKE_DEVICE, {})
    return folder, records


@pytest.fixture
def earlier(finished: tuple[Path, tuple[TrialRecord, ...]], tmp_path: Path) -> Path:
    """A copy of it that a test may spoil."""
    copy = tmp_path / "earlier"
    copy.mkdir()
    for name in ("study.db", "manifest.json"):
        (copy / name).write_bytes((finished[0] / name).read_bytes())
    return copy


def new_study(tmp_path: Path, *earlier: Path, **overrides: object) -> StudyConfig:
    return configure(tmp_path / "new", sampler="budget", warm_start=list(earlier) or None, **overrides)


def taken_over(config: StudyConfig, task: Task) -> Listener:
    listener = Listener()
    with Ledger(config.storage_url) as ledger:
        take_over(config, LARGE, task, ledger, listener)
    return listener


def refusal(tmp_path: Path, earlier: Path, task: Task, **overrides: object) -> str:
    config = new_study(tmp_path, earlier, **overrides)
    with pytest.raises(WarmStartError) as caught:
        taken_over(config, task)
    message = str(caught.value)
    assert message.startswith(f"warm start from {earlier}: ") and "\n" not in message
    with Ledger(config.storage_url) as ledger:
        assert earlier_scores(ledger) == ()
    return message


def test_scored_networks_are_taken_over_and_none_becomes_a_trial(
    earlier: Path, finished: tuple[Path, tuple[TrialRecord, ...]], tmp_path: Path, task: Task
) -> None:
    config = new_study(tmp_path, earlier)
    taken_over(config, task)
    scored = {record.candidate.candidate_id: record.score.value for record in finished[1] if record.score is not None}
    assert len(scored) > 5
    with Ledger(config.storage_url) as ledger:
        (scores,) = earlier_scores(ledger)
        assert ledger.records() == ()
    found = [replay(LARGE, choices).candidate_id for choices in scores.choices]
    assert dict(zip(found, scores.qualities, strict=True)) == scored


def test_a_resumed_search_knows_the_same_when_the_other_folder_is_gone(
    earlier: Path, tmp_path: Path, task: Task
) -> None:
    config = new_study(tmp_path, earlier)
    assert len(taken_over(config, task).notes) == 1
    with Ledger(config.storage_url) as ledger:
        before = earlier_scores(ledger)
    for path in earlier.iterdir():
        path.unlink()
    assert taken_over(config, task).notes == []
    with Ledger(config.storage_url) as ledger:
        assert earlier_scores(ledger) == before


def test_reading_changes_nothing_in_the_other_folder(earlier: Path, tmp_path: Path, task: Task) -> None:
    before = {path.name: path.read_bytes() for path in earlier.iterdir()}
    taken_over(new_study(tmp_path, earlier), task)
    assert {path.name: path.read_bytes() for path in earlier.iterdir()} == before


def test_a_warm_search_tries_better_networks_first(earlier: Path, tmp_path: Path, task: Task) -> None:
    """Sixteen trials, of which the first three are references in both."""
    config = new_study(tmp_path, earlier, trials=16, budgets=["infer=12ms"])
    taken_over(config, task)
    warm = run(config, space=LARGE, script=plausible)
    cold = run(configure(tmp_path / "cold", sampler="budget", trials=16, budgets=["infer=12ms"]), space=LARGE,
               script=plausible)  # fmt: skip

    def mean_score(records: tuple[TrialRecord, ...]) -> float:
        values = [record.score.value for record in records[3:] if record.score is not None]
        return float(np.mean(values))

    assert mean_score(warm.records) > mean_score(cold.records)
    assert [record.trial for record in warm.records] == list(range(16))


def test_another_length_of_training_is_allowed_for_and_said(earlier: Path, tmp_path: Path, task: Task) -> None:
    config = new_study(tmp_path, earlier)
    longer = config.model_copy(update={"training": config.training.model_copy(update={"epochs": 40})})
    (note,) = taken_over(longer, task).notes
    assert "trained otherwise (epochs 8 then, 40 now)" in note


def test_a_large_study_gives_its_best_and_some_of_the_rest(
    earlier: Path, tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nas.search.warm_start.MAX_TAKEN", 6)
    config = new_study(tmp_path, earlier)
    with Ledger(f"sqlite:///{earlier}/study.db") as ledger:
        values = sorted((record.score.value for record in ledger.records() if record.score), reverse=True)
    taken_over(config, task)
    with Ledger(config.storage_url) as ledger:
        (scores,) = earlier_scores(ledger)
    assert len(values) > 6 and MAX_TAKEN > 6
    assert len(scores.qualities) == 6 and list(scores.qualities[:3]) == values[:3]


def test_a_study_begun_warm_is_another_study_than_one_begun_cold(earlier: Path, tmp_path: Path) -> None:
    cold, warm = identity(new_study(tmp_path)), identity(new_study(tmp_path, earlier))
    assert any(line.startswith("search.warm_start") for line in differences(cold, warm))
    of_before = {key: value for key, value in cold.items() if key != "search.warm_start"}
    assert differences(of_before, cold) == [], "a study of a version without warm starts goes on"


# What is refused


def test_another_space_is_refused(earlier: Path, tmp_path: Path, task: Task) -> None:
    rewrite(earlier, lambda manifest: manifest["config"]["search"].update(space="hybrid_language"))
    assert "a study of space 'hybrid_language'; allowed: 'conv_attention'" in refusal(tmp_path, earlier, task)


def test_another_version_of_the_space_is_refused(earlier: Path, tmp_path: Path, task: Task) -> None:
    alter(earlier, lambda record: record["candidate"].update(space_version=2))
    assert "this is 'conv_attention' version 1" in refusal(tmp_path, earlier, task)


def test_other_data_is_refused_even_if_only_the_split_is_another(earlier: Path, tmp_path: Path) -> None:
    other = load_task(load_config(overrides={"task.seed": 1}).task)
    message = refusal(tmp_path, earlier, other)
    assert "learnt other data (digits, seed 0)" in message and "the same examples in the same splits" in message


def test_another_sampler_is_refused(earlier: Path, tmp_path: Path, task: Task) -> None:
    config = configure(tmp_path / "new", sampler="tpe", warm_start=[earlier])
    with pytest.raises(WarmStartError, match=r"sampler 'tpe' cannot use earlier scores; allowed: 'budget'"):
        taken_over(config, task)


def test_the_study_itself_is_refused(tmp_path: Path, task: Task) -> None:
    assert "own folder" in refusal(tmp_path, tmp_path / "new", task)


def test_a_folder_without_a_study_is_refused(tmp_path: Path, task: Task) -> None:
    assert "holds no study" in refusal(tmp_path, tmp_path / "nothing", task)


def test_a_study_in_another_database_is_refused(earlier: Path, tmp_path: Path, task: Task) -> None:
    rewrite(earlier, lambda manifest: manifest["config"]["output"].update(storage="postgresql://host/db"))
    assert "its database is not in the folder" in refusal(tmp_path, earlier, task)


def test_a_study_that_scored_nothing_yet_is_refused(earlier: Path, tmp_path: Path, task: Task) -> None:
    execute(earlier, "DELETE FROM nas_trials")
    assert "scored no network yet" in refusal(tmp_path, earlier, task)


class Planted:
    """Unpickling it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(earlier: Path, tmp_path: Path, task: Task) -> None:
    planted = pickle.dumps(Planted(tmp_path / "owned"))
    (earlier / "study.db").write_bytes(planted)
    assert "study.db cannot be read" in refusal(tmp_path, earlier, task)
    assert not (tmp_path / "owned").exists()


def test_a_record_that_is_no_text_is_refused(earlier: Path, tmp_path: Path, task: Task) -> None:
    execute(earlier, "UPDATE nas_trials SET record = x'8004' WHERE outcome = 'scored'")
    assert "cannot be read" in refusal(tmp_path, earlier, task)


def test_a_view_in_place_of_the_table_is_not_run(earlier: Path, tmp_path: Path, task: Task) -> None:
    execute(earlier, "ALTER TABLE nas_trials RENAME TO hidden")
    execute(earlier, "CREATE VIEW nas_trials AS SELECT * FROM hidden")
    assert "no table nas_trials" in refusal(tmp_path, earlier, task)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record["score"].update(value=float("nan")), "has nan accuracy"),
        (lambda record: record["score"].update(value="0.9"), "allowed: a finite accuracy on val"),
        (lambda record: record["score"].update(metric="bits_per_byte"), "allowed: a finite accuracy on val"),
        (lambda record: record["score"].update(split="test"), "allowed: a finite accuracy on val"),
        (
            lambda record: record["candidate"]["blocks"].append({"kind": "bomb\n\x1b[2J", "options": {}}),
            "is no network",
        ),
        (lambda record: record["candidate"].pop("head"), "the file is damaged"),
        (lambda record: record.pop("score"), "the file is damaged"),
    ],
)
def test_records_that_make_no_sense_are_refused_in_one_line(
    earlier: Path, tmp_path: Path, task: Task, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    alter(earlier, change)
    message = refusal(tmp_path, earlier, task)
    assert words in message and message.isprintable()


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"config": {}, "task": 5}'])
def test_a_damaged_manifest_is_refused(earlier: Path, tmp_path: Path, task: Task, text: str) -> None:
    (earlier / "manifest.json").write_text(text)
    refusal(tmp_path, earlier, task)


def test_a_worker_that_is_second_to_note_a_study_changes_nothing(earlier: Path, tmp_path: Path, task: Task) -> None:
    config = new_study(tmp_path, earlier)
    taken_over(config, task)
    with Ledger(config.storage_url) as ledger:
        before = earlier_scores(ledger)
        ledger.add_event("warm_start", {"study": str(earlier), "choices": [], "qualities": []})
        assert earlier_scores(ledger) == before


def execute(folder: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(folder / "study.db")
    with connection:
        connection.execute(statement, values)
    connection.close()


def alter(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the first scored record."""
    connection = sqlite3.connect(folder / "study.db")
    trial, text = connection.execute("SELECT trial, record FROM nas_trials WHERE outcome = 'scored'").fetchone()
    connection.close()
    record = json.loads(text)
    change(record)
    execute(folder, "UPDATE nas_trials SET record = ? WHERE trial = ?", json.dumps(record), trial)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
