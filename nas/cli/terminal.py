"""Shows a running study: a live bar on a terminal, a line a trial in a log. Both on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from nas.trial import Outcome, TrialRecord

_STYLES = {
    Outcome.SCORED: "green", Outcome.OVER_BUDGET: "yellow", Outcome.DIVERGED: "yellow", Outcome.STOPPED_EARLY: "yellow",
}  # fmt: skip


class Terminal:
    """A `Watcher` for people."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._started = time.monotonic()
        self._first_done: int | None = None
        self._ends_at: float | None = None
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[what]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("trials", total=None, what="starting", left="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Takes the bar off the screen."""
        self._progress.stop()

    def stage(self, what: str, done: int = 0, total: int = 0) -> None:
        """Shows what is going on now."""
        counted = f"{what} {done}/{total}" if total > 1 else what
        left = "" if self._ends_at is None else f"about {duration(max(0.0, self._ends_at - time.monotonic()))} left"
        self._progress.update(self._task, what=f"{counted:<18}", left=left)

    def trial_ended(self, record: TrialRecord, num_done: int, num_trials: int) -> None:
        """Prints the trial's line, and how long the rest will take at the pace so far."""
        if self._first_done is None:
            self._first_done = num_done - 1
        pace_s = (time.monotonic() - self._started) / max(1, num_done - self._first_done)
        is_last = num_done >= num_trials
        self._ends_at = None if is_last else time.monotonic() + (num_trials - num_done) * pace_s
        # One step more than trials: the winners are measured again after the last one.
        self._progress.update(
            self._task, completed=num_done, total=num_trials + 1,
            description="winners" if is_last else f"trials {num_done}/{num_trials}",
        )  # fmt: skip
        self.stage("next")
        style = _STYLES.get(record.outcome, "red")
        self._console.print(f"[{style}]{escape(trial_line(record))}[/]", highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Prints a line."""
        self._console.print(escape(text), highlight=False, soft_wrap=True)


def trial_line(record: TrialRecord) -> str:
    """One trial in one line: what it costs, what it scores, or why it has no score."""
    parts = [f"trial {record.trial:>3}", record.candidate.candidate_id, f"{record.outcome.value:<12}"]
    if record.cost is not None:
        for phase, estimate in record.cost.latencies:
            half = (estimate.upper_ms - estimate.lower_ms) / 2
            parts.append(f"{phase} {estimate.latency_ms:.3f} ms ±{half:.3f}")
    if record.score is not None:
        parts.append(f"{record.score.metric} {record.score.value:.3f}")
    if record.duplicate_of is not None:
        parts.append(f"same as trial {record.duplicate_of}")
    elif record.error is not None:
        parts.append(record.error)
    seconds = sum(amount for _, amount in record.seconds)
    return "  ".join(parts) + f"  [{seconds:.0f} s]"


def duration(seconds: float) -> str:
    """A duration for people.

    >>> duration(42), duration(135), duration(7300)
    ('42 s', '2 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
