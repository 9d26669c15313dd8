from __future__ import annotations

import multiprocessing
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

import nas.ledger
from nas.ledger import Ledger, LedgerError, Outcome
from tests.nas_tests.trials import make_record


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger(url) as ledger:
        yield ledger


def test_what_was_recorded_is_there_after_reopening(url: str) -> None:
    records = tuple(make_record(trial, outcome) for trial, outcome in enumerate(Outcome))
    with Ledger(url) as ledger:
        for record in reversed(records):
            ledger.record(record)
    with Ledger(url) as ledger:
        assert ledger.records() == records


def test_recording_the_same_trial_again_changes_nothing(ledger: Ledger) -> None:
    ledger.record(make_record(3))
    ledger.record(make_record(3))
    assert ledger.records() == (make_record(3),)


def test_recording_another_content_for_a_trial_is_refused_and_the_first_stays(ledger: Ledger) -> None:
    ledger.record(make_record(3))
    with pytest.raises(LedgerError, match="trial 3 is already recorded with another content"):
        ledger.record(make_record(3, num_right=1))
    assert ledger.records() == (make_record(3),)


def test_counts_have_every_outcome(ledger: Ledger) -> None:
    assert ledger.counts() == dict.fromkeys(Outcome, 0)
    ledger.record(make_record(0))
    ledger.record(make_record(1))
    ledger.record(make_record(2, Outcome.COMPILE_FAILED))
    assert ledger.counts() == {**dict.fromkeys(Outcome, 0), Outcome.SCORED: 2, Outcome.COMPILE_FAILED: 1}


def test_the_trials_of_one_candidate_are_found(ledger: Ledger) -> None:
    first = make_record(0)
    again = replace(first, trial=7, duplicate_of=0)
    for record in (again, make_record(1), first):
        ledger.record(record)
    assert ledger.by_candidate(first.candidate.candidate_id) == (first, again)
    assert ledger.by_candidate("absent") == ()


def test_finished_stages_are_kept_in_their_order(ledger: Ledger) -> None:
    ledger.record_stage(4, "tune", {"kernels": 5}, 12.5)
    ledger.record_stage(4, "compile", {"digest": "ab"}, 3.0)
    ledger.record_stage(5, "tune", {}, 1.0)
    ledger.record_stage(4, "tune", {"kernels": 5}, 0.1)
    assert [(stage.stage, stage.payload, stage.seconds) for stage in ledger.stages(4)] == [
        ("tune", {"kernels": 5}, 12.5),
        ("compile", {"digest": "ab"}, 3.0),
    ]
    with pytest.raises(LedgerError, match="another result of stage 'tune'"):
        ledger.record_stage(4, "tune", {"kernels": 6}, 12.5)


def test_events_are_kept_in_their_order(ledger: Ledger) -> None:
    ledger.add_event("test_split_opened", {"candidates": ["a"]})
    ledger.add_event("failure_acknowledged", {"trial": 3})
    assert [event.kind for event in ledger.events()] == ["test_split_opened", "failure_acknowledged"]
    (event,) = ledger.events("failure_acknowledged")
    assert event.detail == {"trial": 3}
    assert event.at.endswith("+00:00")


def test_the_first_study_keeps_the_ledger(url: str) -> None:
    with Ledger(url) as ledger:
        assert ledger.study() is None
        first = ledger.start({"search": {"trials": 5}}, {"search.seed": 0})
    with Ledger(url) as ledger:
        assert ledger.start({"search": {"trials": 9}}, {"search.seed": 1}) == first == ledger.study()


