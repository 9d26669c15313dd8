from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from nas.report.atomic import ReportError, write_atomic
from nas.report.tables import FRONT_COLUMNS, TRIAL_COLUMNS, columns_markdown, front_table, trials_table, write_tables
from nas.trial import Outcome
from tests.nas_tests.report.studies import (
    make_blocked_summary,
    make_hostile_summary,
    make_phased_summary,
    make_summary,
)
from tests.nas_tests.trials import make_cost, make_record

README = Path(__file__).parents[3] / "results" / "README.md"
UNITS = {
    "ms": "_ms",
    "s": "_s",
    "bytes": "_bytes",
    "count": "num_",
    "true or false": "is_",
    "fraction of MACs": "_fraction",
}


def test_the_readme_has_the_columns_of_the_code() -> None:
    text = README.read_text()
    assert columns_markdown(TRIAL_COLUMNS) in text, "run columns_markdown and put its text into results/README.md"
    assert columns_markdown(FRONT_COLUMNS) in text, "run columns_markdown and put its text into results/README.md"


def test_every_quantity_has_its_unit_in_its_name() -> None:
    columns = [(c.name, c.unit) for c in TRIAL_COLUMNS] + [(c.name, c.unit) for c in FRONT_COLUMNS]
    for name, unit in columns:
        if unit in UNITS:
            assert UNITS[unit] in name
        else:
            assert unit in ("text", "number", "that of score_metric", "network output"), name


def test_column_names_are_unique() -> None:
    for names in ([c.name for c in TRIAL_COLUMNS], [c.name for c in FRONT_COLUMNS]):
        assert len(set(names)) == len(names)


def test_predicted_and_measured_latencies_never_share_a_column() -> None:
    records = (make_record(0), make_record(1, Outcome.PREDICTED_OVER_BUDGET, latency_ms=9.0))
    table = trials_table(replace(make_summary(), records=records))
    assert list(table["latency_measured_ms"]) == [2.0, None]
    assert list(table["latency_predicted_ms"]) == [None, 9.0]
    assert list(table["budget_verdict"]) == ["meets", None]


def test_quality_and_infrastructure_never_share_a_column() -> None:
    records = tuple(make_record(trial, outcome) for trial, outcome in enumerate(Outcome))
    table = trials_table(replace(make_summary(), records=records))
    outcomes = table[["quality_outcome", "screening_outcome", "infrastructure_outcome"]]
    assert (outcomes.notna().sum(axis=1) == 1).all()
    assert set(table["infrastructure_outcome"].dropna()) == {o.value for o in Outcome if o.is_infrastructure}
    num_reasons = table[["quality_reason", "infrastructure_reason"]].notna().sum(axis=1)
    assert num_reasons.tolist() == [0] + [1] * (len(Outcome) - 1)


def test_the_tables_survive_csv_with_gaps_and_whole_numbers(tmp_path: Path) -> None:
    summary = make_hostile_summary()
    trials_path, front_path = write_tables(summary, tmp_path)
    trials, front = pd.read_csv(trials_path), pd.read_csv(front_path)
    assert list(trials.columns) == [column.name for column in TRIAL_COLUMNS]
    assert list(front.columns) == [column.name for column in FRONT_COLUMNS]
    assert len(trials) == len(summary.records)
    for (_, row), record in zip(trials.iterrows(), summary.records, strict=True):
        assert row["candidate_id"] == record.candidate.candidate_id
        assert math.isnan(row["val_score"]) if record.score is None else row["val_score"] == record.score.value
    assert ".0," not in ",".join(trials_path.read_text().splitlines()[1].split(",")[:2])
    assert "360.0" not in trials_path.read_text()
    assert trials["infrastructure_reason"].dropna().iloc[-1] == summary.records[-1].error


def test_a_front_row_has_both_runtimes_and_both_scores() -> None:
    summary = make_summary()
    row = front_table(summary).iloc[0]
    member = summary.front[0]
    assert member.onnxruntime is not None
    assert member.test_score is not None
    assert row["latency_ms"] == member.latency.latency_ms
    assert row["onnxruntime_latency_ms"] == member.onnxruntime.latency_ms
    assert row["test_score"] == member.test_score.value != row["val_score"]


