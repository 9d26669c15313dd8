from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import OperationalError

import nas.report.atomic
from nas.cli import main as cli
from nas.ledger import Ledger, Outcome
from nas.search.testing import Script, plausible
from search_spaces.candidate import Candidate
from tests.nas_tests.cli.fake_machine import FakeMachine, Said
from tests.nas_tests.search.small_studies import LARGE_REFERENCES, eventful

BUDGET = ("--budget", "12ms")


def search(machine: FakeMachine, folder: Path, *options: str, trials: int = 3) -> Said:
    return machine.nas("search", "--out", folder, "--trials", str(trials), *options)


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


# A search that goes well


def test_explain_puts_which_choices_mattered_into_the_report(machine: FakeMachine, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    options = ("--budget", "50ms", "--sampler", "random")
    assert search(machine, folder, *options, trials=12).code == 0
    assert "What mattered" not in (folder / "report.html").read_text()
    assert search(machine, folder, *options, "--explain", trials=12).code == 0
    report = (folder / "report.html").read_text()
    assert "What mattered" in report
    assert "stage1.width" in report


def test_explain_says_that_there_are_too_few_trials(machine: FakeMachine, tmp_path: Path) -> None:
    said = search(machine, tmp_path / "study", *BUDGET, "--explain", trials=3)
    assert said.code == 0, said
    assert "too few scored trials to say which choices mattered" in said.err


def test_a_search_ends_with_0_and_a_folder_with_everything_in_it(machine: FakeMachine, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    said = search(machine, folder, *BUDGET)
    assert said.code == 0, said
    assert said.out.splitlines()[-1] == f"report: {folder / 'report.html'}"
    kept = {path.name for path in folder.iterdir()} - {"artifacts", "weights"}
    assert kept == {
        ".lock", "manifest.json", "study.db", "trials.csv", "front.csv", "pareto.png", "report.html", "winners",
    }, "no scratch and no journal is left, so that study.db alone is the study"  # fmt: skip
    front = rows(folder / "front.csv")
    assert {row["candidate_id"] for row in front} == {path.name for path in (folder / "winners").iterdir()}
    for row in front:
        assert row["candidate_id"] in said.out
    assert len(rows(folder / "trials.csv")) == 3
    assert machine.benches[0].is_closed


def test_a_table_in_a_log_of_80_columns_still_names_its_candidates(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = search(machine, tmp_path / "study", *BUDGET)
    for row in rows(tmp_path / "study" / "front.csv"):
        assert row["candidate_id"] in said.out
    none = search(machine, tmp_path / "other", "--budget", "1us")
    assert LARGE_REFERENCES[0].candidate_id in none.out


def test_progress_is_on_stderr_a_line_a_trial(machine: FakeMachine, tmp_path: Path) -> None:
    said = search(machine, tmp_path / "study", *BUDGET)
    lines = [line for line in said.err.splitlines() if line.startswith("trial")]
    assert [line.split()[1] for line in lines] == ["0", "1", "2"]
    assert "trial   0" not in said.out


def test_json_is_one_object_on_stdout_and_nothing_else(machine: FakeMachine, tmp_path: Path) -> None:
    machine.script = eventful
    folder = tmp_path / "study"
    said = search(machine, folder, *BUDGET, "--json", "--accept-failures", "they are made up", trials=12)
    assert said.code == 0, said
    found = json.loads(said.out)
    assert said.out.count("\n") == 1
    keys = {"study", "out", "space", "device", "budgets", "outcomes", "front", "gates", "seconds", "baselines", "rungs"}
    assert set(found) == keys
    assert set(found["outcomes"]) == {outcome.value for outcome in Outcome}
    assert sum(found["outcomes"].values()) == 12
    assert found["budgets"] == [{"metric": "latency_ms", "phase": "infer", "max": 12.0}]
    assert found["front"]
    for member in found["front"]:
        latency = member["metrics"]["latency_ms"]
        assert latency["source"] == "measured"
        assert latency["upper"] <= 12
        assert (member["score"]["split"], member["test_score"]["split"]) == ("val", "test")
    assert all(gate["passed"] for gate in found["gates"].values())
    assert f"report: {folder / 'report.html'}" in said.err


def test_without_a_budget_the_output_says_where_it_comes_from(machine: FakeMachine, tmp_path: Path) -> None:
    said = search(machine, tmp_path / "study", trials=1)
    assert said.code == 0
    assert "no budget was given: infer=" in said.out
    manifest = json.loads((tmp_path / "study" / "manifest.json").read_text())
    assert manifest["budget_note"] in said.out.replace("\n", " ")


def test_the_manifest_of_a_finished_study_is_complete(machine: FakeMachine, tmp_path: Path) -> None:
    search(machine, tmp_path / "study", *BUDGET)
    manifest = json.loads((tmp_path / "study" / "manifest.json").read_text())
    assert set(manifest) == {
        "identity", "config", "device", "task", "versions", "git", "command", "data_findings", "started_at",
        "budgets", "budget_note", "ended_at", "ended_because", "published", "blocked_because", "test_opened_at",
        "failures_accepted", "seeds", "front", "screening", "fast_path",
    }  # fmt: skip
    assert manifest["published"] is True
    assert manifest["ended_because"] == "all 3 trials are done"
    assert manifest["test_opened_at"] is not None
    assert set(manifest["seeds"]) == {"search", "training", "split"}


def test_the_same_command_again_does_no_work_twice(machine: FakeMachine, tmp_path: Path) -> None:
    first = json.loads(search(machine, tmp_path / "study", *BUDGET, "--json").out)
    again = json.loads(search(machine, tmp_path / "study", *BUDGET, "--json").out)
    stages = {stage for stage, _ in machine.benches[1].calls}
    assert stages == {"compile winner", "export"}, "neither trained, nor measured, nor opened test again"
    assert again["front"] == first["front"]
    with Ledger(f"sqlite:///{tmp_path}/study/study.db") as ledger:
        opened = [event.detail["trial"] for event in ledger.events("test_opened")]
    assert sorted(opened) == sorted(member["trial"] for member in first["front"])


# A search that cannot publish


def test_a_budget_nothing_can_meet_ends_with_1_and_shows_what_came_closest(
    machine: FakeMachine, tmp_path: Path
) -> None:
    said = search(machine, tmp_path / "study", "--budget", "1us")
    assert said.code == 1
    assert said.out.splitlines()[-1] == "not published: no network met the budget"
    assert "INFEASIBLE: no network met infer=0.001ms; these came closest" in said.out
    with Ledger(f"sqlite:///{tmp_path}/study/study.db") as ledger:
        records = ledger.records()
    closest = min(records, key=lambda record: record.cost.latencies[0][1].upper_ms)  # type: ignore[union-attr]
    table = said.out[said.out.index("INFEASIBLE") :]
    shown = [table.index(record.candidate.candidate_id) for record in records]
    assert table.index(closest.candidate.candidate_id) == min(shown)
    assert rows(tmp_path / "study" / "front.csv") == []
    assert "nfeasible" in (tmp_path / "study" / "report.html").read_text()
    assert machine.benches[0].num_calls("train") == 0


def test_with_json_the_reason_is_on_stderr_and_stdout_stays_json(machine: FakeMachine, tmp_path: Path) -> None:
    said = search(machine, tmp_path / "study", "--budget", "1us", "--json")
    assert said.code == 1
    assert json.loads(said.out)["front"] == []
    assert said.err.splitlines()[-1] == "not published: no network met the budget"


def broken_reference(candidate: Candidate) -> Script:
    if candidate == LARGE_REFERENCES[1]:
        return Script(compile_failure="TVM said [/tmp/x] and [red]")
    return plausible(candidate)


def test_failures_block_publication_until_someone_accepts_them(machine: FakeMachine, tmp_path: Path) -> None:
    machine.script = broken_reference
    folder = tmp_path / "study"
    blocked = search(machine, folder, *BUDGET)
    assert blocked.code == 1
    assert blocked.out.splitlines()[-1].startswith(
        "not published: infrastructure: 1 of 3 trials failed (first: trial 1"
    )
    assert "TVM said [/tmp/x] and [red]" in blocked.out.replace("\n", " "), "not taken for markup"
    accepted = search(machine, folder, *BUDGET, "--accept-failures", "a known fault")
    assert accepted.code == 0
    assert search(machine, folder, *BUDGET).code == 0, "it stays accepted"


def test_what_was_accepted_does_not_cover_failures_that_come_later(machine: FakeMachine, tmp_path: Path) -> None:
    machine.script = broken_reference
    folder = tmp_path / "study"
    assert search(machine, folder, *BUDGET, "--accept-failures", "a known fault").code == 0
    machine.script = lambda candidate: Script(compile_failure="something else")
    later = search(machine, folder, *BUDGET, trials=4)
    assert later.code == 1
    assert "2 of 4 trials failed" in later.out.splitlines()[-1]


def test_a_winner_that_misses_on_the_second_look_is_named(machine: FakeMachine, tmp_path: Path) -> None:
    lost = LARGE_REFERENCES[0]
    machine.script = lambda candidate: (
        Script(look=1.0, num_right=359, second_looks=(99.0,)) if candidate == lost else plausible(candidate)
    )
    said = search(machine, tmp_path / "study", *BUDGET)
    assert said.code == 0
    assert f"dropped {lost.candidate_id} (trial 0): measured again, it misses: infer=12ms" in said.out
    assert not (tmp_path / "study" / "winners" / lost.candidate_id).exists()


# Stopped, and gone on with


uninterrupted: dict[str, Any] = {}
"""What the search that the next test interrupts would have found; filled when first needed."""


@pytest.mark.parametrize("stage", ["compile", "train", "measure winner"])
def test_ctrl_c_ends_with_130_says_how_to_go_on_and_the_same_command_does(
    machine: FakeMachine, tmp_path: Path, stage: str
) -> None:
    passed: list[str] = []

    def interrupt(name: str, candidate_id: str) -> None:
        passed.append(name)
        if name == stage and passed.count(stage) == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "study"
    machine.on_call = interrupt
    said = search(machine, folder, *BUDGET)
    assert said.code == 130
    assert said.out == ""
    assert said.err.splitlines()[-1] == (
        f"stopped; everything finished is kept in {folder}. Run the same command again to go on."
    )
    assert machine.benches[0].is_closed
    machine.on_call = lambda name, candidate_id: None
    again = search(machine, folder, *BUDGET, "--json")
    assert again.code == 0
    found = json.loads(again.out)
    if not uninterrupted:
        uninterrupted.update(json.loads(search(machine, tmp_path / "whole", *BUDGET, "--json").out))
    assert found["front"] == uninterrupted["front"]
    assert found["outcomes"] == uninterrupted["outcomes"]
    assert list(folder.glob(".finalists-*")) == []


def test_what_a_kill_among_the_winners_left_is_cleared_away(machine: FakeMachine, tmp_path: Path) -> None:
    search(machine, tmp_path / "study", *BUDGET, trials=1)
    (tmp_path / "study" / ".finalists-abc" / "x").mkdir(parents=True)
    search(machine, tmp_path / "study", *BUDGET, trials=1)
    assert list((tmp_path / "study").glob(".finalists-*")) == []


def test_a_bug_ends_with_3_and_keeps_its_traceback(machine: FakeMachine, tmp_path: Path) -> None:
    def bug(stage: str, candidate_id: str) -> None:
        raise ZeroDivisionError("a bug")

    machine.on_call = bug
    said = search(machine, tmp_path / "study", *BUDGET)
    assert said.code == 3
    assert "Traceback" in said.err
    assert said.err.splitlines()[-1] == (
        "nas: unexpected ZeroDivisionError: a bug; this is a bug in nas, please report it"
    )


# Bad input: one line, exit 2, nothing made and nothing lost


BAD_OPTIONS = [
    (["--budget", "5"], "the unit is missing; allowed: us, µs, ms, s"),
    (["--budget", "5parsecs"], "unknown unit 'parsecs'"),
    (["--budget", "decode=5ms"], "the space has no phase 'decode'; it has infer"),
    (["--budget", "5ms", "--budget", "latency=4ms"], "bound the same thing"),
    (["--space", "conv_atention"], "search.space: unknown 'conv_atention' (did you mean conv_attention?)"),
    (["--sampler", "cmaes"], "search.sampler: seen 'cmaes'; allowed: one of budget, tpe, nsga2, gp, random"),
    (
        ["--data", "imagenet"],
        "task.name: unknown 'imagenet' (did you mean image-folder?); allowed: digits, fashion-mnist, npz, image-folder",
    ),
    (["--data", "npz"], "npz"),
    (["--data", "npz", "--data-path", "absent.npz"], "absent.npz"),
    (["--data", "image-folder", "--data-path", "absent"], "absent"),
    (["--data-path", "x.npz"], "path is 'x.npz', which it does not use"),
    (["--trials", "0"], "search.trials: seen 0; allowed: a whole number, at least 1"),
    (["--minutes", "nan"], "search.minutes: seen nan"),
    (["--device", "raspberry"], "device 'raspberry': unknown; allowed: local"),
    (["absent.toml"], "absent.toml: no such file"),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS, ids=[" ".join(case[0]) for case in BAD_OPTIONS])
def test_a_bad_option_is_one_line_and_makes_nothing(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in machine.nas("search", *options).complaint
    assert list(tmp_path.iterdir()) == []


BAD_TOML = [
    ("[search]\ntrial = 5", "search.trial: unknown key (did you mean search.trials?)"),
    ('[search]\ntrials = "many"', "search.trials: seen 'many'; allowed: a whole number, at least 1"),
    ('[search]\nbudgets = ["5"]', "the unit is missing"),
    ("[serach]\ntrials = 5", "serach: unknown key (did you mean search?)"),
    ("[search\ntrials = 5", "not valid TOML"),
    ('[task]\nname = "mnist"', "task.name: unknown 'mnist'"),
    ("search = 5", "search: seen 5; allowed: a section [search]"),
]


@pytest.mark.parametrize(("text", "words"), BAD_TOML, ids=[case[1][:30] for case in BAD_TOML])
def test_a_mistake_in_the_toml_is_one_line_and_makes_nothing(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text(text)
    line = machine.nas("search", "bad.toml").complaint
    assert line.startswith("nas: bad.toml: ")
    assert words in line
    assert [path.name for path in tmp_path.iterdir()] == ["bad.toml"]


@pytest.mark.parametrize("text", ["", "not an archive", "PK\x03\x04 cut short"])
def test_a_corrupt_data_file_is_one_line_and_makes_nothing(machine: FakeMachine, tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.npz").write_text(text)
    said = search(machine, tmp_path / "study", "--data", "npz", "--data-path", str(tmp_path / "bad.npz"))
    assert "bad.npz" in said.complaint
    assert [path.name for path in tmp_path.iterdir()] == ["bad.npz"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/x", "127.0.0.1:1/x"),
        ("sqlite:////absent/folder/study.db", "the folder must exist and be writable"),
        ("mysql://host/db", "database 'mysql' is not supported; allowed: sqlite, postgresql"),
        ("nonsense", "is not a database URL"),
    ],
)
def test_a_storage_that_does_not_answer_is_one_line_and_makes_nothing(
    machine: FakeMachine, tmp_path: Path, url: str, words: str
) -> None:
    line = search(machine, tmp_path / "study", "--storage", url).complaint
    assert words in line
    assert "hunter2" not in line
    assert list(tmp_path.iterdir()) == []
    assert machine.benches == []


def test_a_folder_of_another_study_is_one_line_and_stays_as_it_is(machine: FakeMachine, tmp_path: Path) -> None:
    search(machine, tmp_path / "study", *BUDGET, trials=1)
    before = content(tmp_path / "study")
    line = search(machine, tmp_path / "study", *BUDGET, "--seed", "5").complaint
    assert "holds another study: search.seed: 0 in the folder, 5 now" in line
    assert content(tmp_path / "study") == before
    fresh = search(machine, tmp_path / "study", *BUDGET, "--seed", "5", "--fresh", trials=1)
    assert fresh.code == 0
    (aside,) = tmp_path.glob("study.before-*")
    assert content(aside) == before


def test_a_study_of_another_device_is_refused_and_what_differs_is_named(machine: FakeMachine, tmp_path: Path) -> None:
    search(machine, tmp_path / "study", *BUDGET, trials=1)
    before = content(tmp_path / "study")
    machine.device = replace(machine.device, facts=(("processor", "another"),), num_threads=2)
    line = search(machine, tmp_path / "study", *BUDGET, trials=2).complaint
    assert "measured on another device" in line
    assert "num_threads: 1 then, 2 now; processor: made up then, another now" in line
    assert "onnxruntime" not in line and "target" not in line
    assert len(machine.benches[1].calls) == 0
    after = content(tmp_path / "study")
    assert {name for name in before if before[name] != after[name]} <= {"study.db"}


def test_a_reference_that_gives_no_latency_is_one_line(machine: FakeMachine, tmp_path: Path) -> None:
    machine.script = lambda candidate: Script(compile_failure="no compiler")
    line = search(machine, tmp_path / "study").err.splitlines()[-1]
    assert "smoke gate, reference network 'reference': stage compile: no compiler; likely cause: the compiler" in line


# A full disk


def full(*arguments: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def last_line(said: Said) -> str:
    """What a search that had begun says when it ends with 2: one line after those of its progress."""
    assert said.code == 2
    assert "Traceback" not in said.err
    *progress, line = said.err.splitlines()
    assert not any(each.startswith("nas:") for each in progress)
    return line


def test_a_full_disk_while_a_results_file_is_written_is_one_line(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(nas.report.atomic.os, "fsync", full)
        said = search(machine, tmp_path / "study", *BUDGET, trials=1)
    assert "manifest.json: cannot be written: No space left on device" in last_line(said)
    assert search(machine, tmp_path / "study", *BUDGET, trials=1).code == 0


def test_a_full_disk_while_the_ledger_is_written_is_one_line_and_the_search_goes_on_later(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(stage: str, candidate_id: str) -> None:
        if stage == "train":
            # SQLite's own limit gives the same error as a full disk; it lasts as long as the connection.
            with ledger()._engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA max_page_count=1")

    def ledger() -> Ledger:
        known = machine.benches[-1].ledger
        assert known is not None
        return known

    machine.on_call = fill
    record_stage = Ledger.record_stage
    with monkeypatch.context() as patch:
        # A weight's record of some length, as the last page may have room for a short one.
        patch.setattr(
            Ledger,
            "record_stage",
            lambda self, trial, stage, payload, seconds: record_stage(
                self, trial, stage, {**payload, "more": "x" * 100_000}, seconds
            ),
        )
        said = search(machine, tmp_path / "study", *BUDGET)
    assert "the disk is full; free some space and run the same command again" in last_line(said)
    machine.on_call = lambda stage, candidate_id: None
    assert search(machine, tmp_path / "study", *BUDGET).code == 0


@pytest.mark.parametrize("method", ["set_trial_state_values", "_create_new_trial", "_get_trials"])
def test_a_full_disk_beneath_optuna_is_one_line_and_the_search_goes_on_later(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*arguments: object, **options: object) -> Any:
        error = OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full"))
        if method == "_get_trials":
            raise error
        raise StorageInternalError("An exception is raised during the commit.\nSee docs.") from error

    with monkeypatch.context() as patch:
        patch.setattr(RDBStorage, method, fail)
        said = search(machine, tmp_path / "study", *BUDGET)
    line = last_line(said)
    assert "study.db: Optuna cannot use its tables (database or disk is full); check that the disk has space" in line
    assert search(machine, tmp_path / "study", *BUDGET).code == 0


def test_an_error_of_the_operating_system_names_its_file() -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "results/a/weights.pt")
    assert cli.is_mendable(error)
    assert cli.explain(error).startswith("results/a/weights.pt: No space left on device; ")
