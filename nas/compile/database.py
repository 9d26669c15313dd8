"""The tuning database: the best schedule of each kernel, per target and TVM version.

One SQLite file a target. SQLite rather than TVM's JSON files because several studies write at
once, because `kill -9` must not leave half a record, and because a network needs thirty records
of thousands.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nas.compile.lowering import PIPELINE_VERSION
from nas.errors import NasError

_FORMAT = "1"
_BUSY_TIMEOUT_S = 30.0


class TuningDatabaseError(NasError):
    """A database file that cannot be used: says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """The best known schedule of one kernel on one target.

    Attributes:
        key: `workload_key` of the kernel.
        name: what TVM calls it.
        trace_json: the schedule as TVM's JSON of its trace. (TVM's own form of a record
            cannot hold the index maps of prepacked weights.)
        latency_s: median seconds of one call, as the tuner measured it.
        num_trials: schedules tried so far.
        num_failed: of these, how many did not build, crashed, hung or gave no time.
    """

    key: str
    name: str
    trace_json: str
    latency_s: float
    num_trials: int
    num_failed: int


class TuningDatabase:
    """Records of one target and TVM version, shared by every candidate and study of a user."""

    def __init__(self, path: Path, *, target: str, tvm_version: str) -> None:
        """Opens or creates the file.

        Raises:
            TuningDatabaseError: not a database, another target or version, or not writable.
        """
        self.path = path
        expected = {
            "format": _FORMAT,
            "target": target,
            "tvm_version": tvm_version,
            "pipeline": str(PIPELINE_VERSION),
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        except (sqlite3.Error, OSError) as error:
            raise self._failure(error) from error
        try:
            with self._explaining():
                _use_write_ahead_log(self._connection)
                self._create(expected)
                self._check(expected)
        except TuningDatabaseError:
            self._connection.close()
            raise

    @classmethod
    def for_target(cls, cache: Path, *, target: str, tvm_version: str) -> TuningDatabase:
        """The database of a target inside a user's cache folder."""
        digest = hashlib.sha256(target.encode()).hexdigest()[:12]
        version = re.sub(r"[^0-9A-Za-z.]", "_", tvm_version)
        path = cache / "tuning" / f"tvm-{version}" / f"{digest}-p{PIPELINE_VERSION}.db"
        return cls(path, target=target, tvm_version=tvm_version)

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def get(self, keys: Iterable[str]) -> dict[str, KernelRecord]:
        """The records of those `keys` that have one.

        Raises:
            TuningDatabaseError: the file was damaged since it was opened.
        """
        wanted = set(keys)
        with self._explaining():
            rows = self._connection.execute(
                "SELECT key, name, trace_json, latency_s, num_trials, num_failed FROM kernels"
                " WHERE key IN (SELECT value FROM json_each(?))",
                (json.dumps(sorted(wanted)),),
            ).fetchall()
        records = [KernelRecord(**dict(zip(KernelRecord.__slots__, row, strict=True))) for row in rows]
        # A damaged schedule is as good as none: the kernel is tuned again, and `put` replaces it.
        return {record.key: record for record in records if _is_whole(record)}

    def put(self, record: KernelRecord) -> None:
        """Adds trials, and keeps the faster schedule of the known one and this one.

        Raises:
            TuningDatabaseError: the record could not be written, for instance a full disk; the
                records of before are still there.
        """
        with self._explaining(), self._writing():
            self._connection.execute(
                """
                INSERT INTO kernels (key, name, trace_json, latency_s, num_trials, num_failed, updated)
                VALUES (?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (key) DO UPDATE SET
                    trace_json = CASE WHEN excluded.latency_s < latency_s OR NOT json_valid(trace_json)
                        THEN excluded.trace_json ELSE trace_json END,
                    latency_s = CASE WHEN json_valid(trace_json)
                        THEN min(latency_s, excluded.latency_s) ELSE excluded.latency_s END,
                    num_trials = num_trials + excluded.num_trials,
                    num_failed = num_failed + excluded.num_failed,
                    updated = excluded.updated
                """,
                (
                    record.key, record.name, record.trace_json, record.latency_s,
                    record.num_trials, record.num_failed, time.time(),
                ),
            )  # fmt: skip

    def __len__(self) -> int:
        """Number of kernels with a record."""
        with self._explaining():
            count: int = self._connection.execute("SELECT count(*) FROM kernels").fetchone()[0]
        return count

    def num_trials(self) -> int:
        """Schedules tried so far, over all kernels."""
        with self._explaining():
            count: int = self._connection.execute("SELECT coalesce(sum(num_trials), 0) FROM kernels").fetchone()[0]
        return count

    def _create(self, meta: dict[str, str]) -> None:
        with self._writing():
            self._connection.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS kernels (key TEXT PRIMARY KEY, name TEXT NOT NULL, trace_json TEXT"
                " NOT NULL, latency_s REAL NOT NULL, num_trials INTEGER NOT NULL, num_failed INTEGER NOT NULL,"
                " updated REAL NOT NULL)"
            )
            self._connection.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", meta.items())

    def _check(self, expected: dict[str, str]) -> None:
        seen = dict(self._connection.execute("SELECT key, value FROM meta"))
        for key, value in expected.items():
            if seen.get(key) != value:
                raise TuningDatabaseError(
                    f"tuning database {self.path}: {key} is {seen.get(key)!r}, this needs {value!r};"
                    " use another cache folder (NAS_CACHE_DIR) or move the file away"
                )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # a full disk has ended it already
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> TuningDatabaseError:
        return TuningDatabaseError(f"tuning database {self.path}: {error}; free space, or move the file away")


def _is_whole(record: KernelRecord) -> bool:
    """Whether the schedule is JSON and its time a time, as `put` writes them."""
    try:
        json.loads(record.trace_json)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(record.latency_s, float) and record.latency_s > 0


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switches to WAL; two processes that do so at once are told "locked" without the usual wait."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
