"""The one store that remembers a study: finished stages, finished trials and events, beside Optuna's tables.

Works on SQLite (a file in the results folder) and PostgreSQL. Each write is one transaction, so a
process killed at any instant leaves what it had finished and nothing half done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, Self

import sqlalchemy as sa

from nas.ledger_database import LedgerError, connect, reported, shown_url
from nas.trial import CandidateCost, Outcome, TrialRecord, score_from_json, score_to_json

__all__ = [
    "CandidateCost", "Event", "Ledger", "LedgerError", "Outcome", "StageResult", "StudyMeta", "TrialRecord",
    "score_from_json", "score_to_json", "shown_url",
]  # fmt: skip

SCHEMA_VERSION = 1

_TABLES = sa.MetaData()
_META = sa.Table(
    "nas_meta",
    _TABLES,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("content", sa.Text, nullable=False),
)
_STAGES = sa.Table(
    "nas_stages",
    _TABLES,
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("trial", sa.Integer, nullable=False),
    sa.Column("stage", sa.String(64), nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.UniqueConstraint("trial", "stage"),
)
_TRIALS = sa.Table(
    "nas_trials",
    _TABLES,
    sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("candidate_id", sa.String(64), nullable=False, index=True),
    sa.Column("outcome", sa.String(32), nullable=False, index=True),
    sa.Column("record", sa.Text, nullable=False),
)
_EVENTS = sa.Table(
    "nas_events",
    _TABLES,
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("kind", sa.String(64), nullable=False, index=True),
    sa.Column("detail", sa.Text, nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyMeta:
    """Which study a ledger belongs to.

    Attributes:
        config: the configuration as JSON, secrets masked.
        identity: `nas.config.identity` of it.
        created_at: ISO 8601, UTC.
    """

    config: Mapping[str, Any]
    identity: Mapping[str, Any]
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """What one finished stage of one trial returned, as JSON, and its wall seconds."""

    stage: str
    payload: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that must not be forgotten: the test split was opened, a failure acknowledged."""

    at: str
    kind: str
    detail: Mapping[str, Any]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """The ledger of one study; one database holds one study.

    Args:
        url: a SQLAlchemy URL; SQLite files and PostgreSQL are supported. The folder must exist.
        busy_timeout_s: how long a write waits for another process's write.
        now: clock, for the times of events.

    Raises:
        LedgerError: (from every method as well) not a database, not reachable, locked, full, or
            written by a later version; one line.
    """

    def __init__(self, url: str, *, busy_timeout_s: float = 30.0, now: Callable[[], datetime] = _utc_now) -> None:
        self.url = shown_url(url)
        self._now = now
        self._engine = connect(url, busy_timeout_s)
        try:
            self._open()
        except BaseException:
            self._engine.dispose()
            raise

    def _open(self) -> None:
        try:
            self._create_tables()
        except sa.exc.IntegrityError:
            # PostgreSQL: two workers that create one table at once collide in its catalogue; the loser finds it made.
            self._create_tables()
        content = self._put_once("schema_version", str(SCHEMA_VERSION))
        if content != str(SCHEMA_VERSION):
            raise LedgerError(
                f"{self.url}: ledger of schema version {content}, this program reads {SCHEMA_VERSION};"
                " use the version of nas that wrote it, or another --out"
            )

    def _create_tables(self) -> None:
        # IF NOT EXISTS, as `create_all` looks first and creates later: another worker fits in between.
        with self._transaction() as connection:
            for table in _TABLES.sorted_tables:
                connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
                for index in table.indexes:
                    connection.execute(sa.schema.CreateIndex(index, if_not_exists=True))

    def close(self) -> None:
        """Closes every connection; SQLite then folds its write-ahead log into the file."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self.close()
        return False

    # The study

    def start(self, config: Mapping[str, Any], identity: Mapping[str, Any]) -> StudyMeta:
        """Claims the ledger for a study, or returns the study that already has it.

        The caller compares identities (`nas.config.differences`) before it goes on.
        """
        created = {"config": config, "identity": identity, "created_at": self._now().isoformat()}
        stored = json.loads(self._put_once("study", _dump(created)))
        return StudyMeta(config=stored["config"], identity=stored["identity"], created_at=stored["created_at"])

    def study(self) -> StudyMeta | None:
        """The study of this ledger; None before `start`."""
        with self._transaction() as connection:
            content = connection.scalar(sa.select(_META.c.content).where(_META.c.name == "study"))
        if content is None:
            return None
        stored = json.loads(content)
        return StudyMeta(config=stored["config"], identity=stored["identity"], created_at=stored["created_at"])

    # Stages

    def record_stage(self, trial: int, stage: str, payload: Mapping[str, Any], seconds: float) -> None:
        """Remembers what a finished stage returned, so that a killed trial goes on after it.

        Writing the same payload again changes nothing, the first duration stays.

        Raises:
            LedgerError: the stage is already there with another payload.
        """
        text = _dump(payload)
        row = {"trial": trial, "stage": stage, "payload": text, "seconds": seconds}
        where = (_STAGES.c.trial == trial) & (_STAGES.c.stage == stage)
        stored = self._insert(_STAGES, row, sa.select(_STAGES.c.payload).where(where))
        if stored != text:
            raise LedgerError(f"{self.url}: trial {trial} already has another result of stage {stage!r}; it stays")

    def stages(self, trial: int) -> tuple[StageResult, ...]:
        """The finished stages of a trial, in the order in which they finished."""
        columns = (_STAGES.c.stage, _STAGES.c.payload, _STAGES.c.seconds)
        query = sa.select(*columns).where(_STAGES.c.trial == trial).order_by(_STAGES.c.position)
        with self._transaction() as connection:
            rows = connection.execute(query).all()
        return tuple(StageResult(stage=row[0], payload=json.loads(row[1]), seconds=row[2]) for row in rows)

    def payloads(self, stage: str) -> tuple[tuple[int, Mapping[str, Any]], ...]:
        """(trial, payload) of every trial that finished `stage`, in the order in which they did."""
        query = sa.select(_STAGES.c.trial, _STAGES.c.payload).where(_STAGES.c.stage == stage)
        with self._transaction() as connection:
            rows = connection.execute(query.order_by(_STAGES.c.position)).all()
        return tuple((trial, json.loads(text)) for trial, text in rows)

    # Trials

    def record(self, record: TrialRecord) -> None:
        """Remembers a finished trial; the same content again changes nothing.

        Raises:
            LedgerError: the trial is already there with another content.
        """
        text = _dump(record.to_json())
        row = {
            "trial": record.trial,
            "candidate_id": record.candidate.candidate_id,
            "outcome": record.outcome.value,
            "record": text,
        }
        stored = self._insert(_TRIALS, row, sa.select(_TRIALS.c.record).where(_TRIALS.c.trial == record.trial))
        if stored != text:
            raise LedgerError(f"{self.url}: trial {record.trial} is already recorded with another content; it stays")

    def records(self) -> tuple[TrialRecord, ...]:
        """Every finished trial, by number."""
        return self._records(sa.true())

    def by_candidate(self, candidate_id: str) -> tuple[TrialRecord, ...]:
        """The finished trials of one candidate, by number."""
        return self._records(_TRIALS.c.candidate_id == candidate_id)

    def by_trial(self, trial: int) -> TrialRecord | None:
        """The record of one trial; None before it has one."""
        return next(iter(self._records(_TRIALS.c.trial == trial)), None)

    def num_tried(self) -> int:
        """Trials that count: each candidate once, however often it was proposed, and each failure."""
        failures = [outcome.value for outcome in Outcome if outcome.is_infrastructure]
        is_failure = _TRIALS.c.outcome.in_(failures)
        with self._transaction() as connection:
            candidates = sa.func.count(sa.distinct(_TRIALS.c.candidate_id))
            num_candidates = connection.scalar(sa.select(candidates).where(~is_failure)) or 0
            num_failures = connection.scalar(sa.select(sa.func.count()).select_from(_TRIALS).where(is_failure)) or 0
        return num_candidates + num_failures

    def claim(self, candidate_id: str, trial: int) -> int:
        """Says that a trial is about to evaluate a candidate; of several that do, the first one has it.

        Returns:
            The trial that has it.
        """
        return int(self._put_once(f"claim:{candidate_id}", str(trial)))

    def take_over(self, candidate_id: str, trial: int, lost: int) -> bool:
        """Gives the claim of a lost trial to another one; False when somebody else was quicker."""
        row = (_META.c.name == f"claim:{candidate_id}") & (_META.c.content == str(lost))
        with self._transaction() as connection:
            changed = connection.execute(sa.update(_META).where(row).values(content=str(trial)))
        return changed.rowcount == 1

    def _records(self, condition: sa.ColumnElement[bool]) -> tuple[TrialRecord, ...]:
        query = sa.select(_TRIALS.c.trial, _TRIALS.c.record).where(condition).order_by(_TRIALS.c.trial)
        with self._transaction() as connection:
            rows = connection.execute(query).all()
        return tuple(self._read(trial, text) for trial, text in rows)

    def _read(self, trial: int, text: str) -> TrialRecord:
        try:
            return TrialRecord.from_json(json.loads(text))
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(
                f"{self.url}: trial {trial} cannot be read ({type(error).__name__}: {error});"
                " the file is damaged or was written by another version"
            ) from error

    def counts(self) -> dict[Outcome, int]:
        """How many trials ended how; every outcome is present."""
        query = sa.select(_TRIALS.c.outcome, sa.func.count()).group_by(_TRIALS.c.outcome)
        with self._transaction() as connection:
            seen = {row[0]: row[1] for row in connection.execute(query)}
        return {outcome: seen.get(outcome.value, 0) for outcome in Outcome}

    # Events

    def add_event(self, kind: str, detail: Mapping[str, Any]) -> None:
        """Appends an event."""
        row = {"at": self._now().isoformat(), "kind": kind, "detail": _dump(detail)}
        with self._transaction() as connection:
            connection.execute(sa.insert(_EVENTS).values(row))

    def events(self, kind: str | None = None) -> tuple[Event, ...]:
        """Every event, or those of one kind, in the order in which they were added."""
        query = sa.select(_EVENTS.c.at, _EVENTS.c.kind, _EVENTS.c.detail).order_by(_EVENTS.c.position)
        if kind is not None:
            query = query.where(_EVENTS.c.kind == kind)
        with self._transaction() as connection:
            rows = connection.execute(query).all()
        return tuple(Event(at=row[0], kind=row[1], detail=json.loads(row[2])) for row in rows)

    # Database

    def _transaction(self) -> AbstractContextManager[sa.Connection]:
        return reported(self._engine, self.url)

    def _put_once(self, name: str, content: str) -> str:
        query = sa.select(_META.c.content).where(_META.c.name == name)
        return self._insert(_META, {"name": name, "content": content}, query)

    def _insert(self, table: sa.Table, row: Mapping[str, Any], stored: sa.Select[tuple[str]]) -> str:
        """Inserts a row unless its unique key is taken; returns what is stored under the key.

        The insert comes first and takes the write lock, so two processes cannot both find the key free.
        """
        try:
            with self._transaction() as connection:
                connection.execute(sa.insert(table).values(dict(row)))
        except sa.exc.IntegrityError:
            pass
        with self._transaction() as connection:
            return str(connection.execute(stored).scalar_one())


def _dump(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
