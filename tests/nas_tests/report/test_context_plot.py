"""The picture of latency against context length: its data, and that it is drawn."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
from PIL import Image

from nas.report.context_plot import context_figure_data, draw_context
from tests.nas_tests.report.studies import make_phased_summary, make_summary


def test_each_entry_point_is_a_panel_with_a_line_a_winner_the_shortest_context_first() -> None:
    summary = make_phased_summary()
    decode, prefill = context_figure_data(summary)
    assert (decode.entry, prefill.entry) == ("decode", "prefill")
    assert [line.candidate_id for line in decode.lines] == [member.candidate_id for member in summary.front]
    assert [line.number for line in decode.lines] == list(range(1, len(summary.front) + 1))
    for line, member in zip(decode.lines, summary.front, strict=True):
        short, long = line.points
        assert (short.num_tokens, long.num_tokens) == (256, 512)
        assert (short.is_plain_look, long.is_plain_look) == (True, False)
        assert long.latency == member.latency
    assert decode.budgets == ((512, 5.0),)
    assert prefill.budgets == ((512, 120.0),)


def test_phases_without_a_length_have_no_picture() -> None:
    assert context_figure_data(make_summary()) == ()
    assert context_figure_data(replace(make_phased_summary(), front=())) == ()


def _pixels(summary: object) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    png = draw_context(context_figure_data(summary))  # type: ignore[arg-type]
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_the_drawing_shows_every_winner_and_the_intervals() -> None:
    summary = make_phased_summary()
    whole = _pixels(summary)
    fewer = _pixels(replace(summary, front=summary.front[:-1]))
    assert fewer.shape != whole.shape or (fewer != whole).any()
    first = summary.front[0]
    wide = replace(first, latency=replace(first.latency, upper_ms=first.latency.upper_ms * 1.3))
    wider = _pixels(replace(summary, front=(wide, *summary.front[1:])))
    assert (wider != whole).any()


def test_the_same_study_is_the_same_picture() -> None:
    panels = context_figure_data(make_phased_summary())
    assert draw_context(panels) == draw_context(panels)
