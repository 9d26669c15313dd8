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


_FIELDS = tuple(KernelRecord.__slots__)

_MERGE = """
INSERT INTO kernels (key, name, trace_json, latency_s, num_trials, num_failed, updated) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
    name = excluded.name, trace_json = excluded.trace_json, latency_s = excluded.latency_s,
    num_trials = max(num_trials, excluded.num_trials), num_failed = max(num_failed, excluded.num_failed),
    updated = excluded.updated
WHERE excluded.latency_s < latency_s OR NOT json_valid(trace_json)
"""
"""`total_changes` counts only rows that it inserts or replaces."""


class TuningDatabase:
    """Records of one target and TVM version, shared by every candidate and study of a user."""

    def __init__(self, path: Path, *, target: str, tvm_version: str) -> None:
        """Opens or creates the file.

        Raises:
            TuningDatabaseError: not a database, another target or version, or not writable.
        """
        self.path = path
        self.identity = identity(target, tvm_version)
        expected = {"format": _FORMAT, **self.identity}
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
        """Closes the file; other openers are not disturbed."""
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

    def merge(self, records: Iterable[KernelRecord]) -> int:
        """Takes over those records that are faster than the known ones, all of them or none; says how many.

        The same records can come again: trials are not added up but the larger count is kept.

        Raises:
            TuningDatabaseError: they could not be written; the records of before are still there.
        """
        with self._explaining(), self._writing():
            before = self._connection.total_changes
            for record in records:
                self._connection.execute(_MERGE, (*(getattr(record, name) for name in _FIELDS), time.time()))
            return self._connection.total_changes - before

    def discard(self, record: KernelRecord) -> None:
        """Removes a record that turned out unusable, unless another has taken its place.

        Raises:
            TuningDatabaseError: it could not be written.
        """
        with self._explaining(), self._writing():
            self._connection.execute(
                "DELETE FROM kernels WHERE key = ? AND trace_json = ?", (record.key, record.trace_json)
            )

    def records(self) -> Iterator[KernelRecord]:
        """All whole records, by key."""
        with self._explaining():
            rows = self._connection.execute(f"SELECT {', '.join(_FIELDS)} FROM kernels ORDER BY key").fetchall()
        for row in rows:
            record = KernelRecord(**dict(zip(_FIELDS, row, strict=True)))
            if _is_whole(record):
                yield record

    def put_failure(self, key: str, name: str, num_trials: int) -> None:
        """Remembers that `num_trials` schedules of a kernel were tried and none gave a time.

        Raises:
            TuningDatabaseError: it could not be written.
        """
        with self._explaining(), self._writing():
            self._connection.execute(
                "INSERT INTO failures (key, name, num_trials, updated) VALUES (?, ?, ?, ?) ON CONFLICT (key)"
                " DO UPDATE SET num_trials = max(num_trials, excluded.num_trials), updated = excluded.updated",
                (key, name, num_trials, time.time()),
            )

    def failures(self, keys: Iterable[str]) -> dict[str, int]:
        """Schedules tried without a time, of those `keys` that have no record."""
        with self._explaining():
            rows = self._connection.execute(
                "SELECT key, num_trials FROM failures WHERE key IN (SELECT value FROM json_each(?))"
                " AND key NOT IN (SELECT key FROM kernels)",
                (json.dumps(sorted(set(keys))),),
            ).fetchall()
        return dict(rows)

    def forget_failures(self) -> int:
        """Lets all kernels that failed be tried again; says how many there were."""
        with self._explaining(), self._writing():
            return self._connection.execute("DELETE FROM failures").rowcount

    def compact(self) -> None:
        """Removes what cannot be used, and gives the space of replaced schedules back to the disk.

        Raises:
            TuningDatabaseError: not enough space for it; the file is as before.
        """
        with self._explaining():
            with self._writing():
                self._connection.execute("DELETE FROM kernels WHERE NOT json_valid(trace_json) OR latency_s <= 0")
                self._connection.execute("DELETE FROM failures WHERE key IN (SELECT key FROM kernels)")
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def __len__(self) -> int:
        """Number of kernels with a record."""
        with self._explaining():
            count: int = self._connection.execute("SELECT count(*) FROM kernels").fetchone()[0]
        return count

    def num_trials(self) -> int:
        """Schedules tried so far, over all kernels, those without a usable one included."""
        with self._explaining():
            sums = [
                self._connection.execute(f"SELECT coalesce(sum(num_trials), 0) FROM {table}").fetchone()[0]
                for table in ("kernels", "failures")
            ]
        return int(sum(sums))

    def _create(self, meta: dict[str, str]) -> None:
        with self._writing():
            self._connection.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS kernels (key TEXT PRIMARY KEY, name TEXT NOT NULL, trace_json TEXT"
                " NOT NULL, latency_s REAL NOT NULL, num_trials INTEGER NOT NULL, num_failed INTEGER NOT NULL,"
                " updated REAL NOT NULL)"
            )
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS failures (key TEXT PRIMARY KEY, name TEXT NOT NULL,"
                " num_trials INTEGER NOT NULL, updated REAL NOT NULL)"
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


def identity(target: str, tvm_version: str) -> dict[str, str]:
    """What two databases must share for a record of one to mean the same in the other."""
    return {"target": target, "tvm_version": tvm_version, "pipeline": str(PIPELINE_VERSION)}


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
