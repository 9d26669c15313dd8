from __future__ import annotations

from dataclasses import replace

from nas.report.summary import FrontMember
from nas.search.front_notes import annotate, without_unlearned
from nas.training.baselines import Baseline
from tests.nas_tests.trials import make_estimate, make_record


def test_members_that_do_not_beat_the_baseline_beyond_their_interval_are_marked() -> None:
    members = tuple(FrontMember(record=make_record(trial), latency=make_estimate(1.0 + trial)) for trial in range(2))
    score = members[0].val_score
    for value, is_marked in ((score.lower + 1e-6, True), (score.lower - 1e-6, False)):
        baseline = Baseline(name="question only", split="val", value=value)
        noted = annotate(members, {}, None, "maximize", baseline)
        assert any("not better than the baseline (question only" in note for note in noted[0].notes) is is_marked


def test_a_network_that_learnt_nothing_is_kept_from_the_front_and_named() -> None:
    records = (make_record(0), make_record(1))
    score = records[0].score
    assert score is not None
    kept, dropped = without_unlearned(records, score.lower - 1e-6, "maximize")
    assert (kept, dropped) == (records, ())
    better = replace(make_record(1), score=replace(score, value=1.0, lower=0.99, upper=1.0))
    kept, dropped = without_unlearned((records[0], better), score.lower + 1e-6, "maximize")
    assert kept == (better,)
    assert [each.trial for each in dropped] == [0]
    assert "an answer that is always the same" in dropped[0].reason


def test_where_no_network_learnt_anything_all_stay_for_the_gate_to_see() -> None:
    records = (make_record(0), make_record(1))
    assert without_unlearned(records, 1.0, "maximize") == (records, ())
