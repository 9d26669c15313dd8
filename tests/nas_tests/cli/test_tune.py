from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nas.cli.tune_progress import kernel_line
from nas.compile.database import TuningDatabase, TuningDatabaseError
from nas.compile.kernels import KernelTask
from nas.compile.space_kernels import SpaceKernel
from nas.compile.tune_space import TunedKernel
from nas.compile.tvm import TvmCompiler
from profilers.device import local_device
from tests.nas_tests.cli.fake_machine import FakeMachine
from tests.nas_tests.compile.test_records_file import make_record


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuningDatabase:
    import importlib.metadata

    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path / "cache"))
    version = importlib.metadata.version("apache-tvm")
    return TuningDatabase.for_target(tmp_path / "cache", target=local_device(1).target, tvm_version=version)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--trials", "0"], "nothing would be tuned; allowed: at least 1"),
        (["--minutes", "0"], "nothing would be tuned; allowed: above 0"),
        (["--minutes", "-1"], "nothing would be tuned; allowed: above 0"),
        (["--minutes", "nan"], "nothing would be tuned; allowed: above 0"),
        (["--device", "rpi5"], "cannot be tuned on from here; allowed: local"),
        (["--space", "nope"], "space 'nope' is unknown; known: ['conv_attention'"),
        (["--threads", "1000"], "allowed: 1 to"),
        (["--threads", "none"], "allowed: 1 to"),
        (["--input", "1x2x2"], "image is 1x2x2"),
        (["--classes", "1"], "1 classes"),
        (["--import", "/nowhere/records"], "No such file"),
    ],
)
def test_bad_input_is_a_usage_error_that_says_what_is_allowed(
    machine: FakeMachine, database: TuningDatabase, arguments: list[str], named: str
) -> None:
    said = machine.nas("tune", *arguments)
    assert said.code == 2
    assert named in said.err
    assert said.out == ""


def test_records_are_exported_and_imported_without_tuning(
    machine: FakeMachine, database: TuningDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [make_record(number) for number in range(3)]
    for record in records:
        database.put(record)
    path = tmp_path / "records.jsonl"
    said = machine.nas("tune", "--export", path, "--json")
    assert said.code == 0
    assert json.loads(said.out)["export"] == {"file": str(path), "records": 3}
    assert "space" not in json.loads(said.out)
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path / "other"))
    taken = json.loads(machine.nas("tune", "--import", path, "--json").out)
    assert taken["import"] == {"file": str(path), "records": 3, "taken": 3}
    assert taken["database"] != str(database.path)


def test_an_interrupt_before_the_first_kernel_is_one_line_and_130(
    machine: FakeMachine, database: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TvmCompiler, "plan", interrupted)
    said = machine.nas("tune", "--trials", "1")
    assert (said.code, said.out) == (130, "")
    assert "Run the same command again" in said.err


def test_a_full_disk_at_the_end_costs_nothing_that_was_done(
    machine: FakeMachine, database: TuningDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.put(make_record(1))

    def full(self: TuningDatabase) -> None:
        raise TuningDatabaseError("disk is full")

    monkeypatch.setattr(TuningDatabase, "compact", full)
    said = machine.nas("tune", "--export", tmp_path / "records", "--json")
    assert said.code == 2 and "disk is full" in said.err
    assert json.loads(said.out)["export"]["records"] == 1


def test_exporting_nothing_is_one_line(machine: FakeMachine, database: TuningDatabase, tmp_path: Path) -> None:
    assert "no records to export" in machine.nas("tune", "--export", tmp_path / "none").complaint


def test_each_number_of_threads_has_a_database_of_its_own(machine: FakeMachine, database: TuningDatabase) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    database.put(make_record(1))
    assert "no records" in machine.nas("tune", "--threads", "all", "--export", database.path.parent / "x").complaint


def test_retrying_forgets_the_failures(machine: FakeMachine, database: TuningDatabase, tmp_path: Path) -> None:
    database.put(make_record(1))
    database.put_failure("f" * 24, "n", 4)
    said = machine.nas("tune", "--retry-failed", "--export", tmp_path / "x")
    assert "1 kernels that failed are tried again" in said.err
    assert database.failures(["f" * 24]) == {}


def test_a_kernels_line_says_what_was_gained() -> None:
    task = KernelTask(key="k", name="conv", num_uses=1, num_operations=1.0, is_heavy=True, workload_json="")
    kernel = SpaceKernel(task=task, work_share=0.051)
    lines = [
        kernel_line(TunedKernel(kernel=kernel, before_s=before, after_s=after))
        for before, after in ((None, 2e-6), (3e-6, 2e-6), (None, None))
    ]
    assert all(" 5.1% of the work" in line and line.endswith("conv") for line in lines)
    assert ["was 3.0 us" in line for line in lines] == [False, True, False]
    assert "no schedule works" in lines[2]
