from __future__ import annotations

import json
from pathlib import Path

import pytest

from profilers.lock import device_lock
from tests.nas_tests.cli.fake_machine import FakeMachine
from tests.nas_tests.profile.models import save_model


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_onnx_file_is_measured_drawn_and_its_blocks_are_kept(machine: FakeMachine, tmp_path: Path) -> None:
    model, plot, raw = save_model(tmp_path / "m.onnx"), tmp_path / "h.png", tmp_path / "raw.json"
    said = machine.nas("profile", model, "--quick", "--json", "--plot", plot, "--blocks", raw)
    row = json.loads(said.out)
    # On a busy machine the number is rejected, and then the exit code says so.
    assert said.code == (0 if row["failure"] is None else 1), said
    assert row["target"] == "m.onnx" and row["runtime"] == "onnxruntime"
    assert 0 < row["latency_ms"]["lower"] <= row["latency_ms"]["value"] <= row["latency_ms"]["upper"]
    assert row["planned_memory_bytes"] > 0 and row["first_inference_ms"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    (measurement,) = json.loads(raw.read_text()).values()
    assert len(measurement["blocks"]) == row["latency_ms"]["blocks"]


def test_two_files_are_compared(machine: FakeMachine, tmp_path: Path) -> None:
    first, second = save_model(tmp_path / "a.onnx"), save_model(tmp_path / "b.onnx", operator="Sigmoid")
    answer = json.loads(machine.nas("profile", "--compare", first, second, "--quick", "--json").out)
    assert [row["target"] for row in answer["profiles"]] == ["a.onnx", "b.onnx"]
    if all(row["failure"] is None for row in answer["profiles"]):
        (pair,) = answer["comparisons"]
        assert pair["lower"] <= pair["ratio"] <= pair["upper"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give either one TARGET or --compare A B"),
        (["m.onnx", "--compare", "m.onnx", "m.onnx"], "give either one TARGET or --compare A B"),
        (["absent.onnx"], "absent.onnx: no such file"),
        (["bad.onnx"], "bad.onnx: not an ONNX model"),
        (["m.onnx", "--threads", "0"], "0 threads on cores"),
        (["m.onnx", "--threads", "4096"], "4096 threads on cores"),
        (["m.onnx", "--runtime", "abacus"], "--runtime 'abacus': unknown; allowed: tvm, onnxruntime"),
        (["m.onnx", "--precision", "int3"], "--precision 'int3': unknown; allowed: float32, int8"),
        (["m.onnx", "--input", "x"], "allowed is NAME:SIZExSIZE"),
        (["m.onnx", "--input", "z:1"], "no input 'z'; its inputs: x"),
        (["m.onnx", "--plot", "no/such/h.png"], "no folder no/such"),
        (["m.onnx", "--sustain", "0"], "--sustain 0: allowed are 1 to 86400 seconds"),
        (["m.onnx", "--wait", "-1"], "--wait must be 0 or more"),
        (["0f5b", "--study", "."], "no study.db and no winners"),
    ],
)
def test_bad_input_is_one_line(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    save_model(Path("m.onnx"))
    Path("bad.onnx").write_text("not a model")
    assert words in machine.nas("profile", *arguments).complaint


def test_a_busy_device_is_a_failure_that_names_its_holder(
    machine: FakeMachine, tmp_path: Path, own_cache: Path
) -> None:
    model = save_model(tmp_path / "m.onnx")
    with device_lock("local", folder=own_cache):
        said = machine.nas("profile", model, "--quick", "--wait", "0")
    assert said.code == 1
    assert "device_busy" in said.out and "in use by process" in said.err.splitlines()[-1]
