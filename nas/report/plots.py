"""The picture of a study: every candidate's quality against its latency, the front and the budget.

What is drawn (`pareto_figure_data`) is kept apart from drawing it (`draw_pareto`), so that tests can
look at the data. matplotlib is used through its objects only; no state is shared with a caller's plots.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.front import Direction
from nas.report.labels import Label, draw_labels
from nas.report.summary import StudySummary
from nas.trial import Outcome
from profilers.measurement import LatencyEstimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with every common colour vision deficiency, and by shape as well.
_FRONT, _STEP, _BUDGET, _CANDIDATE = "#0072B2", "#9CCBE6", "#D55E00", "#8C8C8C"
_INK, _FAINT = "#1A1A1A", "#E8E8E8"
_SIZE_INCHES, _DPI = (8.0, 5.4), 160
_SHOWN_OVER_BUDGET = 1.6
"""Candidates slower than this many budgets are counted at the edge instead of stretching the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPoint:
    """One scored candidate: latency in ms and score in its metric's unit, each with its 95% interval.

    Attributes:
        trial: its trial.
        latency: for front members as measured again.
        score, score_lower, score_upper: on the val split.
        has_attention: whether one of its blocks is an attention block.
        number: place on the front from 1, as in the report's table; None off the front.
        reference: name of the space's reference network that it is; None for others.
    """

    trial: int
    latency: LatencyEstimate
    score: float
    score_lower: float
    score_upper: float
    has_attention: bool
    number: int | None = None
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoFigureData:
    """What the picture shows.

    Attributes:
        phase: entry point of the latencies.
        score_metric, score_direction: of the vertical axis.
        points: scored candidates; a network that was tried twice appears once.
        over_budget_ms, predicted_over_budget_ms: latencies of candidates that were never trained.
        budget_ms: the latency budget; None when there is none on this phase.
    """

    phase: str
    score_metric: str
    score_direction: Direction
    points: tuple[ScoredPoint, ...]
    over_budget_ms: tuple[float, ...]
    predicted_over_budget_ms: tuple[float, ...]
    budget_ms: float | None

    @property
    def front(self) -> tuple[ScoredPoint, ...]:
        """The points on the front, fastest first."""
        return tuple(sorted((p for p in self.points if p.number is not None), key=lambda p: p.latency.latency_ms))


def pareto_figure_data(summary: StudySummary) -> ParetoFigureData:
    """Collects what `draw_pareto` draws."""
    numbers = {member.record.trial: number for number, member in enumerate(summary.front, start=1)}
    again = {member.record.trial: member.latency for member in summary.front}
    references = {trial: name for name, trial in summary.references}
    points, over, predicted = [], [], []
    for record in summary.records:
        estimate = record.cost.latency(summary.phase) if record.cost else None
        if estimate is None or record.duplicate_of is not None:
            continue
        if record.outcome is Outcome.OVER_BUDGET:
            over.append(estimate.latency_ms)
        elif record.outcome is Outcome.PREDICTED_OVER_BUDGET:
            predicted.append(estimate.latency_ms)
        elif record.score is not None:
            points.append(
                ScoredPoint(
                    trial=record.trial,
                    latency=again.get(record.trial, estimate),
                    score=record.score.value,
                    score_lower=record.score.lower,
                    score_upper=record.score.upper,
                    has_attention=any("attention" in block.kind for block in record.candidate.blocks),
                    number=numbers.get(record.trial),
                    reference=references.get(record.trial),
                )
            )
    budgets = [b.maximum for b in summary.budgets if b.metric == "latency_ms" and b.phase == summary.phase]
    return ParetoFigureData(
        phase=summary.phase,
        score_metric=summary.score_metric,
        score_direction=summary.score_direction,
        points=tuple(points),
        over_budget_ms=tuple(over),
        predicted_over_budget_ms=tuple(predicted),
        budget_ms=budgets[0] if budgets else None,
    )


