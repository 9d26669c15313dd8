"""Shows a space's tuning: a bar on a terminal and a line a kernel, both on stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from nas.compile.tune_space import TunedKernel, Watch


class TuneProgress(Watch):
    """A `Watch` for people."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("listing the space's kernels", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def lowered(self, done: int, total: int) -> None:
        """Shows how many candidates are lowered."""
        self._progress.update(self._task, completed=done, total=total)

    def tuned(self, kernel: TunedKernel, done: int, total: int) -> None:
        """Prints the kernel's line."""
        self._progress.update(self._task, description=f"kernels {done}/{total}", completed=done, total=total)
        style = "red" if kernel.after_s is None else "green"
        text = f"kernel {done:>3}/{total}  {kernel_line(kernel)}"
        self._console.print(f"[{style}]{escape(text)}[/]", highlight=False, soft_wrap=True)


def kernel_line(tuned: TunedKernel) -> str:
    """One kernel in one line: how much of the work it is, how fast it was and how fast it is."""
    parts = [f"{tuned.kernel.work_share:5.1%} of the work"]
    if tuned.after_s is None:
        parts.append("no schedule works")
    elif tuned.before_s is None or tuned.before_s <= tuned.after_s:
        parts.append(f"{tuned.after_s * 1e6:9.1f} us")
    else:
        parts.append(f"{tuned.after_s * 1e6:9.1f} us, was {tuned.before_s * 1e6:.1f} us")
    return "  ".join([*parts, tuned.kernel.task.name])
