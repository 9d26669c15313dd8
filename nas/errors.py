"""The one root exception of `nas`."""

from __future__ import annotations


class NasError(Exception):
    """Something a user can mend: the message says what was wrong, seen, allowed, and to try."""
