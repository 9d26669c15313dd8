"""The picture of a language study: each winner's latency against the length of its context, a panel an entry point.

What is drawn (`context_figure_data`) is kept apart from drawing it (`draw_context`), as in `plots`.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.report.summary import StudySummary
from profilers.measurement import LatencyEstimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AT_LENGTH = re.compile(r"(?P<entry>[A-Za-z]\w*)@(?P<tokens>\d+)")
# Okabe and Ito's palette without its yellow, which is hard to see on white; the markers tell lines apart as well.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#1A1A1A")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_INK, _FAINT, _BUDGET = "#1A1A1A", "#E8E8E8", "#8F3E00"
_PANEL_INCHES, _HEIGHT_INCHES, _DPI = 4.6, 4.2, 160


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPoint:
    """A latency at one length.

    Attributes:
        num_tokens: length of the context.
        latency: with its interval.
        is_plain_look: whether it got one look only, with nothing held against it.
    """

    num_tokens: int
    latency: LatencyEstimate
    is_plain_look: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLine:
    """One winner in one panel: its place on the front from 1, its id and its points, the shortest context first."""

    number: int
    candidate_id: str
    points: tuple[ContextPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPanel:
    """One entry point.

    Attributes:
        entry: its name without the length: `decode`.
        lines: one a winner, in the order of the front.
        budgets: (tokens, maximum in ms) of the budgets on its phases.
    """

    entry: str
    lines: tuple[ContextLine, ...]
    budgets: tuple[tuple[int, float], ...]


def entry_and_length(phase: str) -> tuple[str, int] | None:
    """Entry point and number of tokens of a phase; None where its name has no length.

    >>> entry_and_length("decode@512"), entry_and_length("infer")
    (('decode', 512), None)
    """
    found = _AT_LENGTH.fullmatch(phase)
    return None if found is None else (found["entry"], int(found["tokens"]))


def context_figure_data(summary: StudySummary) -> tuple[ContextPanel, ...]:
    """Collects what `draw_context` draws; nothing when no winner was measured in a phase with a length."""
    lines: dict[str, list[ContextLine]] = {}
    for number, member in enumerate(summary.front, start=1):
        points: dict[str, list[ContextPoint]] = {}
        for seen in member.latencies(summary.phase):
            place = entry_and_length(seen.phase)
            if place is not None:
                point = ContextPoint(num_tokens=place[1], latency=seen.latency, is_plain_look=seen.is_plain_look)
                points.setdefault(place[0], []).append(point)
        for entry, found in points.items():
            ordered = tuple(sorted(found, key=lambda point: point.num_tokens))
            line = ContextLine(number=number, candidate_id=member.candidate_id, points=ordered)
            lines.setdefault(entry, []).append(line)
    return tuple(
        ContextPanel(entry=entry, lines=tuple(found), budgets=_budgets_of(entry, summary))
        for entry, found in lines.items()
    )


def _budgets_of(entry: str, summary: StudySummary) -> tuple[tuple[int, float], ...]:
    found = []
    for budget in summary.budgets:
        place = entry_and_length(budget.phase) if budget.metric == "latency_ms" and budget.phase else None
        if place is not None and place[0] == entry:
            found.append((place[1], budget.maximum))
    return tuple(sorted(found))


def draw_context(panels: tuple[ContextPanel, ...]) -> bytes:
    """Draws the picture and returns it as PNG; at least one panel."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PANEL_INCHES * len(panels), _HEIGHT_INCHES), layout="constrained", facecolor="white")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, panel)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, fontsize=9, labelcolor=_INK)
    stream = io.BytesIO()
    # Without the version of matplotlib in it, the same data is the same file.
    figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
    return stream.getvalue()


def _draw_panel(axes: Axes, panel: ContextPanel) -> None:
    axes.grid(color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for line in panel.lines:
        colour = _COLOURS[(line.number - 1) % len(_COLOURS)]
        marker = _MARKERS[(line.number - 1) % len(_MARKERS)]
        tokens = [point.num_tokens for point in line.points]
        axes.plot(tokens, [point.latency.latency_ms for point in line.points], color=colour, linewidth=1.4, zorder=2)
        for point in line.points:
            seen = point.latency
            axes.errorbar(
                [point.num_tokens], [seen.latency_ms],
                yerr=[[seen.latency_ms - seen.lower_ms], [seen.upper_ms - seen.latency_ms]],
                fmt=marker, color=colour, markersize=6.5, capsize=2.5, elinewidth=1.1, zorder=3,
                # Hollow: one look, nothing was held against it.
                markerfacecolor="white" if point.is_plain_look else colour,
            )  # fmt: skip
        axes.plot([], [], color=colour, marker=marker, label=f"{line.number}  {line.candidate_id}")
    for tokens_of, maximum_ms in panel.budgets:
        axes.plot([tokens_of], [maximum_ms], marker="_", markersize=26, markeredgewidth=1.8, color=_BUDGET, zorder=4)
        axes.annotate(
            f"budget {maximum_ms:g} ms", (tokens_of, maximum_ms), xytext=(0, 5), textcoords="offset points",
            ha="right", va="bottom", size=9, color=_BUDGET,
        )  # fmt: skip
    axes.set_xticks(sorted({point.num_tokens for line in panel.lines for point in line.points}))
    axes.set_ylim(bottom=0.0)
    axes.set_title(panel.entry, loc="left", color=_INK, size=11)
    axes.set_xlabel("context, tokens", color=_INK, size=10)
    axes.set_ylabel("latency, ms (bars are 95% intervals)", color=_INK, size=10)