def draw_pareto(data: ParetoFigureData) -> bytes:
    """Draws the picture and returns it as PNG."""
    from matplotlib.figure import Figure

    untrained = [
        (name, latencies, colour)
        for name, latencies, colour in (
            ("over budget,\nnot trained", data.over_budget_ms, _BUDGET),
            ("predicted over,\nnot measured", data.predicted_over_budget_ms, _CANDIDATE),
        )
        if latencies
    ]
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained", facecolor="white")
    if untrained:
        main, strip = figure.subplots(2, 1, sharex=True, height_ratios=[10, len(untrained)])
        _draw_untrained(strip, untrained, data)
    else:
        main = strip = figure.subplots()
    left, right = _latency_limits(data)
    main.set_xlim(left, right)
    _style(main)
    _draw_candidates(main, data)
    _draw_front(main, data, right)
    _draw_budget([main] if strip is main else [main, strip], data)
    lower_is_better = data.score_direction == "minimize"
    # parse_math=False: a `$` in a name is a dollar sign.
    main.set_ylabel(f"val {data.score_metric}" + (" (lower is better)" if lower_is_better else ""), parse_math=False)
    lines = "lines are 95% intervals"
    if any(_kind(point) == "latency predicted" for point in data.points):
        lines += ", of predicted latencies 90%"
    strip.set_xlabel(f"latency of {data.phase}, ms ({lines})", parse_math=False)
    _draw_legend(figure, main)
    figure.draw_without_rendering()
    _draw_names(main, data)
    stream = io.BytesIO()
    # Without the version of matplotlib in it, the same data is the same file.
    figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
    return stream.getvalue()


def _latency_limits(data: ParetoFigureData) -> tuple[float, float]:
    """The range of the latency axis: everything scored, the budget, and over-budget ones up to twice the budget."""
    ends = [point.latency.upper_ms for point in data.points]
    if data.budget_ms is not None:
        ends.append(data.budget_ms * 1.08)
    # With nothing scored the candidates over budget are all there is to see.
    cap = _SHOWN_OVER_BUDGET * max(ends) if data.points else float("inf")
    ends += [latency for latency in (*data.over_budget_ms, *data.predicted_over_budget_ms) if latency <= cap]
    right = max(ends, default=1.0) * 1.04
    starts = [point.latency.lower_ms for point in data.points] or [0.0]
    # From zero unless that wastes half of the width.
    return (0.0 if min(starts) < 0.5 * right else min(starts) * 0.96), right


