from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from nas.report.labels import choose_offset, overlap
from nas.report.plots import draw_pareto, pareto_figure_data
from nas.report.summary import StudySummary
from nas.trial import Outcome
from tests.nas_tests.report.studies import make_blocked_summary, make_hostile_summary, make_summary
from tests.nas_tests.trials import make_record, make_score


def test_the_picture_shows_each_scored_network_once_and_no_other() -> None:
    summary = make_summary()
    again = replace(summary.front[0].record, trial=99, duplicate_of=summary.front[0].record.trial)
    data = pareto_figure_data(replace(summary, records=(*summary.records, again)))
    assert [p.trial for p in data.points] == [r.trial for r in summary.records if r.outcome is Outcome.SCORED]


def test_candidates_without_a_score_are_shown_without_one() -> None:
    summary = make_summary()
    data = pareto_figure_data(summary)
    assert len(data.over_budget_ms) == summary.counts[Outcome.OVER_BUDGET] > 0
    assert len(data.predicted_over_budget_ms) == summary.counts[Outcome.PREDICTED_OVER_BUDGET] > 0


def test_front_members_are_numbered_as_in_the_table_at_the_latency_of_the_second_look() -> None:
    summary = make_summary()
    front = pareto_figure_data(summary).front
    assert [point.number for point in front] == list(range(1, len(summary.front) + 1))
    assert [point.latency for point in front] == [member.latency for member in summary.front]


def test_the_budget_line_is_the_budget_of_the_phase_shown() -> None:
    summary = make_summary()
    assert pareto_figure_data(summary).budget_ms == 5.0
    assert pareto_figure_data(replace(summary, phase="decode@8")).budget_ms is None


def test_the_reference_is_named() -> None:
    summary = make_summary()
    assert [p.trial for p in pareto_figure_data(summary).points if p.reference == "reference"] == [
        summary.references[0][1]
    ]


def _pixels(summary: StudySummary) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.asarray(Image.open(io.BytesIO(draw_pareto(pareto_figure_data(summary)))).convert("RGB"))


def test_the_drawing_changes_with_the_front_the_budget_and_what_was_over_it() -> None:
    summary = make_summary()
    whole = _pixels(summary)
    without = [
        replace(summary, front=()),
        replace(summary, budgets=()),
        replace(summary, records=tuple(r for r in summary.records if r.outcome is not Outcome.OVER_BUDGET)),
    ]
    for changed in without:
        pixels = _pixels(changed)
        assert pixels.shape != whole.shape or (pixels != whole).any()
    blue = np.array([0x00, 0x72, 0xB2])
    assert (whole == blue).all(axis=2).sum() > 500 > (_pixels(without[0]) == blue).all(axis=2).sum()


def test_the_same_study_is_the_same_picture() -> None:
    data = pareto_figure_data(make_summary())
    assert draw_pareto(data) == draw_pareto(data)


@pytest.mark.parametrize("make", [make_blocked_summary, make_hostile_summary])
def test_odd_studies_can_be_drawn(make: object) -> None:
    assert callable(make)
    assert _pixels(make()).std() > 0


def test_a_perfect_score_and_a_study_without_trials_can_be_drawn() -> None:
    summary = make_summary()
    perfect = replace(make_record(0), score=make_score(360))
    assert _pixels(replace(summary, records=(perfect,), front=(), references=())).std() > 0
    assert _pixels(replace(summary, records=(), front=(), budgets=(), references=())).std() > 0


def test_drawing_leaves_the_state_of_pyplot_alone() -> None:
    code = (
        "import sys\n"
        "from nas.report.plots import draw_pareto, pareto_figure_data\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from tests.nas_tests.report.studies import make_summary\n"
        "draw_pareto(pareto_figure_data(make_summary()))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_crosses_a_thin_line_rather_than_going_far_from_its_point() -> None:
    area = (0.0, 0.0, 400.0, 400.0)
    around = [(175.0, 0.0, 225.0, 400.0)]  # every near place crosses it, the far ones do not
    _, (dx, dy) = choose_offset((200.0, 200.0), "12", [], area, 1.0, lines=around)
    assert max(abs(dx), abs(dy)) < 10
    box, _ = choose_offset((200.0, 200.0), "12", around, area, 1.0)
    assert not overlap(box, around[0]), "what must stay readable is another matter"


def test_names_take_free_places_and_stay_inside() -> None:
    area = (0.0, 0.0, 100.0, 100.0)
    taken: list[tuple[float, float, float, float]] = []
    for _ in range(4):
        box, _ = choose_offset((50.0, 50.0), "12", taken, area, 1.0)
        assert not any(overlap(box, other) for other in taken)
        taken.append(box)
    box, (dx, dy) = choose_offset((99.0, 99.0), "12", [], area, 1.0)
    assert (dx < 0, dy < 0) == (True, True)
    assert box[2] <= 100
    assert box[3] <= 100
