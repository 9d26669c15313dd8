from __future__ import annotations

from nas.report.summary import FrontMember
from nas.search.front_notes import annotate
from nas.training.baselines import Baseline
from tests.nas_tests.trials import make_estimate, make_record


def test_members_that_do_not_beat_the_baseline_beyond_their_interval_are_marked() -> None:
    members = tuple(FrontMember(record=make_record(trial), latency=make_estimate(1.0 + trial)) for trial in range(2))
    score = members[0].val_score
    for value, is_marked in ((score.lower + 1e-6, True), (score.lower - 1e-6, False)):
        baseline = Baseline(name="question only", split="val", value=value)
        noted = annotate(members, {}, None, "maximize", baseline)
        assert any("not better than the baseline (question only" in note for note in noted[0].notes) is is_marked