def test_an_empty_front_is_a_table_with_headers_only(tmp_path: Path) -> None:
    _, front_path = write_tables(make_blocked_summary(), tmp_path)
    assert front_path.read_text() == ",".join(column.name for column in FRONT_COLUMNS) + "\n"


def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trials.csv"
    write_atomic(path, b"old")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(ReportError, match=r"trials\.csv: cannot be written: No space left on device"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="No such file or directory"):
        write_tables(make_summary(), tmp_path / "absent")


def test_every_budgeted_phase_has_its_columns_and_its_own_numbers() -> None:
    summary = make_phased_summary()
    trials, front = trials_table(summary), front_table(summary)
    further = [name for name in trials.columns if "@" in name]
    assert further == [
        f"prefill@512_latency_{source}{bound}_ms"
        for source in ("measured", "predicted")
        for bound in ("", "_lower", "_upper")
    ]
    for (_, row), record in zip(trials.iterrows(), summary.records, strict=True):
        seen = None if record.cost is None else record.cost.latency("prefill@512")
        is_measured = seen is not None and seen.source == "measured"
        assert row["prefill@512_latency_measured_upper_ms"] == (seen.upper_ms if seen and is_measured else None)
        assert row["prefill@512_latency_predicted_lower_ms"] == (seen.lower_ms if seen and not is_measured else None)
    row, member = front.iloc[0], summary.front[0]
    assert row["phase"] == "decode@512" and row["state_bytes"] == 1 << 16
    assert row["prefill@512_latency_ms"] == pytest.approx(16 * member.latency.latency_ms)
    assert row["prefill@512_onnxruntime_latency_ms"] == pytest.approx(14 * member.latency.latency_ms)


def test_plain_looks_are_named_as_such_and_share_no_column_with_what_was_held_against_a_budget() -> None:
    columns = list(front_table(make_phased_summary()).columns)
    assert {name for name in columns if "256" in name} == {
        f"{phase}_plain_look_latency{bound}_ms"
        for phase in ("decode@256", "prefill@256")
        for bound in ("", "_lower", "_upper")
    }


def test_the_verdict_of_a_candidate_whose_later_phases_were_left_out_is_that_of_the_phase_it_missed() -> None:
    summary = make_phased_summary()
    record = make_record(0, Outcome.OVER_BUDGET, latency_ms=9.0)
    assert record.cost is not None
    cost = replace(record.cost, latencies=(("decode@512", record.cost.latencies[0][1]),))
    over = replace(record, cost=cost)
    unknown = replace(over, outcome=Outcome.DIVERGED)
    table = trials_table(replace(summary, records=(over, replace(unknown, trial=1))))
    assert list(table["budget_verdict"]) == ["misses", None], "in doubt there is none"


def test_a_trial_that_a_rung_stopped_has_its_rungs_and_no_score() -> None:
    summary = make_summary()
    stopped = make_record(99, Outcome.STOPPED_EARLY, num_right=180)
    table = trials_table(replace(summary, records=(*summary.records, stopped)))
    row = table.iloc[-1]
    assert (row["quality_outcome"], row["num_trained_epochs"]) == ("stopped_early", 4)
    assert (row["rungs"], row["rung_times_s"]) == ("2: 0.5 promoted; 4: 0.5 stopped", "1.00; 2.00")
    assert row["val_score"] is None and not row["is_on_front"]
    assert row["budget_verdict"] == "meets"


def test_a_prediction_is_no_verdict_though_the_network_was_trained_on_it() -> None:
    record = make_record(0)
    assert record.cost is not None
    predicted = replace(record, cost=make_cost(2.0, predicted=True))
    table = trials_table(replace(make_summary(), records=(record, replace(predicted, trial=1))))
    assert list(table["budget_verdict"]) == ["meets", None]
    assert list(table["latency_measured_ms"]) == [2.0, None]
