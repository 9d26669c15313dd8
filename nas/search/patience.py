"""Waiting for a database that goes away in mid-search: PostgreSQL restarts, networks break, work must not be lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from nas.ledger import Ledger

Answer = TypeVar("Answer")

PATIENCE_S = 1800.0
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Between attempts to reach a database that went away, for `PATIENCE_S` in all."""


def can_share(url: str) -> bool:
    """Whether several processes may work on the database; it is then one that can go away and come back.

    >>> can_share("postgresql+psycopg://host/study"), can_share("sqlite:///study.db")
    (True, False)
    """
    return url.startswith("postgresql")


def patiently(
    work: Callable[[], Answer], url: str, note: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> Answer:
    """Does what needs the database; while it is away, waits, says so, and tries again.

    Args:
        work: must be safe to repeat.
        url: for people, the password masked.
        note: told when the waiting begins and when it ends.
        sleep: waits so many seconds.
    """
    began: float | None = None
    attempt = 0
    while True:
        try:
            answer = work()
        except Exception as error:
            began = time.monotonic() if began is None else began
            if not is_away(error) or time.monotonic() - began > PATIENCE_S:
                raise
            if attempt == 0:
                note(f"{url} does not answer; waiting for it, finished work is kept")
            sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
            attempt += 1
        else:
            if began is not None:
                note(f"{url} answers again after {time.monotonic() - began:.0f} s; going on")
            return answer


def is_away(error: BaseException) -> bool:
    """Whether an error means that the database could not be reached, and may be again."""
    import sqlalchemy as sa

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, sa.exc.OperationalError | sa.exc.InterfaceError):
            return True
        if isinstance(seen, sa.exc.DBAPIError) and seen.connection_invalidated:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


class PatientLedger(Ledger):
    """A ledger in a database that may go away: every method waits for it. Writing twice changes nothing."""

    on_wait: Callable[[str], None] = staticmethod(lambda text: None)
    """Told what `patiently` notes."""


def _patient(name: str) -> Callable[..., Any]:
    def method(self: PatientLedger, *arguments: Any, **options: Any) -> Any:
        original = getattr(super(PatientLedger, self), name)
        return patiently(lambda: original(*arguments, **options), self.url, self.on_wait)

    return method


for _name in (
    "record", "record_stage", "stages", "payloads", "records", "by_candidate", "by_trial", "num_tried", "claim",
    "take_over", "add_event", "events", "counts",
):  # fmt: skip
    setattr(PatientLedger, _name, _patient(_name))
