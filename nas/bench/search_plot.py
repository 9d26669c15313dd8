"""The curves of a replay: hypervolume over evaluations, with a band of one standard error."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nas.bench.table_search import Replay
from nas.report.atomic import write_atomic


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Mean over seeds and its standard error, after each evaluation."""

    method: str
    mean: NDArray[np.float64]
    error: NDArray[np.float64]


def curves_of(replays: Sequence[Replay]) -> tuple[Curve, ...]:
    """One curve a method, as long as the shortest of its replays."""
    curves = []
    for method in dict.fromkeys(each.method for each in replays):
        mine = [each.covered for each in replays if each.method == method]
        length = min(map(len, mine))
        values = np.array([each[:length] for each in mine])
        error = values.std(axis=0, ddof=1) / len(mine) ** 0.5 if len(mine) > 1 else np.zeros(length)
        curves.append(Curve(method=method, mean=values.mean(axis=0), error=error))
    return tuple(curves)


def draw_replays(replays: Sequence[Replay], title: str, path: Path) -> None:
    """Writes the picture as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    for curve in curves_of(replays):
        counts = np.arange(1, len(curve.mean) + 1)
        (line,) = axes.plot(counts, curve.mean, label=curve.method)
        axes.fill_between(counts, curve.mean - curve.error, curve.mean + curve.error, alpha=0.2, color=line.get_color())
    axes.set(title=title, xlabel="evaluations", ylabel="hypervolume / that of the true front", ylim=(0.7, 1.0))
    axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    write_atomic(path, picture.getvalue())
