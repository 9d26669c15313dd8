"""`--finalist-seeds`, `--min-slice`: from the command line to the front."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from tests.nas_tests.cli.fake_machine import FakeMachine

BUDGET = ("--budget", "50ms", "--sampler", "random", "--trials", "6")


def test_finalists_are_trained_with_other_seeds_once_and_have_an_interval_over_them(
    machine: FakeMachine, tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    plain = json.loads(machine.nas("search", "--out", folder, *BUDGET, "--json").out)["front"]
    assert {member["seed_score"] for member in plain} == {None}
    said = machine.nas("search", "--out", folder, *BUDGET, "--finalist-seeds", "3", "--json")
    assert said.code == 0, said
    front = json.loads(said.out)["front"]
    assert machine.benches[1].num_calls("train apart") == 2 * len(front)
    for member in front:
        assert member["seed_score"]["seeds"] == [0, 1, 2]
        assert member["seed_score"]["lower"] < member["score"]["value"] + 0.02
    machine.nas("search", "--out", folder, *BUDGET, "--finalist-seeds", "3")
    assert machine.benches[2].num_calls("train apart") == 0
    with (folder / "front.csv").open() as file:
        assert {row["num_seeds"] for row in csv.DictReader(file)} == {"3"}


def test_ties_are_shown_as_ties(machine: FakeMachine, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    said = machine.nas("search", "--out", folder, *BUDGET, "--json")
    front = json.loads(said.out)["front"]
    assert len(front) > 1 and front[0]["tied_with"] is None
    for index, member in enumerate(front):
        overlapping = [
            each["candidate_id"] for each in front[:index] if each["score"]["upper"] >= member["score"]["lower"]
        ]
        assert member["tied_with"] == (overlapping[0] if overlapping else None)
    assert any(member["tied_with"] for member in front)
    assert "a tie" in (folder / "report.html").read_text()


def test_a_network_whose_worst_slice_is_below_the_constraint_is_dropped_and_named(
    machine: FakeMachine, tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    said = machine.nas("search", "--out", folder, *BUDGET, "--min-slice", "0.8")
    assert said.code == 1, "the made-up scores have no slices: what was not looked at is not met"
    assert "no score by slice, but --min-slice 0.8 was asked for" in said.out.replace("\n", " ")
    assert machine.nas("search", "--out", folder, *BUDGET).code == 0, "the constraint may change"
