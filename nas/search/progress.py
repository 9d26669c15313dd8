"""What a running study tells whoever watches: the terminal, a log, or nobody."""

from __future__ import annotations

from typing import Protocol

from nas.trial import TrialRecord


class Watcher(Protocol):
    """Follows a study as it runs."""

    def stage(self, what: str, done: int = 0, total: int = 0) -> None:
        """Something began or went on; `done` of `total` steps where they can be counted."""
        ...

    def trial_ended(self, record: TrialRecord, num_done: int, num_trials: int) -> None:
        """A trial has its record."""
        ...

    def note(self, text: str) -> None:
        """A line worth keeping."""
        ...


class Silent:
    """Nobody watches."""

    def stage(self, what: str, done: int = 0, total: int = 0) -> None:
        """Nothing."""

    def trial_ended(self, record: TrialRecord, num_done: int, num_trials: int) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""
