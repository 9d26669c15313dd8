"""How the ledger reaches its database, and what a person is told when that fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from nas.errors import NasError

_CONNECT_TIMEOUT_S = 10

_ADVICE = (
    ("disk is full", "the disk is full; free some space and run the same command again, finished work is kept"),
    ("disk i/o error", "the disk reports an error; check its space and health"),
    ("file is not a database", "the file is not a database; choose another --out, or move the file away"),
    ("malformed", "the database file is damaged; restore a copy, or move it away and start again"),
    ("locked", "another process keeps the database locked; wait for it to end, then run the same command again"),
    ("readonly", "the database cannot be written; check the permissions of the file and its folder"),
    ("unable to open", "the file cannot be opened; the folder must exist and be writable"),
)
"""(what a driver says, what a person is told): the first that matches counts."""


class LedgerError(NasError):
    """The store cannot be used, or would have to change what it holds: one line, nothing was changed."""


def shown_url(url: str) -> str:
    """The URL with its password masked; text that is no URL is returned as it is.

    >>> shown_url("postgresql://me:secret@host/db")
    'postgresql://me:***@host/db'
    """
    try:
        shown = sa.make_url(url).render_as_string(hide_password=True)
    except (sa.exc.ArgumentError, ValueError):
        shown = re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&]*", r"\1***", shown)


def connect(url: str, busy_timeout_s: float) -> sa.Engine:
    """An engine for the URL; nothing is opened yet.

    Raises:
        LedgerError: not a URL, a database that is not supported, or its driver is not installed.
    """
    shown = shown_url(url)
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
        if backend not in ("sqlite", "postgresql"):
            raise LedgerError(f"{shown}: database {backend!r} is not supported; allowed: sqlite, postgresql")
        is_memory = parsed.database in (None, "", ":memory:") or "memory" in parsed.query.values()
        if backend == "sqlite" and is_memory:
            raise LedgerError(f"{shown}: a database in memory cannot be resumed; allowed: sqlite:///FILE")
        arguments: dict[str, Any] = (
            {"timeout": busy_timeout_s} if backend == "sqlite" else {"connect_timeout": _CONNECT_TIMEOUT_S}
        )
        # A server that was restarted has closed the connections of the pool.
        engine = sa.create_engine(parsed, connect_args=arguments, pool_pre_ping=backend == "postgresql")
    except (sa.exc.ArgumentError, ValueError) as error:
        raise LedgerError(
            f"storage {shown!r} is not a database URL; for instance sqlite:///study.db, postgresql://user@host/study"
        ) from error
    except ImportError as error:
        raise LedgerError(
            f"{shown}: the driver {error.name!r} is not installed; pip install 'psycopg[binary]'"
        ) from error
    if backend == "sqlite":
        sa.event.listen(engine, "connect", _configure_sqlite)
    return engine


def _configure_sqlite(connection: Any, _record: object) -> None:
    """Readers never block the search (WAL), and a commit survives a power cut (FULL).

    NORMAL would survive a killed process as well and spare one fsync a commit. A study commits a few
    times a minute, and boards and laptops do lose power: the fsync is cheap, a lost training is not.
    Where the file system has no shared memory SQLite stays with its rollback journal, just as safe.
    """
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
    finally:
        cursor.close()


@contextmanager
def reported(engine: sa.Engine, shown: str) -> Iterator[sa.Connection]:
    """One transaction; a failure of the database becomes a `LedgerError`.

    `IntegrityError` passes: it says that a unique key is taken, which the ledger decides about.
    """
    try:
        with engine.begin() as connection:
            yield connection
    except sa.exc.IntegrityError:
        raise
    except sa.exc.DBAPIError as error:
        reason = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
        advice = next((text for sign, text in _ADVICE if sign in reason.lower()), None)
        if advice is None and isinstance(error, sa.exc.OperationalError):
            advice = "the database does not answer as it should; check that it runs and can be reached"
        raise LedgerError(f"{shown}: {advice or 'the database refused'} ({reason})") from error
