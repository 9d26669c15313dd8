"""The one root exception of `profilers`, and failures that are values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class ProfilerError(Exception):
    """Something a user can mend: the message says what was wrong, seen, allowed, and to try."""


FailureKind = Literal[
    "timeout", "crashed", "out_of_memory", "outputs_differ", "rejected", "device_busy", "bad_artifact", "limits"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFailure:
    """A measurement that did not happen: a value, not an exception, so that a search goes on."""

    kind: FailureKind
    reason: str


class ChildFailureError(Exception):
    """Carries a failure out of a measuring child; the sandbox turns it into the value."""

    def __init__(self, failure: ProfileFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure
