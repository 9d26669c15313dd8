from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from nas.compile import database as database_module
from nas.compile.database import KernelRecord, TuningDatabase, TuningDatabaseError
from nas.errors import NasError
from profilers.device import local_device

_WRITE = """
import sys
from pathlib import Path
from nas.compile.database import KernelRecord, TuningDatabase
path, prefix, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
database = TuningDatabase(path, target="llvm", tvm_version="1")
number = 0
while number < count or count < 0:
    for key in (f"{prefix}{number}", "shared"):
        database.put(
            KernelRecord(key=key, name="n", trace_json="[" + "1" * 2000 + "]", latency_s=1, num_trials=1, num_failed=0)
        )
    number += 1
    print(number, flush=True)
"""


def make_record(key: str = "k", latency_s: float = 2.0, *, trace: str = "[]", trials: int = 3) -> KernelRecord:
    return KernelRecord(key=key, name="conv", trace_json=trace, latency_s=latency_s, num_trials=trials, num_failed=1)


def open_database(path: Path, *, target: str = "llvm", tvm_version: str = "1") -> TuningDatabase:
    return TuningDatabase(path, target=target, tvm_version=tvm_version)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "tuning.db"


def start_writer(path: Path, prefix: str, count: int, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITE, str(path), prefix, str(count)],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> int:
    """Waits, and closes the pipes."""
    with process:
        return process.wait(timeout=60)


@pytest.mark.parametrize("latencies", [(2.0, 1.0), (1.0, 2.0)])
def test_the_faster_schedule_wins_whichever_comes_first(path: Path, latencies: tuple[float, float]) -> None:
    database = open_database(path)
    for latency_s in latencies:
        database.put(make_record(latency_s=latency_s, trace=f"[{latency_s}]"))
    record = database.get(["k"])["k"]
    assert (record.latency_s, record.trace_json) == (1.0, "[1.0]")


def test_trials_and_failures_add_up(path: Path) -> None:
    database = open_database(path)
    database.put(make_record(trials=3))
    database.put(make_record(trials=5, latency_s=9.0))
    record = database.get(["k"])["k"]
    assert (record.num_trials, record.num_failed, len(database)) == (8, 2, 1)


def test_records_are_there_when_the_file_is_opened_again(path: Path) -> None:
    first = open_database(path)
    first.put(make_record())
    first.close()
    assert open_database(path).get(["k"]) == {"k": make_record()}


@pytest.mark.parametrize("key", ["", "'; DROP TABLE kernels; --", '"', "ключ", "k" * 100_000])
def test_any_text_can_be_a_key(path: Path, key: str) -> None:
    database = open_database(path)
    database.put(make_record(key))
    database.put(make_record("other"))
    assert database.get([key, key, "unknown"]) == {key: make_record(key)}


def test_asking_for_nothing_gives_nothing(path: Path) -> None:
    database = open_database(path)
    database.put(make_record())
    assert database.get([]) == {}


def test_thousands_of_keys_can_be_asked_for_at_once(path: Path) -> None:
    database = open_database(path)
    database.put(make_record("k39999"))
    assert list(database.get(f"k{number}" for number in range(40_000))) == ["k39999"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"target": "llvm -mcpu=other"}, "target is 'llvm', this needs 'llvm -mcpu=other'"),
        ({"tvm_version": "2"}, "tvm_version is '1', this needs '2'"),
    ],
)
def test_records_of_another_target_or_version_are_refused(path: Path, options: dict[str, str], named: str) -> None:
    open_database(path).close()
    assert_refused_in_one_line(path, named, **options)


def test_records_of_another_pipeline_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_database(path).close()
    monkeypatch.setattr(database_module, "PIPELINE_VERSION", 999)
    assert_refused_in_one_line(path, "pipeline is .*, this needs '999'")


def test_each_target_version_and_pipeline_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def file_of(target: str = "llvm", version: str = "0.27/../x") -> Path:
        database = TuningDatabase.for_target(tmp_path, target=target, tvm_version=version)
        database.close()
        return database.path

    first = file_of()
    assert first.is_relative_to(tmp_path / "tuning")
    others = [file_of(target="llvm -mcpu=a"), file_of(version="0.28")]
    monkeypatch.setattr(database_module, "PIPELINE_VERSION", 999)
    assert len({first, *others, file_of()}) == 4


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"these are not the records" * 1000)
    assert_refused_in_one_line(path, "file is not a database")
    assert path.read_bytes().startswith(b"these are not")


