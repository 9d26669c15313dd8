"""A public table as a search problem: architectures to choose among, a budget, and the front that there is to find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nas.bench.cell_features import features_of
from nas.bench.table_encoding import encode
from nas.bench.tables import Choice, Table, TableError
from nas.front import hypervolume
from nas.search.candidate_source import Options
from profilers.cost_model.terms import Encoded

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProblem:
    """Architectures that have both a latency on one device and a quality.

    Attributes:
        name: of table, quality and device, for people.
        choices: what makes each architecture.
        features: their encodings.
        qualities, latencies_ms: what the table says; these are the truth of a replay.
        budget_ms: the largest latency that counts.
        worst: quality of the reference point, the lowest in the table.
        whole: hypervolume of the true front within the budget.
        encoded: the architectures as terms of a latency, for the cost model.
        answers: of each choice, every answer that the table has.
    """

    name: str
    choices: tuple[Mapping[str, Choice], ...]
    features: Floats
    qualities: Floats
    latencies_ms: Floats
    budget_ms: float
    worst: float
    whole: float
    encoded: Encoded
    answers: Mapping[str, tuple[Choice, ...]]
    _rows: dict[tuple[Choice, ...], int] = field(repr=False)

    def covered(self, rows: Sequence[int]) -> float:
        """Hypervolume of these architectures relative to the true front's, by the table's own numbers."""
        return _covered(self.qualities[rows], self.latencies_ms[rows], self.worst, self.budget_ms) / self.whole

    def regret(self, rows: Sequence[int]) -> float:
        """How far the best of these within the budget is below the best in the table."""
        is_within = self.latencies_ms <= self.budget_ms
        seen = np.asarray(rows)[is_within[rows]]
        best = float(self.qualities[seen].max()) if len(seen) else self.worst
        return float(self.qualities[is_within].max()) - best

    def row_of(self, choices: Mapping[str, Choice]) -> int:
        """The architecture that these choices make; of a table with gaps the nearest one, by equal choices."""
        key = tuple(choices[name] for name in self.answers)
        if key not in self._rows:
            same = [sum(row[name] == choices[name] for name in self.answers) for row in self.choices]
            self._rows[key] = int(np.argmax(same))
        return self._rows[key]


def make_problem(
    table: Table, *, quality: str, device: str, quantile: float = 0.4, budget_ms: float | None = None
) -> TableProblem:
    """A problem from one column of quality and one of latency.

    Args:
        table: as loaded.
        quality, device: names of the columns.
        quantile: of the latencies, which becomes the budget unless `budget_ms` says it.
        budget_ms: the budget.

    Raises:
        TableError: no such column, or no architecture is within the budget.
    """
    for kind, name, known in (("quality", quality, table.qualities), ("device", device, table.devices)):
        if name not in known:
            raise TableError(f"{table.name}: no {kind} {name!r}; there are: {', '.join(known) or 'none'}")
    qualities, latencies = table.qualities[quality], table.devices[device]
    rows, at_quality, at_latency = np.intersect1d(qualities.rows, latencies.rows, return_indices=True)
    values, latencies_ms = qualities.values[at_quality], latencies.values[at_latency]
    if not len(rows):
        raise TableError(f"{table.name}: no architecture has both {quality} and a latency on {device}")
    limit = float(np.quantile(latencies_ms, quantile)) if budget_ms is None else budget_ms
    is_within = latencies_ms <= limit
    if not is_within.any():
        raise TableError(
            f"{table.name}: no architecture is within {limit:g} ms on {device}; the fastest takes"
            f" {latencies_ms.min():.4g} ms"
        )
    worst = float(values.min())
    whole = _covered(values, latencies_ms, worst, limit)
    if whole <= 0:
        raise TableError(
            f"{table.name}: every architecture within {limit:g} ms has the lowest {quality}; nothing to find"
        )
    choices = tuple(table.choices[row] for row in rows)
    names = list(choices[0])
    return TableProblem(
        name=f"{table.name} {quality} {device}",
        choices=choices,
        features=features_of(table)[rows],
        qualities=values,
        latencies_ms=latencies_ms,
        budget_ms=limit,
        worst=worst,
        whole=whole,
        encoded=encode(table).take(rows),
        answers={name: tuple(sorted({row[name] for row in choices}, key=str)) for name in names},
        _rows={tuple(row[name] for name in names): at for at, row in enumerate(choices)},
    )


def _covered(qualities: Floats, latencies_ms: Floats, worst: float, budget_ms: float) -> float:
    points = np.column_stack([qualities, latencies_ms])
    return hypervolume(points, [worst, budget_ms], ["maximize", "minimize"])


class TableSource:
    """The whole table as a pool of candidates, each row one of its own."""

    def __init__(self, problem: TableProblem) -> None:
        self._problem = problem
        rows = range(len(problem.choices))
        self._all = Options(
            choices=problem.choices, keys=[str(row) for row in rows], candidates=list(rows), features=problem.features
        )

    def describe(self, choices: Sequence[Mapping[str, Choice]]) -> Options:
        """The rows that these choices make."""
        return self._all.at([self._problem.row_of(each) for each in choices])

    def pool(self, parents: Sequence[Mapping[str, Choice]], rng: np.random.Generator) -> Options:
        """Every row."""
        return self._all
