from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given

from nas.trial import CandidateCost, Outcome, PredictedAmount, TrialRecord
from tests.nas_tests.trials import make_candidate, make_record, records


@given(records())
def test_a_trial_survives_json(record: TrialRecord) -> None:
    assert TrialRecord.from_json(json.loads(json.dumps(record.to_json(), allow_nan=False))) == record


def test_every_field_of_a_trial_is_in_its_json() -> None:
    record = make_record(1, Outcome.STOPPED_EARLY)  # `rungs` is left out where there are none
    assert set(record.to_json()) == {field.name for field in dataclasses.fields(record)}
    assert record.cost is not None
    guess = PredictedAmount(metric="model_bytes", value=2e6, lower=1e6, upper=3e6)  # left out where there are none
    cost = dataclasses.replace(record.cost, predicted_amounts=(guess,))
    assert set(cost.to_json()) == {field.name for field in dataclasses.fields(cost)}
    assert CandidateCost.from_json(json.loads(json.dumps(cost.to_json()))) == cost


@pytest.mark.parametrize("change", [{"surprise": 1}, {"outcome": "splendid"}, {"score": None}])
def test_json_that_is_no_trial_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        TrialRecord.from_json({**make_record(1).to_json(), **change})


def test_a_trial_without_score_cannot_look_scored() -> None:
    with pytest.raises(ValueError, match="only scored has one"):
        TrialRecord(trial=0, candidate=make_candidate(), outcome=Outcome.SCORED)


def test_every_outcome_is_quality_screening_or_infrastructure() -> None:
    kinds = {outcome: outcome.kind for outcome in Outcome}
    assert sorted(outcome for outcome in kinds if kinds[outcome] == "infrastructure") == [
        "compile_failed", "parity_failed", "profile_failed", "train_failed",
    ]  # fmt: skip
    assert [outcome for outcome in kinds if kinds[outcome] == "screening"] == ["predicted_over_budget"]
