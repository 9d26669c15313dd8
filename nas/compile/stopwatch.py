"""Wall seconds of each stage of a compilation."""

from __future__ import annotations

import time


class Stopwatch:
    """Wall seconds by stage; stages do not nest."""

    def __init__(self) -> None:
        self.seconds = {"tune": 0.0, "compile": 0.0}
        self._running: tuple[str, float] | None = None

    def measuring(self, stage: str) -> Stopwatch:
        """The stage that the `with` block is."""
        self._running = (stage, time.monotonic())
        return self

    def elapsed(self, stage: str) -> float:
        """Seconds of a stage so far, the running one included."""
        running = self._running
        extra = time.monotonic() - running[1] if running is not None and running[0] == stage else 0.0
        return self.seconds[stage] + extra

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        assert self._running is not None
        stage, since = self._running
        self.seconds[stage] += time.monotonic() - since
        self._running = None
