"""Encodings of a table's architectures for surrogate models: cells by their paths, anything else by its choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nas.bench.table_kinds import CELL_EDGES
from nas.bench.tables import Choice, Table

Floats = NDArray[np.float64]

_PATHS = ((3,), (0, 4), (1, 5), (0, 2, 5))
"""Edges of each way from a cell's input to its output, as positions in `CELL_EDGES`."""

_COUNTED = ("skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")


def features_of(table: Table) -> Floats:
    """One row an architecture; equal networks have equal rows."""
    if table.kind == "nasbench201":
        names = [f"edge_{start}_{end}" for start, end in CELL_EDGES]
        return np.array([cell_features([str(choices[name]) for name in names]) for choices in table.choices])
    return choice_features(table.choices)


def cell_features(operations: Sequence[str]) -> tuple[float, ...]:
    """What a cell computes, by its paths; edges that no live path uses count as absent.

    A path without `none` carries a signal; its depth is the number of convolutions on it. Deep, wide
    and residual cells differ in depths, numbers of paths and a path of skips alone. Exchanging the two
    inner nodes changes nothing.

    >>> cell_features(["none"] * 6)[:6]
    (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    >>> one = cell_features(["nor_conv_1x1", "none", "none", "none", "avg_pool_3x3", "none"])
    >>> one == cell_features(["none", "nor_conv_1x1", "none", "none", "none", "avg_pool_3x3"])
    True
    """
    live = [path for path in _PATHS if all(operations[edge] != "none" for edge in path)]
    used = sorted({edge for path in live for edge in path})
    counts = [float(sum(operations[edge] == operation for edge in used)) for operation in _COUNTED]
    words = [tuple(operations[edge] for edge in path if operations[edge] != "skip_connect") for path in live]
    convolutions = [sum(word.startswith("nor_conv") for word in each) for each in words] or [0]
    large = [each.count("nor_conv_3x3") for each in words] or [0]
    pools = [each.count("avg_pool_3x3") for each in words] or [0]
    direct = operations[3] != "none"
    return (
        *counts,
        float(len(live)),
        float(len(set(words))),
        *(float(max(convolutions)), float(min(convolutions)), sum(convolutions) / len(convolutions)),
        *(float(max(large)), sum(large) / len(large)),
        *(float(max(pools)), float(min(pools)), sum(pools) / len(pools)),
        float(() in words),
        float(direct),
        float(sum(len(path) == 2 for path in live)),
        float(any(len(path) == 3 for path in live)),
    )


def choice_features(choices: Sequence[Mapping[str, Choice]]) -> Floats:
    """Numbers as they are and their logarithms, words one-hot.

    >>> choice_features([{"depth": 2.0, "kind": "a"}, {"depth": 4.0, "kind": "b"}]).round(2).tolist()
    [[2.0, 0.69, 1.0, 0.0], [4.0, 1.39, 0.0, 1.0]]
    """
    columns: list[list[float]] = []
    for name in choices[0]:
        answers = [row[name] for row in choices]
        if all(isinstance(answer, float) for answer in answers):
            numbers = [float(answer) for answer in answers]
            columns.append(numbers)
            if min(numbers) > 0:
                columns.append(np.log(numbers).tolist())
        else:
            columns += [[float(answer == word) for answer in answers] for word in sorted(set(map(str, answers)))]
    return np.array(columns, dtype=float).T
