"""Picture of single runs: what a median and an interval leave out."""

from __future__ import annotations

import io
from dataclasses import dataclass

from nas.profile.run import ProfileReport
from profilers.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramData:
    """What is drawn for one profile.

    Attributes:
        label: name of the row.
        latencies_ms: single runs (or batch means) of the blocks that count, up to the 99th percentile.
        num_beyond: runs above that.
        latency_ms, lower_ms, upper_ms: median and interval.
        rejected_because: why the number must not be used.
    """

    label: str
    latencies_ms: tuple[float, ...]
    num_beyond: int
    latency_ms: float
    lower_ms: float
    upper_ms: float
    rejected_because: str | None


def histogram_data(report: ProfileReport) -> list[HistogramData]:
    """The rows that have a measurement."""
    return [one_histogram(each.label, each.result) for each in report.profiles if isinstance(each.result, Measurement)]


def one_histogram(label: str, seen: Measurement) -> HistogramData:
    """What is drawn for one measurement."""
    blocks = [block for block in seen.blocks if block.dropped_because is None] or list(seen.blocks)
    runs = sorted(value for block in blocks for value in block.latencies_ms)
    kept = runs[: max(1, round(0.99 * len(runs)))]
    return HistogramData(
        label=label,
        latencies_ms=tuple(kept),
        num_beyond=len(runs) - len(kept),
        latency_ms=seen.latency_ms,
        lower_ms=seen.lower_ms,
        upper_ms=seen.upper_ms,
        rejected_because=seen.rejected_because,
    )


def draw_histograms(rows: list[HistogramData]) -> bytes:
    """One panel a row, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 2.4 * len(rows) + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for panel, row in zip(panels, rows, strict=True):
        panel.hist(row.latencies_ms, bins=80, color="#4a7ab5", linewidth=0)
        panel.axvspan(row.lower_ms, row.upper_ms, color="#d9822b", alpha=0.25, linewidth=0)
        panel.axvline(row.latency_ms, color="#d9822b", linewidth=1.5)
        beyond = f", {row.num_beyond} slower runs not shown" if row.num_beyond else ""
        numbers = f"median {row.latency_ms:.4g} ms, 95% {row.lower_ms:.4g} to {row.upper_ms:.4g}{beyond}"
        rejected = "" if row.rejected_because is None else "REJECTED, no result: "
        title = f"{row.label}\n{rejected}{numbers}"
        panel.set_title(title, fontsize=8, loc="left", color="#a33" if rejected else "black")
        panel.set_ylabel("runs", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("latency of one inference, ms", fontsize=8)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130, metadata={"Software": None})
    return stream.getvalue()
