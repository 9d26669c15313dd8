from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nas.cli import doctor as command
from nas.compile.database import TuningDatabase
from nas.doctor import checks
from nas.doctor.devices import device_lines, devices_json
from nas.doctor.finding import Finding
from nas.doctor.noise_check import noise_finding
from profilers.aa import Pair
from profilers.canary import CanaryLevel, SlowSpell
from profilers.device import local_device
from profilers.enrolment import AaResult, Enrolment, EnrolmentStore
from profilers.noise import Noise
from profilers.statistics import Comparison
from profilers.testing import FAKE_DEVICE
from tests.nas_tests.cli.fake_machine import FakeMachine

VERSIONS = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1", "onnxruntime": "1.32.0"}


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({}, "good", "apache-tvm 0.27.0.post1"),
        ({"apache-tvm-ffi": "0.1.15.post1"}, "bad", "pip install apache-tvm-ffi==0.1.14.post1"),
        ({"apache-tvm-ffi": "0.1.15.post2"}, "bad", "crashes when tuning"),
        ({"apache-tvm": "0.28.0"}, "warning", "pip install apache-tvm==0.27.0.post1"),
        ({"onnxruntime": None}, "bad", "onnxruntime not installed"),
    ],
)
def test_versions_that_crash_are_named_with_their_cure(change: dict[str, str | None], state: str, words: str) -> None:
    finding = checks.check_versions({**VERSIONS, **change}.get)
    assert (finding.state, words in finding.text) == (state, True), finding


def test_the_pins_are_those_of_this_environment() -> None:
    assert checks.check_versions(checks._installed).state == "good"


@pytest.mark.parametrize(
    ("level", "state"),
    [
        ("limits, no new privileges, user nobody, no processes, no network", "good"),
        ("limits, ROOT (nobody cannot read x), no processes, no network", "warning"),
        ("limits, the user's own account, NO SYSTEM CALL FILTER", "warning"),
    ],
)
def test_what_the_sandbox_lacks_is_a_warning(level: str, state: str) -> None:
    assert checks.sandbox_finding(level).state == state


def test_children_start_and_say_what_they_gave_up() -> None:
    findings = list(checks.check_children())
    assert [each.name for each in findings] == ["child tvm", "child onnxruntime", "sandbox"]
    assert all(each.state != "bad" for each in findings)
    assert all(float(each.figures["start_s"] or 0) > 0 for each in findings[:2])


def test_a_lock_that_does_not_exclude_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path))
    assert checks.check_lock().state == "good"
    assert list((tmp_path / "locks").iterdir()) == []
    monkeypatch.setattr("profilers.lock._try_lock", lambda descriptor: True)
    assert checks.check_lock().state == "bad"


def test_a_damaged_database_is_bad(tmp_path: Path) -> None:
    device = local_device(1)
    assert checks.check_databases(device, tmp_path, None).state == "good"
    assert "not there" in checks.check_databases(device, tmp_path, tmp_path / "no-study").text
    TuningDatabase.for_target(tmp_path, target=device.target, tvm_version="0.27.0.post1").close()
    (path,) = tmp_path.glob("tuning/*/*.db")
    path.write_bytes(b"not a database" * 100)
    assert checks.check_databases(device, tmp_path, None).state == "bad"


def pair(ratio: float, half: float) -> Pair:
    comparison = Comparison(ratio=ratio, lower=ratio - half, upper=ratio + half, verdict="tied")
    return Pair(first=None, second=None, comparison=comparison, rejected_because=None)


def test_a_gate_is_judged_and_a_short_look_only_shown(tmp_path: Path) -> None:
    store, quiet, noisy = EnrolmentStore(tmp_path), [pair(1.001, 0.01)] * 40, [pair(1.02, 0.01)] * 40
    assert noise_finding(quiet, store, FAKE_DEVICE, is_gate=True).state == "good"
    failed = noise_finding(noisy, store, FAKE_DEVICE, is_gate=True)
    assert failed.state == "bad" and "40 false alarms in 40" in failed.text
    assert noise_finding(quiet[:3], store, FAKE_DEVICE, is_gate=True).state == "warning"
    assert "run nas doctor --aa 40" in noise_finding(noisy[:3], store, FAKE_DEVICE, is_gate=False).text


def test_this_machine_and_others_are_listed_with_what_differs(tmp_path: Path) -> None:
    store = EnrolmentStore(tmp_path)
    other = replace(FAKE_DEVICE, facts=(("processor", "older"),))
    aa = AaResult(num_pairs=40, num_rejected=0, num_false_alarms=1, gap95=0.02, at="2026-11-30")
    store.save(Enrolment(device=other, noise=Noise(floor=0.02), aa=aa))
    lines = device_lines(FAKE_DEVICE, store)
    assert FAKE_DEVICE.fingerprint in lines[0]
    assert "processor: 'made up' here, 'older' there" in lines[-1] and "floor 2.00%" in lines[-1]
    answer = devices_json(FAKE_DEVICE, store)
    assert answer["device"]["fingerprint"] == FAKE_DEVICE.fingerprint
    assert [each["fingerprint"] for each in answer["others"]] == [other.fingerprint]
    json.dumps(answer, allow_nan=False)


def test_devices_lists_this_machine(machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path))
    said = machine.nas("devices")
    assert said.code == 0 and local_device(1).fingerprint in said.out
    assert "not enrolled" in said.out
    assert json.loads(machine.nas("devices", "--json").out)["device"]["threads"] == 1


def test_a_failed_check_is_exit_code_one_and_bad_options_are_one_line(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = [Finding(name="a", state="good", text="fine"), Finding(name="b", state="bad", text="mend it")]
    monkeypatch.setattr(checks, "run_checks", lambda **options: [options["show"](each) or each for each in findings])
    said = machine.nas("doctor")
    assert said.code == 1 and said.out.splitlines() == ["ok   a: fine", "BAD  b: mend it"]
    assert json.loads(machine.nas("doctor", "--json").out)["checks"][1]["state"] == "bad"
    assert "--aa 1" in machine.nas("doctor", "--aa", "1").complaint
    assert command.__doc__


def test_a_device_that_has_become_slower_is_a_warning_that_says_since_when() -> None:
    level = CanaryLevel(compute_ms=0.3, bandwidth_ms=0.05, compute_spread=0.001, bandwidth_spread=0.01)
    fine = checks.check_canaries(Enrolment(device=FAKE_DEVICE, canaries={4 << 20: (level,) * 9}))
    assert (fine.state, fine.text) == ("good", "4 MiB: compute 0.300 ms, bandwidth 0.050 ms, 9 runs")
    slower = SlowSpell(since_s=1_764_561_600.0, last_s=1_764_561_700.0, levels=(replace(level, compute_ms=0.36),) * 3)
    known = Enrolment(device=FAKE_DEVICE, canaries={4 << 20: (level,)}, spells={4 << 20: slower})
    slow = checks.check_canaries(known)
    assert slow.state == "warning"
    assert "1 run; 4 MiB slow since 2025-12-01 04:00 UTC (compute 0.360 ms" in slow.text
    assert checks.check_canaries(Enrolment(device=FAKE_DEVICE)).state == "unknown"