def test_a_number_that_is_none_is_refused_before_it_is_stored(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        ledger.record_stage(0, "profile", {"latency_ms": float("nan")}, 1.0)
    assert ledger.stages(0) == ()


def test_the_ledger_shares_its_file_with_optuna(url: str) -> None:
    import optuna

    study = optuna.create_study(storage=url, study_name="study")
    with Ledger(url) as ledger:
        study.optimize(lambda trial: float(trial.suggest_int("x", 0, 3)), n_trials=2)
        ledger.record(make_record(0))
        assert len(optuna.load_study(storage=url, study_name="study").trials) == 2
        assert ledger.records() == (make_record(0),)


def test_ten_thousand_trials_load_within_seconds(ledger: Ledger) -> None:
    text = nas.ledger._dump(make_record(0).to_json())
    rows = [{"trial": i, "candidate_id": "c", "outcome": "scored", "record": text} for i in range(10_000)]
    with ledger._transaction() as connection:
        connection.execute(sa.insert(nas.ledger._TRIALS), rows)
    started = time.process_time()
    assert len(ledger.records()) == 10_000
    # Tolerant by a factor of ten: what it must catch is a load that is quadratic.
    assert time.process_time() - started < 10


def test_nothing_in_the_schema_is_only_sqlite() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in nas.ledger._TABLES.sorted_tables:
        text = str(sa.schema.CreateTable(table, if_not_exists=True).compile(dialect=dialect))
        assert "CREATE TABLE IF NOT EXISTS nas_" in text


# Failures of the database


def _message(url: str) -> str:
    with pytest.raises(LedgerError) as caught:
        Ledger(url, busy_timeout_s=0.2)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    path.write_text("my only copy of a thesis" * 100)
    before = path.read_bytes()
    assert "the file is not a database" in _message(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert "absent/study.db: the file cannot be opened" in _message(f"sqlite:///{tmp_path}/absent/study.db")


def test_a_locked_database_is_named(url: str, tmp_path: Path) -> None:
    with Ledger(url):
        pass
    other = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        assert "another process keeps the database locked" in _message(url)
    finally:
        other.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("study.db", "is not a database URL; for instance sqlite:///study.db"),
        ("mysql://host/db", "database 'mysql' is not supported; allowed: sqlite, postgresql"),
        ("oracel://host/db", "database 'oracel' is not supported"),
        ("postgresql+nodriver://host/db", "is not a database URL"),
    ],
)
def test_a_storage_that_cannot_be_used_is_explained(url: str, words: str) -> None:
    assert words in _message(url)


def test_a_server_that_does_not_answer_is_one_line_without_the_password() -> None:
    message = _message("postgresql+psycopg://me:hunter2@127.0.0.1:1/study")
    assert "hunter2" not in message
    # Without the optional driver the line says how to get it.
    assert "the database does not answer" in message or "pip install 'psycopg[binary]'" in message


def test_a_full_disk_is_one_line_and_what_was_written_stays(url: str, tmp_path: Path) -> None:
    with Ledger(url) as ledger:
        ledger.record(make_record(0))
        with ledger._engine.connect() as connection:
            # SQLite's own limit gives the same error as a full disk.
            connection.exec_driver_sql("PRAGMA max_page_count=1")
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        with pytest.raises(LedgerError, match="the disk is full; free some space") as caught:
            for i in range(1000):
                ledger.add_event("filler", {"i": i, "text": "x" * 10_000})
        assert "\n" not in str(caught.value)
        assert ledger.records() == (make_record(0),)


def test_a_ledger_of_a_later_version_is_refused(url: str) -> None:
    with Ledger(url) as ledger, ledger._transaction() as connection:
        connection.execute(sa.update(nas.ledger._META).values(content="99"))
    assert "schema version 99" in _message(url)


def test_a_damaged_record_is_named_by_its_trial(ledger: Ledger) -> None:
    ledger.record(make_record(8))
    with ledger._transaction() as connection:
        connection.execute(sa.update(nas.ledger._TRIALS).values(record='{"trial": 8}'))
    with pytest.raises(LedgerError, match="trial 8 cannot be read"):
        ledger.records()


# Processes

WRITER = """
import sys
from nas.ledger import Ledger
from tests.nas_tests.trials import make_record
with Ledger(sys.argv[1]) as ledger:
    trial = len(ledger.records())
    print("ready", flush=True)
    while True:
        ledger.record_stage(trial, "train", {"trial": trial}, 1.0)
        ledger.record(make_record(trial))
        print(trial, flush=True)
        trial += 1
"""


def test_a_writer_killed_at_any_instant_loses_no_finished_trial(url: str, tmp_path: Path) -> None:
    moments = random.Random(0)
    for _ in range(4):
        child = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        with child:
            assert child.stdout.readline() == "ready\n"
            time.sleep(moments.uniform(0.02, 0.2))
            child.kill()
            finished = [int(line) for line in child.stdout.read().splitlines() if line.strip()]
        assert finished
        with Ledger(url) as ledger:
            records = ledger.records()
            # One more may have been written than the child lived to say.
            assert len(records) in (finished[-1] + 1, finished[-1] + 2)
            assert records == tuple(make_record(trial) for trial in range(len(records)))
            assert all(ledger.stages(trial) for trial in range(len(records)))
        connection = sqlite3.connect(tmp_path / "study.db")
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()


def _write_trials(url: str, first: int) -> None:
    with Ledger(url) as ledger:
        for trial in range(first, first + 20):
            ledger.record(make_record(trial))


def test_processes_that_open_and_write_at_once_lose_nothing(url: str) -> None:
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_write_trials, args=(url, first)) for first in (0, 10, 20)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    with Ledger(url) as ledger:
        assert ledger.records() == tuple(make_record(trial) for trial in range(40))
