from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nas.compile import records_file
from nas.compile.database import KernelRecord, TuningDatabase, TuningDatabaseError
from nas.compile.records_file import RecordsFileError, export_records, import_records

TRACE = json.dumps(
    {
        "root_index": 2,
        "nodes": [{"type": "ffi.Array", "data": []}, {"type": "ffi.Map", "data": []}, {"type": "s_tir.Trace"}],
        "metadata": {},
    }
)


def make_record(number: int = 1, latency_s: float = 2.0, **changes: Any) -> KernelRecord:
    values: dict[str, Any] = {
        "key": f"{number:024x}", "name": "fused_conv2d1", "trace_json": TRACE, "latency_s": latency_s,
        "num_trials": 16, "num_failed": 1,
    }  # fmt: skip
    return KernelRecord(**{**values, **changes})


def open_database(path: Path, *, target: str = "llvm", tvm_version: str = "1") -> TuningDatabase:
    return TuningDatabase(path, target=target, tvm_version=tvm_version)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TuningDatabase]:
    database = open_database(tmp_path / "source.db")
    for number in range(3):
        database.put(make_record(number, latency_s=1.0 + number))
    yield database
    database.close()


@pytest.fixture
def exported(source: TuningDatabase, tmp_path: Path) -> Path:
    path = tmp_path / "records.jsonl"
    assert export_records(source, path) == 3
    return path


@pytest.fixture
def destination(tmp_path: Path) -> Iterator[TuningDatabase]:
    database = open_database(tmp_path / "destination.db")
    yield database
    database.close()


def test_what_was_exported_comes_back_the_same(
    source: TuningDatabase, exported: Path, destination: TuningDatabase
) -> None:
    assert import_records(destination, exported) == (3, 3)
    assert list(destination.records()) == list(source.records())


def test_importing_the_same_file_again_changes_nothing(exported: Path, destination: TuningDatabase) -> None:
    import_records(destination, exported)
    assert import_records(destination, exported) == (3, 0)
    assert destination.num_trials() == 3 * 16


def test_the_faster_record_is_kept_whichever_side_has_it(exported: Path, destination: TuningDatabase) -> None:
    destination.put(make_record(0, latency_s=0.5, name="mine"))
    destination.put(make_record(1, latency_s=9.0, name="mine"))
    assert import_records(destination, exported) == (3, 2)
    kept = {record.key[-1]: (record.name, record.latency_s) for record in destination.records()}
    assert kept == {"0": ("mine", 0.5), "1": ("fused_conv2d1", 2.0), "2": ("fused_conv2d1", 3.0)}


def test_a_database_without_records_is_not_exported(destination: TuningDatabase, tmp_path: Path) -> None:
    with pytest.raises(RecordsFileError, match="no records to export; run `nas tune`"):
        export_records(destination, tmp_path / "none.jsonl")
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "named"), [({"target": "other"}, "of target 'llvm', this needs 'other'"),
                           ({"tvm_version": "2"}, "of tvm_version '1', this needs '2'")],
)  # fmt: skip
def test_records_of_another_target_or_version_are_refused(
    exported: Path, tmp_path: Path, options: dict[str, str], named: str
) -> None:
    with pytest.raises(RecordsFileError, match=named):
        import_records(open_database(tmp_path / "other.db", **options), exported)


def test_records_of_another_pipeline_are_refused(exported: Path, destination: TuningDatabase) -> None:
    destination.identity["pipeline"] = "999"
    refused(destination, exported, "of pipeline '.*', this needs '999'")


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95, 0.999])
def test_a_half_written_file_is_refused_and_imports_nothing(
    exported: Path, destination: TuningDatabase, kept: float
) -> None:
    content = exported.read_bytes()
    exported.write_bytes(content[: int(len(content) * kept)])
    refused(destination, exported, "cut short or changed")


def test_a_changed_record_is_refused(exported: Path, destination: TuningDatabase) -> None:
    exported.write_text(exported.read_text().replace("fused_conv2d1", "fused_conv2d2"))
    refused(destination, exported, "cut short or changed")


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\x80\x04\x95pickle", b"[1, 2]\n", b'{"kind": "other"}\n', b"[" * 100_000,
                b'{"kind": "nas-tuning-records", "format": 99}\n'],
)  # fmt: skip
def test_what_is_no_such_file_is_refused(tmp_path: Path, destination: TuningDatabase, content: bytes) -> None:
    path = tmp_path / "strange"
    path.write_bytes(content)
    refused(destination, path, "not a file of tuning records|format 99")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path, destination: TuningDatabase) -> None:
    refused(destination, tmp_path / "nothing", "No such file")
    refused(destination, tmp_path, "Is a directory")


