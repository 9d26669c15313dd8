"""`nas` with a space of several phases: a whole search from command line to report, and `--phase`."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from nas.search.testing import Script
from search_spaces.candidate import Candidate
from search_spaces.layers import num_macs
from search_spaces.registry import EXAMPLES, SPACES
from search_spaces.space import replay
from tests.nas_tests.cli.fake_machine import FakeMachine, Said
from tests.nas_tests.profile.models import save_model
from tests.nas_tests.search.small_studies import DECODE, PHASED, PREFILL, SHORT, PhasedSpace

BUDGETS = ("--budget", f"{DECODE}=8ms", "--budget", f"{PREFILL}=120ms")


def by_work(candidate: Candidate) -> Script:
    work = num_macs(candidate) / 1e5
    return Script(looks=((DECODE, work), (PREFILL, 15 * work), (SHORT, 0.8 * work)), num_right=250 + int(10 * work))


@pytest.fixture(autouse=True)
def phased(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(SPACES, PhasedSpace.name, PhasedSpace)
    monkeypatch.setitem(EXAMPLES, PhasedSpace.name, EXAMPLES["conv_attention"])
    machine.script = by_work


def search(machine: FakeMachine, folder: Path, *options: str) -> Said:
    return machine.nas("search", "--space", PhasedSpace.name, "--out", folder, "--trials", "8", *options)


def test_a_search_under_two_budgets_publishes_what_meets_both(machine: FakeMachine, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    said = search(machine, folder, *BUDGETS, "--json")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert [(each["phase"], each["max"]) for each in found["budgets"]] == [(DECODE, 8.0), (PREFILL, 120.0)]
    assert found["front"]
    for member in found["front"]:
        latencies = {each["phase"]: each for each in member["metrics"]["latencies"]}
        assert list(latencies) == [DECODE, PREFILL, SHORT]
        assert latencies[DECODE]["upper"] <= 8 and latencies[PREFILL]["upper"] <= 120
        assert [each["is_plain_look"] for each in latencies.values()] == [False, False, True]
        assert member["metrics"]["latency_ms"]["phase"] == DECODE
        assert (folder / "winners" / member["candidate_id"] / PREFILL / "onnxruntime" / "model.onnx").is_file()
    assert (folder / "context.png").is_file()
    report = (folder / "report.html").read_text()
    assert f"TVM {PREFILL}, ms" in report and "<h2>Zoo</h2>" in report
    rows = list(csv.DictReader((folder / "front.csv").read_text().splitlines()))
    assert [row["candidate_id"] for row in rows] == [member["candidate_id"] for member in found["front"]]
    assert all(float(row[f"{PREFILL}_latency_upper_ms"]) <= 120 for row in rows)
    again = json.loads(search(machine, folder, *BUDGETS, "--json").out)
    assert again["front"] == found["front"]
    assert {stage for stage, _ in machine.benches[1].calls} == {"compile winner", "export"}


def test_the_table_has_a_column_for_each_budgeted_phase(machine: FakeMachine, tmp_path: Path) -> None:
    said = search(machine, tmp_path / "study", *BUDGETS)
    header = next(line for line in said.out.splitlines() if line.lstrip().startswith("candidate"))
    assert DECODE in header and PREFILL in header and SHORT not in header
    assert "latencies in ms" in " ".join(said.out.split())
    assert "Zoo: networks of the space" in said.out
    assert "attention_heavy" in said.out
    none = search(machine, tmp_path / "none", "--budget", f"{DECODE}=8ms", "--budget", f"{PREFILL}=1us")
    assert none.code == 1
    assert f"INFEASIBLE: no network met {DECODE}=8ms, {PREFILL}=0.001ms" in none.out
    assert f"{PREFILL}, ms" in none.out


def test_the_zoo_can_be_left_out_and_asked_for_later(machine: FakeMachine, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    search(machine, folder, *BUDGETS, "--no-zoo")
    first = {candidate_id for stage, candidate_id in machine.benches[0].calls if stage == "measure"}
    rows = list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    assert first == {row["candidate_id"] for row in rows}
    assert search(machine, folder, *BUDGETS, "--zoo").code == 0, "the same study"
    later = {candidate_id for stage, candidate_id in machine.benches[1].calls if stage == "measure"}
    names = {replay(PHASED, choices).candidate_id for choices in PHASED.references().values()}
    assert later and later <= names


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", "decode@1024=8ms"), "the space has no phase 'decode@1024'; it has decode@512, prefill@512"),
        (("--budget", "state=64KiB"), "networks of the space 'phased' keep no state between calls"),
    ],
)
def test_a_budget_that_cannot_be_is_one_line_before_anything_is_made(
    machine: FakeMachine, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    assert words in search(machine, tmp_path / "study", *arguments).complaint
    assert not (tmp_path / "study").exists()
    assert machine.benches == []


@pytest.mark.parametrize("command", ["profile", "compile", "tune", "calibrate"])
def test_a_phase_that_a_space_has_not_got_is_one_line_that_lists_them(
    machine: FakeMachine, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "candidate.json"
    path.write_text(json.dumps(PHASED.sample(_First()).to_json()))
    arguments = {
        "profile": (path,),
        "compile": (path, "--target", "rpi5", "--out", tmp_path / "o"),
        "tune": ("--space", PhasedSpace.name),
        "calibrate": ("--space", PhasedSpace.name),
    }[command]
    if command == "compile" and shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("aarch64-linux-gnu-gcc is not installed")
    complaint = machine.nas(command, *arguments, "--phase", "infer").complaint
    assert "phase 'infer' is unknown; allowed: decode@512, prefill@512, decode@256" in complaint


def test_an_onnx_file_has_no_phase_to_choose(machine: FakeMachine, tmp_path: Path) -> None:
    model = save_model(tmp_path / "m.onnx")
    assert "an ONNX file has one entry point; leave out --phase decode@512" in (
        machine.nas("profile", model, "--phase", DECODE).complaint
    )


class _First:
    """Takes the first answer of each question."""

    def choose(self, name: str, options: object) -> object:
        return next(iter(options))  # type: ignore[call-overload]
