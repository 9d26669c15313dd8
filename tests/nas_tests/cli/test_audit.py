from __future__ import annotations

import json
from pathlib import Path

from nas.ledger import Ledger
from nas.search.testing import Script, plausible
from search_spaces.candidate import Candidate
from tests.nas_tests.cli.fake_machine import FakeMachine

BUDGET = ("--budget", "50ms", "--sampler", "random", "--trials", "8")


def test_an_audit_trains_a_sample_longer_once_and_the_gate_says_what_it_found(
    machine: FakeMachine, tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    assert machine.nas("search", "--out", folder, *BUDGET).code == 0
    said = machine.nas("audit", folder, "--candidates", "6", "--json")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert found["passed"] and len(found["audit"]["candidates"]) == 6
    assert found["audit"]["cost_share"] == 1 / 8
    assert machine.benches[1].num_calls("train apart") == 6
    assert machine.benches[1].num_calls("train") == 0
    again = json.loads(machine.nas("audit", folder, "--candidates", "6", "--json").out)
    assert machine.benches[2].num_calls("train apart") == 0, "what an audit trained is kept"
    assert again["audit"] == found["audit"]
    gates = json.loads(machine.nas("search", "--out", folder, *BUDGET, "--json").out)["gates"]
    assert gates["proxy"]["passed"] and gates["proxy"]["audited"] == 6


def test_a_proxy_that_ranks_at_random_blocks_publication_from_then_on(machine: FakeMachine, tmp_path: Path) -> None:
    def reversed_when_long(candidate: Candidate) -> Script:
        script = plausible(candidate)
        return Script(look=script.look, num_right=script.num_right, num_right_long=360 - script.num_right)

    machine.script = reversed_when_long
    folder = tmp_path / "study"
    assert machine.nas("search", "--out", folder, *BUDGET).code == 0, "it is not audited yet"
    said = machine.nas("audit", folder)
    assert said.code == 1
    assert "below 0.6" in said.out
    later = machine.nas("search", "--out", folder, *BUDGET)
    assert later.code == 1
    assert later.out.splitlines()[-1].startswith("not published: proxy: Kendall's tau")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["published"] is False and "proxy" in manifest["blocked_because"]


def test_what_cannot_be_audited_is_one_line(machine: FakeMachine, tmp_path: Path) -> None:
    assert "holds no study" in machine.nas("audit", tmp_path).complaint
    (tmp_path / "manifest.json").write_text("{}")
    assert "cannot be read" in machine.nas("audit", tmp_path).complaint


def test_a_story_has_every_stage_and_the_evidence(machine: FakeMachine, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    machine.nas("search", "--out", folder, *BUDGET)
    front = json.loads(machine.nas("search", "--out", folder, *BUDGET, "--json").out)["front"][0]
    said = machine.nas("explain", folder, front["candidate_id"][:8])
    assert said.code == 0, said
    stages = [line.split()[0] for line in said.out.splitlines() if not line.startswith(" ")]
    assert stages[:8] == ["propose", "screen", "compile", "parity", "measure", "budget", "train", "score"]
    assert {"winner", "test"} <= set(stages)
    assert "largest difference to torch 1e-06" in said.out
    assert "within infer=50ms" in said.out
    assert f"val accuracy {front['score']['value']:.3f}" in said.out
    by_number = json.loads(machine.nas("explain", folder, str(front["trial"]), "--json").out)
    assert by_number["candidate_id"] == front["candidate_id"]


def test_the_story_of_a_failure_ends_where_it_failed(machine: FakeMachine, tmp_path: Path) -> None:
    machine.script = lambda candidate: plausible(candidate)
    folder = tmp_path / "study"
    machine.nas("search", "--out", folder, "--budget", "1us", "--trials", "2")
    stages = {each["stage"]: each for each in json.loads(machine.nas("explain", folder, "0", "--json").out)["stages"]}
    assert stages["budget"]["verdict"] == "stopped here"
    assert "over_budget (quality)" in stages["budget"]["evidence"][-1]
    assert stages["train"]["verdict"] == "not reached"
    assert "not in this study" in machine.nas("explain", folder, "zzz").complaint


def test_smoke_and_controls_are_in_the_gates_and_done_once(machine: FakeMachine, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    gates = json.loads(machine.nas("search", "--out", folder, *BUDGET, "--json").out)["gates"]
    assert gates["smoke"]["passed"] and gates["controls"]["passed"] and gates["device"]["passed"]
    assert gates["controls"]["shuffled_inputs"] == 0.1
    machine.nas("search", "--out", folder, *BUDGET)
    with Ledger(f"sqlite:///{folder}/study.db") as ledger:
        assert len(ledger.events("smoke")) == 1
        assert len(ledger.events("controls")) == 1


def test_a_ladder_is_in_the_json_the_table_and_the_story_and_resumes(machine: FakeMachine, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    search = ("search", "--out", folder, *BUDGET, "--trials", "12", "--ladder", "2", "--json")
    found = json.loads(machine.nas(*search).out)
    assert [rung["epochs"] for rung in found["rungs"]] == [1, 2, 4, 8]
    assert found["outcomes"]["stopped_early"] > 0
    assert found["rungs"][-1]["reached"] == found["outcomes"]["scored"]
    rows = (folder / "trials.csv").read_text().splitlines()
    stopped = next(row for row in rows if "stopped_early" in row)
    assert " stopped" in stopped
    told = machine.nas("explain", folder, stopped.split(",")[0])
    assert "rung of 1 epochs: val" in told.out and "stopped by the ladder after" in told.out
    again = json.loads(machine.nas(*search).out)
    assert again["rungs"] == found["rungs"]
    assert machine.benches[-1].num_calls("pause") == 0
    assert "ladder" in machine.nas("search", "--out", folder, *BUDGET).complaint, "another ladder is another study"


def test_a_fast_path_is_in_the_gates_and_compared_once(machine: FakeMachine, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    search = ("search", "--out", folder, *BUDGET, "--fast-path", "bfloat16", "--json")
    gates = json.loads(machine.nas(*search).out)["gates"]
    assert gates["fast_path"]["passed"] and gates["fast_path"]["trained"] == "bfloat16"
    machine.nas(*search)
    assert [bench.num_calls("compare path") for bench in machine.benches] == [1, 0]
    assert json.loads((folder / "manifest.json").read_text())["fast_path"]["name"] == "bfloat16"