def test_a_huge_file_is_refused_unread(
    exported: Path, destination: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_file, "MAX_FILE_BYTES", 100)
    refused(destination, exported, "bytes; allowed: 100")


def referring(data: object) -> str:
    """A trace whose second node refers to `data`."""
    nodes = [{"type": "ffi.Array", "data": []}, {"type": "ffi.Array", "data": data}, {"type": "s_tir.Trace"}]
    return json.dumps({"root_index": 2, "nodes": nodes})


def nested(kind: object) -> str:
    return json.dumps({"root_index": 0, "nodes": [{"type": "s_tir.Trace"}, {"type": kind}]})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"key": "../../etc/passwd"}, "not 24 hexadecimal digits"),
        ({"key": 7}, "not 24 hexadecimal digits"),
        ({"name": "a\nb"}, "is no kernel's"),
        ({"latency_s": -1.0}, "is no time"),
        ({"latency_s": float("nan")}, "is no time"),
        ({"latency_s": "1"}, "is no time"),
        ({"latency_s": 5e-324}, "is no time"),
        ({"latency_s": 1e300}, "is no time"),
        ({"num_trials": 10**30}, "cannot be"),
        ({"num_trials": 2**63 - 1}, "cannot be"),
        ({"trace_json": referring([1])}, "node 1 refers to one that is not before it"),
        ({"trace_json": referring([7])}, "node 1 refers to one that is not before it"),
        ({"trace_json": referring([-1])}, "node 1 refers to one that is not before it"),
        ({"trace_json": referring([[0]])}, "node 1 refers to one that is not before it"),
        ({"trace_json": referring({"insts": 2})}, "node 1 refers to one that is not before it"),
        ({"trace_json": TRACE.replace("ffi.Map", "\ud800")}, "surrogates not allowed"),
        ({"num_trials": 0}, "cannot be"),
        ({"num_failed": True}, "cannot be"),
        ({"trace_json": None}, "no text"),
        ({"trace_json": "{"}, "Expecting property name"),
        ({"trace_json": "[]"}, "not a graph"),
        ({"trace_json": "[" * 50_000}, "recursion"),
        ({"trace_json": '{"root_index": 0, "nodes": [{"type": "ffi.Array"}]}'}, "not a trace"),
        ({"trace_json": '{"root_index": 5, "nodes": [{"type": "s_tir.Trace"}]}'}, "not a trace"),
        ({"trace_json": nested("ffi.Function")}, "'ffi.Function', which no step needs"),
        ({"trace_json": nested("ir.IRModule")}, "which no step needs"),
        ({"trace_json": nested("tirx.PrimFunc")}, "which no step needs"),
        ({"trace_json": nested("__builtin__.eval")}, "which no step needs"),
        ({"trace_json": nested(None)}, "which no step needs"),
    ],
)
def test_one_hostile_record_refuses_the_whole_file(
    tmp_path: Path, destination: TuningDatabase, change: dict[str, Any], named: str
) -> None:
    path = tmp_path / "records.jsonl"
    write_by_hand(path, [make_record(1), make_record(2, **change)], destination.identity)
    refused(destination, path, f"record 2: .*{named}")


