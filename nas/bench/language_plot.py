"""The picture of `nas bench language`: bits per byte against latency, decode on the left and prefill on the right."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nas.bench.result import Cell

_BASELINE, _ZOO, _WINNER = "#D55E00", "#0072B2", "#009E73"
_SIZE_INCHES, _DPI = (11.0, 4.6), 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One network in one phase; ranges are (below, above) the value, None where there is one training only."""

    name: str
    latency_ms: float
    latency_range_ms: tuple[float, float]
    bits_per_byte: float
    half_width: float | None
    color: str


def points_of(rows: Sequence[Mapping[str, Cell]], phase: str) -> list[Point]:
    """What is drawn for `decode` or `prefill`.

    >>> row = {"name": "winner ab", "decode_ms": 2.0, "decode_lower_ms": 1.5, "decode_upper_ms": 3.0,
    ...        "test_bits_per_byte": 2.5, "test_half_width": None}
    >>> [(p.latency_range_ms, p.color == _WINNER) for p in points_of([row], "decode")]
    [((0.5, 1.0), True)]
    """
    points = []
    for row in rows:
        name, half = str(row["name"]), row["test_half_width"]
        value, lower, upper = (float(row[f"{phase}{end}"] or 0) for end in ("_ms", "_lower_ms", "_upper_ms"))
        color = _BASELINE if name == "attention_only" else _WINNER if name.startswith("winner") else _ZOO
        points.append(
            Point(
                name=name,
                latency_ms=value,
                latency_range_ms=(value - lower, upper - value),
                color=color,
                bits_per_byte=float(row["test_bits_per_byte"] or 0),
                half_width=None if half is None else float(half),
            )
        )
    return points


def draw_language(rows: Sequence[Mapping[str, Cell]]) -> bytes:
    """A PNG; lines are 95% intervals: of the latency, and of the mean over trainings."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, phase in zip(figure.subplots(1, 2, sharey=True), ("decode", "prefill"), strict=True):
        for point in points_of(rows, phase):
            axes.errorbar(
                point.latency_ms, point.bits_per_byte, xerr=[[part] for part in point.latency_range_ms],
                yerr=point.half_width, fmt="o", color=point.color, capsize=2,
            )  # fmt: skip
            axes.annotate(
                point.name, (point.latency_ms, point.bits_per_byte), xytext=(6, 4), textcoords="offset points",
                fontsize=7, color=point.color,
            )  # fmt: skip
        axes.set_xlim(left=0)
        axes.margins(x=0.25)
        axes.set_xlabel(f"{phase} latency, ms")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("bits per byte on test (lower is better)")
    image = io.BytesIO()
    figure.savefig(image, format="png")
    return image.getvalue()
