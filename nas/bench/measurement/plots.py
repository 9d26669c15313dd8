"""Pictures of the bench: gaps of A/A pairs, and one run that was rejected."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nas.bench.result import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from profilers.measurement import Measurement

AA_NAME, REJECTED_NAME = "measurement-aa.png", "measurement-rejected.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class AaFigureData:
    """Signed gaps of pairs, in per cent, by model; and how many claimed a difference."""

    gaps_percent: Mapping[str, tuple[float, ...]]
    num_false_alarms: int


def aa_figure_data(rows: Sequence[Mapping[str, Cell]]) -> AaFigureData:
    """What the rows of part `aa` say."""
    valid = [row for row in rows if row["part"] == "aa" and row["rejected_because"] is None]
    gaps: dict[str, list[float]] = {}
    for row in valid:
        gaps.setdefault(str(row["model"]), []).append(100 * (float(row["ratio"] or 0) - 1))
    alarms = sum(not float(row["lower"] or 0) <= 1 <= float(row["upper"] or 0) for row in valid)
    return AaFigureData(gaps_percent={name: tuple(each) for name, each in gaps.items()}, num_false_alarms=alarms)


def draw_aa(data: AaFigureData) -> bytes:
    """Histogram of gaps, one panel a model, as PNG."""
    figure, panels = _figure(len(data.gaps_percent), 2.2)
    for panel, (model, gaps) in zip(panels, sorted(data.gaps_percent.items()), strict=True):
        panel.hist(gaps, bins=40, color="#4a7ab5", linewidth=0)
        panel.axvline(0, color="#777", linewidth=0.8)
        panel.set_title(f"{model}: {len(gaps)} pairs of the same program", fontsize=9, loc="left")
        panel.set_ylabel("pairs", fontsize=8)
    panels[-1].set_xlabel("gap between the two, %", fontsize=8)
    return _png(figure)


def draw_rejected(seen: Measurement) -> bytes:
    """Block by block: latency, processor time, and which blocks were dropped, as PNG."""
    figure, (latencies, shares) = _figure(2, 1.8)
    medians = [sorted(block.latencies_ms)[len(block.latencies_ms) // 2] for block in seen.blocks]
    colours = ["#4a7ab5" if block.dropped_because is None else "#b54a4a" for block in seen.blocks]
    for panel, values, label in (
        (latencies, medians, "block median, ms"),
        (shares, [block.cpu_over_wall for block in seen.blocks], "CPU over wall"),
    ):
        panel.scatter(range(len(values)), values, c=colours, s=18)
        panel.set_ylabel(label, fontsize=8)
    shares.axhline(seen.protocol.min_cpu_over_wall, color="#777", linewidth=0.8, linestyle="--")
    shares.set_xlabel("block, in order; red ones were dropped", fontsize=8)
    reason = (seen.rejected_because or "not rejected").partition(";")[0]
    latencies.set_title(f"rejected: {reason}", fontsize=8, loc="left", wrap=True)
    return _png(figure)


def write_plots(rows: Sequence[Mapping[str, Cell]], rejected: Measurement | None, folder: Path) -> list[Path]:
    """Writes the pictures for which there is something to show."""
    from nas.report.atomic import write_atomic

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    data = aa_figure_data(rows)
    if data.gaps_percent:
        write_atomic(folder / AA_NAME, draw_aa(data))
        written.append(folder / AA_NAME)
    if rejected is not None:
        write_atomic(folder / REJECTED_NAME, draw_rejected(rejected))
        written.append(folder / REJECTED_NAME)
    return written


def _figure(num_panels: int, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, height * num_panels + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(num_panels, 1, squeeze=False)[:, 0])
    for panel in panels:
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130, metadata={"Software": None})
    return stream.getvalue()
