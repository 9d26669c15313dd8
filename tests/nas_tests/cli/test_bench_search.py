"""`nas bench search` and `nas bench study-scale`: what they print and write, and what they refuse in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.nas_tests.bench.small_table import write_small_table
from tests.nas_tests.cli.fake_machine import FakeMachine

COLUMNS = ("--architecture", "width", "--architecture", "depth", "--architecture", "kind")
SHORT = ("--method", "random", "--method", "ours", "--seeds", "2", "--evaluations", "25", "--measured", "10")


def test_figures_come_as_json_with_a_table_and_a_picture(machine: FakeMachine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = machine.nas("bench", "search", write_small_table(tmp_path), *COLUMNS, *SHORT, "--json", "--out", out)
    assert said.code == 0, said
    answer = json.loads(said.out)
    assert (answer["bench"], answer["is_quick"]) == ("search", False)
    assert set(answer["figures"]["hv25"]) == {"random", "ours"}
    assert "ours: hypervolume" in said.err
    assert (out / "search.csv").read_text().startswith("problem,method,seed,evaluations,hypervolume,regret")
    assert (out / "search.png").read_bytes().startswith(b"\x89PNG")


def test_a_quick_run_is_short_and_says_that_it_is_coarse(machine: FakeMachine, tmp_path: Path) -> None:
    table = write_small_table(tmp_path)
    said = machine.nas("bench", "search", table, *COLUMNS, "--quick", "--method", "random", "--method", "evolution")
    assert said.code == 0, said
    assert "quick run: these figures are coarse" in said.out
    assert "hv25" in said.out
    assert "hv50" not in said.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone.csv",), "gone.csv: no such file"),
        (("TABLE", "--architecture", "cell"), "no column 'cell'; there are: width, depth, kind"),
        (("TABLE", "--quality", "bleu"), "no column 'bleu'; there are: width, depth, kind"),
        (("TABLE", "--device", "tablet"), "no device 'tablet'; there are: phone"),
        (("TABLE", "--method", "luck"), "method 'luck': unknown; allowed: random, nsga2"),
        (("TABLE", "--quantile", "1.5"), "quantile 1.5"),
        (("TABLE", "--seeds", "0"), "0 seeds"),
        (("TABLE", "--measured", "-1"), "-1 measured"),
        (("TABLE", "--budget-ms", "0.1"), "no architecture is within 0.1 ms on phone"),
    ],
)
def test_bad_input_is_one_line(machine: FakeMachine, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    table = write_small_table(tmp_path)
    columns = () if "--architecture" in arguments else COLUMNS
    short = ("--quick",) if "--method" in arguments else ("--quick", "--method", "random")
    said = machine.nas("bench", "search", *(table if each == "TABLE" else each for each in arguments), *columns, *short)
    assert said.code == 2
    assert message in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_the_scale_of_a_study_is_timed(machine: FakeMachine, tmp_path: Path) -> None:
    said = machine.nas("bench", "study-scale", "--trials", "40", "--json", "--out", tmp_path)
    assert said.code == 0, said
    figures = json.loads(said.out)["figures"]
    assert figures["num_trials"] == 40
    assert {"resume_s", "first_proposal_s", "next_proposal_s", "report_s", "peak_memory_mib"} < set(figures)
    assert (tmp_path / "study-scale.csv").exists()