def test_a_truncated_database_is_refused(path: Path) -> None:
    database = open_database(path)
    for number in range(200):
        database.put(make_record(f"k{number}", trace='"t"' * 1000))
    database.close()
    content = path.read_bytes()
    for kept in (len(content) // 2, 5000, 50):
        path.write_bytes(content[:kept])
        with pytest.raises(TuningDatabaseError) as caught:
            damaged = open_database(path)
            damaged.get(f"k{number}" for number in range(200))
        assert_one_line(caught.value, path)


def test_a_database_damaged_while_open_is_refused_when_read(path: Path) -> None:
    database = open_database(path)
    database.put(make_record(trace='"t"' * 50_000))
    database.close()
    database = open_database(path)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    for use in (lambda: database.get(["k"]), lambda: database.put(make_record()), lambda: len(database)):
        with pytest.raises(TuningDatabaseError) as caught:
            use()
        assert_one_line(caught.value, path)


def test_a_folder_in_the_way_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    assert_refused_in_one_line(path, "unable to open")


def test_a_full_disk_is_one_line_and_costs_only_the_new_record(path: Path) -> None:
    database = open_database(path)
    database.put(make_record("kept"))
    # What a full disk raises, sqlite3.OperationalError "database or disk is full", without one.
    pages = database._connection.execute("PRAGMA page_count").fetchone()[0]
    database._connection.execute(f"PRAGMA max_page_count={pages}")
    for _ in range(2):  # the first failure must not leave a transaction open
        with pytest.raises(TuningDatabaseError, match="disk is full; free space") as caught:
            database.put(make_record("lost", trace='"t"' * 100_000))
        assert_one_line(caught.value, path)
    database._connection.execute(f"PRAGMA max_page_count={pages + 1000}")
    database.put(make_record("later"))
    assert sorted(database.get(["kept", "lost", "later"])) == ["kept", "later"]


def test_a_record_that_breaks_a_rule_of_the_table_is_refused(path: Path) -> None:
    with pytest.raises(TuningDatabaseError, match="NOT NULL"):
        open_database(path).put(make_record(latency_s=float("nan")))


def test_processes_that_create_and_write_one_file_at_once_lose_nothing(
    path: Path, child_environment: dict[str, str]
) -> None:
    writers = [start_writer(path, prefix, 40, child_environment) for prefix in "ab"]
    for writer in writers:
        assert read_line(writer) == "ready"
    for writer in writers:
        let_go(writer)
    assert [end(writer) for writer in writers] == [0, 0]
    database = open_database(path)
    assert len(database) == 81
    assert database.get(["shared"])["shared"].num_trials == 80


def test_a_kill_while_writing_keeps_every_committed_record(path: Path, child_environment: dict[str, str]) -> None:
    writer = start_writer(path, "w", -1, child_environment)
    assert read_line(writer) == "ready"
    let_go(writer)
    for _ in range(20):
        assert read_line(writer)
    os.kill(writer.pid, signal.SIGKILL)
    assert writer.stdout is not None
    seen = writer.stdout.read().split("\n")[:-1]  # a cut line promises nothing
    committed = int(seen[-1]) if seen else 20
    assert end(writer) == -signal.SIGKILL
    database = open_database(path)
    assert len(database.get(f"w{number}" for number in range(committed))) == committed
    assert database._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.put(make_record())


def assert_refused_in_one_line(path: Path, named: str, **options: str) -> None:
    with pytest.raises(TuningDatabaseError, match=named) as caught:
        open_database(path, **options)
    assert_one_line(caught.value, path)


def assert_one_line(error: Exception, path: Path) -> None:
    """For people: which file, and what to do; SQLite's own error is the cause."""
    assert isinstance(error, NasError)
    assert "\n" not in str(error)
    assert str(path) in str(error)
    assert "move the file away" in str(error)
    assert error.__cause__ is None or isinstance(error.__cause__, sqlite3.Error | OSError)


def test_a_damaged_schedule_counts_as_none_and_is_replaced(path: Path) -> None:
    database = open_database(path)
    database.put(make_record(latency_s=1.0))
    with sqlite3.connect(path) as other:
        other.execute("UPDATE kernels SET trace_json = 'garbage'")
    assert database.get(["k"]) == {}
    database.put(make_record(latency_s=3.0, trace="[1]"))
    assert database.get(["k"])["k"].trace_json == "[1]"
    assert database.get(["k"])["k"].latency_s == 3.0


def test_one_and_two_threads_are_two_targets_with_a_database_each(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    targets = [local_device(count).target for count in (1, 2)]
    assert [json.loads(target)["num-cores"] for target in targets] == [1, 2]
    first, second = (TuningDatabase.for_target(tmp_path, target=target, tvm_version="1") for target in targets)
    first.put(make_record())
    assert first.path != second.path
    assert (len(first), len(second)) == (1, 0)
    with pytest.raises(TuningDatabaseError, match="target is"):
        TuningDatabase(first.path, target=targets[1], tvm_version="1")