def _style(axes: Axes) -> None:
    axes.grid(color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(_INK)
    axes.tick_params(colors=_INK, labelsize=10)
    axes.xaxis.label.set(color=_INK, size=11)
    axes.yaxis.label.set(color=_INK, size=11)


def _draw_candidates(axes: Axes, data: ParetoFigureData) -> None:
    for has_attention, shape, blocks in ((True, "s", "with attention"), (False, "o", "convolution only")):
        for what, colour in (("front", _FRONT), ("scored", _CANDIDATE), ("latency predicted", _CANDIDATE)):
            points = [p for p in data.points if p.has_attention == has_attention and _kind(p) == what]
            if not points:
                continue
            is_front, is_predicted = what == "front", what == "latency predicted"
            latency, score = [p.latency.latency_ms for p in points], [p.score for p in points]
            axes.errorbar(
                latency,
                score,
                xerr=[[p.latency.latency_ms - p.latency.lower_ms for p in points],
                      [p.latency.upper_ms - p.latency.latency_ms for p in points]],
                # Rounding may put the end of an interval on the wrong side of a perfect score.
                yerr=[[max(0.0, p.score - p.score_lower) for p in points],
                      [max(0.0, p.score_upper - p.score) for p in points]],
                fmt=shape,
                color=colour,
                markersize=8 if is_front else 6,
                markerfacecolor="white" if is_predicted else colour,
                markeredgecolor=colour if is_predicted else "white",
                markeredgewidth=0.8,
                elinewidth=1.1 if is_front else 0.8,
                capsize=2.5 if is_front else 0.0,
                alpha=1.0 if is_front else 0.75,
                zorder=4 if is_front else 3,
                label=f"{what}, {blocks}",
            )  # fmt: skip
    rings = [p for p in data.points if p.reference]
    if rings:
        axes.plot(
            [p.latency.latency_ms for p in rings], [p.score for p in rings], linestyle="none", marker="o",
            markersize=13, markerfacecolor="none", markeredgecolor=_INK, markeredgewidth=1.1, zorder=5,
        )  # fmt: skip


def _kind(point: ScoredPoint) -> str:
    if point.number is not None:
        return "front"
    return "scored" if point.latency.source == "measured" else "latency predicted"


def _draw_front(axes: Axes, data: ParetoFigureData, right: float) -> None:
    """The best score within each latency: a step at every member, level up to the next."""
    front = data.front
    if front:
        end = min(right, data.budget_ms) if data.budget_ms is not None else right
        end = max(end, front[-1].latency.latency_ms)
        latency = [*(point.latency.latency_ms for point in front), end]
        score = [*(point.score for point in front), front[-1].score]
        axes.plot(latency, score, drawstyle="steps-post", color=_STEP, linewidth=3.0, zorder=2)


def _draw_budget(panels: list[Axes], data: ParetoFigureData) -> None:
    if data.budget_ms is None:
        return
    for axes in panels:
        axes.axvline(data.budget_ms, color=_BUDGET, linewidth=1.6, linestyle=(0, (5, 3)), zorder=1)
    panels[0].annotate(
        f"budget {data.budget_ms:g} ms", (data.budget_ms, 0.02), xycoords=("data", "axes fraction"), xytext=(5, 0),
        textcoords="offset points", color="#8F3E00", size=10, ha="left", va="bottom", rotation=90,
    )  # fmt: skip


def _draw_untrained(axes: Axes, rows: list[tuple[str, tuple[float, ...], str]], data: ParetoFigureData) -> None:
    """One row of ticks for each kind of candidate that has a latency but no score."""
    _style(axes)
    axes.grid(visible=False, axis="y")
    _, right = _latency_limits(data)
    for row, (_, latencies, colour) in enumerate(rows):
        shown = [latency for latency in latencies if latency <= right]
        axes.plot(shown, [row] * len(shown), linestyle="none", marker="|", markersize=11, markeredgewidth=1.8,
                  color=colour)  # fmt: skip
        if beyond := len(latencies) - len(shown):
            axes.annotate(
                f"{beyond} more →", (1.0, row), xycoords=("axes fraction", "data"), xytext=(-2, 0),
                textcoords="offset points", ha="right", va="center", size=9, color=_INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )  # fmt: skip
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], size=8.5)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _draw_legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        order = sorted(range(len(labels)), key=lambda i: labels[i])
        figure.legend(
            [handles[i] for i in order], [labels[i] for i in order], loc="outside upper left", ncols=4,
            frameon=False, fontsize=9.5, labelcolor=_INK, handletextpad=0.4, columnspacing=1.4,
        )  # fmt: skip
    else:
        axes.set_yticks([])
        axes.text(
            0.5, 0.5, "no candidate was scored", transform=axes.transAxes, ha="center", color=_INK, size=12,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 4},
        )  # fmt: skip


def _draw_names(axes: Axes, data: ParetoFigureData) -> None:
    """Numbers of front members and names of references."""
    labels = [
        Label(text=str(point.number), x=point.latency.latency_ms, y=point.score, is_bold=True) for point in data.front
    ]
    labels += [
        Label(text=point.reference, x=point.latency.latency_ms, y=point.score)
        for point in data.points
        if point.reference
    ]
    markers = [(point.latency.latency_ms, point.score) for point in data.points]
    bars = [(point.latency.latency_ms, point.score_lower, point.score_upper) for point in data.points]
    draw_labels(axes, labels, markers, bars, _INK)