def write_by_hand(path: Path, records: list[KernelRecord], identity: dict[str, str]) -> None:
    """A file with a right hash around whatever records."""
    import hashlib

    lines = [json.dumps([getattr(record, name) for name in KernelRecord.__slots__]) for record in records]
    body = "".join(line + "\n" for line in lines).encode()
    header = {"kind": "nas-tuning-records", "format": 1, **identity, "num_records": len(lines)}
    path.write_bytes(json.dumps(header | {"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n" + body)


def refused(database: TuningDatabase, path: Path, named: str) -> None:
    with pytest.raises(RecordsFileError, match=named) as caught:
        import_records(database, path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(database) == 0


def test_a_full_disk_while_importing_keeps_what_was_there(exported: Path, destination: TuningDatabase) -> None:
    destination.put(make_record(0, latency_s=9.0))
    pages = destination._connection.execute("PRAGMA page_count").fetchone()[0]
    destination._connection.execute(f"PRAGMA max_page_count={pages}")
    big = [make_record(number, trace_json=TRACE + " " * 100_000) for number in range(3)]
    with pytest.raises(TuningDatabaseError, match="disk is full"):
        destination.merge(big)
    assert [record.latency_s for record in destination.records()] == [9.0]
    destination._connection.execute(f"PRAGMA max_page_count={pages + 1000}")
    assert import_records(destination, exported) == (3, 3)


def test_an_export_to_a_full_disk_keeps_the_file_of_before(
    source: TuningDatabase, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nas.report.atomic import ReportError

    before = exported.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReportError, match="No space left"):
        export_records(source, exported)
    assert exported.read_bytes() == before
    assert sorted(each.name for each in exported.parent.glob("*jsonl*")) == ["records.jsonl"]


_IMPORT = """
import sys
from pathlib import Path
from nas.compile.database import TuningDatabase
from nas.compile.records_file import read_records
path, records = Path(sys.argv[1]), Path(sys.argv[2])
database = TuningDatabase(path, target="llvm", tvm_version="1")
found = read_records(records, database.identity)
print("ready", flush=True)
def slowly():
    for record in found:
        yield record
        print(record.key, flush=True)
while True:
    database.merge(slowly())
"""


def test_a_kill_in_the_middle_of_an_import_leaves_all_of_it_or_nothing(
    tmp_path: Path, destination: TuningDatabase, child_environment: dict[str, str]
) -> None:
    path = tmp_path / "records.jsonl"
    write_by_hand(path, [make_record(number) for number in range(500)], destination.identity)
    for num_lines in (3, 600):  # in the middle of the first import, and after it
        importer = subprocess.Popen(
            [sys.executable, "-c", _IMPORT, str(destination.path), str(path)],
            env=child_environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with importer:
            assert importer.stdout is not None
            for _ in range(num_lines):
                assert importer.stdout.readline()
            os.kill(importer.pid, signal.SIGKILL)
        count = len(destination)
        assert count in ((0, 500) if num_lines < 500 else (500,))
        assert destination._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    destination.put(make_record(7000))


def test_two_imports_at_once_lose_nothing(
    tmp_path: Path, destination: TuningDatabase, child_environment: dict[str, str]
) -> None:
    code = _IMPORT.replace("while True:\n    database.merge(slowly())", "database.merge(found)")
    importers = []
    for part in range(2):
        path = tmp_path / f"records{part}.jsonl"
        write_by_hand(path, [make_record(number) for number in range(part * 100, 200)], destination.identity)
        command = [sys.executable, "-c", code, str(destination.path), str(path)]
        importers.append(subprocess.Popen(command, env=child_environment, stdout=subprocess.PIPE))
    for importer in importers:
        with importer:
            assert importer.wait(timeout=60) == 0
    assert len(destination) == 200


def test_compacting_drops_what_is_damaged_and_gives_space_back(destination: TuningDatabase) -> None:
    for number in range(50):
        destination.put(make_record(number, trace_json=TRACE + " " * 20_000))
    destination.put(make_record(99, trace_json="{broken"))
    destination.put_failure(make_record(1).key, "n", 4)
    destination.put_failure("f" * 24, "n", 4)
    for number in range(50):
        destination.merge([make_record(number, latency_s=1.0)])
    before = size_on_disk(destination.path)
    destination.compact()
    assert size_on_disk(destination.path) < before / 5
    assert len(destination) == 50
    assert destination.failures([make_record(1).key, "f" * 24]) == {"f" * 24: 4}


def size_on_disk(path: Path) -> int:
    """With SQLite's log beside it."""
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))


def test_a_failure_is_kept_until_a_record_comes_or_it_is_forgotten(destination: TuningDatabase) -> None:
    keys = [make_record(number).key for number in range(2)]
    for key in keys:
        destination.put_failure(key, "n", 16)
    destination.put_failure(keys[0], "n", 4)
    assert destination.failures(keys) == {keys[0]: 16, keys[1]: 16}
    destination.put(make_record(0))
    assert destination.failures(keys) == {keys[1]: 16}
    destination.forget_failures()
    assert destination.failures(keys) == {}


def test_what_is_neither_file_nor_folder_is_refused_unread(destination: TuningDatabase, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        refused(destination, path, "not a file")
