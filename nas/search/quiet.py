"""Patience with a disturbed machine: a run that was rejected says nothing about a network, and is made again."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nas.search.progress import Watcher
from profilers.canary import LASTING_S
from profilers.errors import ProfileFailure
from profilers.measurement import Measurement

PAUSES_S = (5.0, 20.0, 30.0)
"""After the first, the second and each further rejected run."""

PATIENCE_S = LASTING_S + 120.0
"""How long runs may be rejected in a row before the next one that is counts as a failure. Longer than the canaries
take to believe that the device has changed for good: a host that clocks lower for a while costs time, no networks."""

MIN_ATTEMPTS = 3
"""Every network gets so many, however long the machine has been disturbed."""


class QuietPatience:
    """Waits between the runs of one search, and knows since when none was good."""

    def __init__(self, watcher: Watcher) -> None:
        """`watcher` is told why one waits."""
        self._watcher = watcher
        self._since_s: float | None = None

    def wait(self, candidate_id: str, seen: Sequence[Measurement | ProfileFailure], attempt: int) -> bool:
        """Waits where a run was rejected and another attempt is due.

        Args:
            candidate_id: for people.
            seen: results of a run; one that was rejected is enough.
            attempt: number of the run, from 1.

        Returns:
            Whether to measure again.
        """
        reason = next(filter(None, map(_rejection, seen)), None)
        if reason is None:
            self._since_s = None
            return False
        now_s = time.monotonic()
        since_s = self._since_s = now_s if self._since_s is None else self._since_s
        if attempt >= MIN_ATTEMPTS and now_s - since_s > PATIENCE_S:
            return False
        pause_s = PAUSES_S[min(attempt, len(PAUSES_S)) - 1]
        self._watcher.note(
            f"{candidate_id}: the machine was disturbed while measuring (attempt {attempt}): {reason}; again in"
            f" {pause_s:g} s"
        )
        time.sleep(pause_s)
        return True


def _rejection(seen: Measurement | ProfileFailure) -> str | None:
    estimate = seen.estimate() if isinstance(seen, Measurement) else seen
    return estimate.reason if isinstance(estimate, ProfileFailure) and estimate.kind == "rejected" else None
