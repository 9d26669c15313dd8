"""The one root exception of `nas`."""


class NasError(Exception):
    """Something a user can mend: the message says what was wrong, seen, allowed, and to try."""
