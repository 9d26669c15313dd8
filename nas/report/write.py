"""Writes everything a person looks at into the results folder: the tables, the picture and the page."""

from __future__ import annotations

from pathlib import Path

from nas.report.atomic import write_atomic
from nas.report.html import report_html
from nas.report.plots import draw_pareto, pareto_figure_data
from nas.report.summary import StudySummary
from nas.report.tables import write_tables


def write_report(summary: StudySummary, folder: Path | None = None) -> Path:
    """Writes `trials.csv`, `front.csv`, `pareto.png` and `report.html`.

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
    write_atomic(folder / "report.html", report_html(summary, picture).encode())
    return folder / "report.html"
