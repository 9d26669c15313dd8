"""What a bench comes to: figures by name, the rows behind them, one JSON object, one CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nas.report.atomic import write_atomic

Figure = float | Mapping[str, float | Mapping[str, float | None] | None] | None
"""A number; or one for each device or method, at most two levels deep. None: not measured."""
Cell = str | float | int | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """A finished bench.

    Attributes:
        bench: its name on the command line.
        device: whose figures these are; None for replays of public tables.
        figures: the numbers the bench exists for, by the names in the README.
        rows: the observations they were computed from, one mapping a row with the same keys.
        is_quick: whether it ran shortened, so that the figures are coarse.
    """

    bench: str
    device: str | None
    figures: Mapping[str, Figure]
    rows: Sequence[Mapping[str, Cell]]
    is_quick: bool

    def to_json(self) -> dict[str, object]:
        """The object that `nas bench NAME --json` prints."""
        return {
            "bench": self.bench,
            "device": self.device,
            "is_quick": self.is_quick,
            "figures": dict(self.figures),
            "rows": [dict(row) for row in self.rows],
        }

    def write_csv(self, path: Path) -> None:
        """Writes the rows.

        Raises:
            ReportError: the file cannot be written.
        """
        text = io.StringIO()
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_atomic(path, text.getvalue().encode())
