"""Writes everything a person looks at into the results folder: the tables, the picture and the page."""

from __future__ import annotations

from pathlib import Path

from nas.report.atomic import write_atomic
from nas.report.context_plot import context_figure_data, draw_context
from nas.report.html import report_html
from nas.report.plots import draw_pareto, pareto_figure_data
from nas.report.summary import StudySummary
from nas.report.tables import write_tables


def write_report(summary: StudySummary, folder: Path | None = None) -> Path:
    """Writes `trials.csv`, `front.csv`, `pareto.png`, `report.html`, and `context.png` where phases have a length.

    Args:
        folder: an existing folder; None writes to the study's own.

    Returns:
        The path of `report.html`, which is written last.

    Raises:
        ReportError: the folder cannot be written; files that were there stay whole.
    """
    folder = folder or summary.out
    write_tables(summary, folder)
    picture = draw_pareto(pareto_figure_data(summary))
    write_atomic(folder / "pareto.png", picture)
    panels = context_figure_data(summary)
    curves = draw_context(panels) if panels else None
    if curves is None:
        (folder / "context.png").unlink(missing_ok=True)  # that of an earlier front
    else:
        write_atomic(folder / "context.png", curves)
    write_atomic(folder / "report.html", report_html(summary, picture, curves).encode())
    return folder / "report.html"
