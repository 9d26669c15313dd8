from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from profilers.artifact import Artifact
from profilers.canary import CanaryHistory, CanaryLevel, CanaryReading, SlowSpell
from profilers.enrolment import (
    AaResult,
    Enrolment,
    EnrolmentStore,
    ForeignMeasurementError,
    canary_history,
    with_canaries,
)
from profilers.errors import ProfilerError
from profilers.measurement import SEARCH, Measurement
from profilers.noise import Noise
from profilers.testing import FAKE_DEVICE, FakeProfiler

ARTIFACT = Artifact(
    folder=Path("nowhere"), candidate_id="c", phase="infer", runtime="tvm", target="any", precision="float32",
    num_threads=1, inputs=(), outputs=(), files=(), tuned_coverage=1.0, model_bytes=1,
)  # fmt: skip
LEVEL = CanaryLevel(compute_ms=0.3, bandwidth_ms=0.05, compute_spread=0.001, bandwidth_spread=0.01)
AA = AaResult(num_pairs=40, num_rejected=1, num_false_alarms=2, gap95=0.004, at="2026-11-30T12:00:00+00:00")
SPELL = SlowSpell(since_s=1.8e9, last_s=1.8e9 + 60, levels=(LEVEL,) * 2)
ENROLLED = Enrolment(
    device=FAKE_DEVICE, canaries={4 << 20: (LEVEL,) * 3}, spells={4 << 20: SPELL}, noise=Noise(floor=0.004), aa=AA
)


def test_an_enrolment_survives_json_and_the_store(tmp_path: Path) -> None:
    assert Enrolment.from_json(json.loads(json.dumps(ENROLLED.to_json()))) == ENROLLED
    store = EnrolmentStore(tmp_path / "devices")
    store.save(ENROLLED)
    assert store.load(FAKE_DEVICE) == ENROLLED
    assert store.all() == [ENROLLED]


def test_a_file_from_before_slow_spells_were_kept_is_read(tmp_path: Path) -> None:
    data = ENROLLED.to_json()
    del data["spells"]
    assert Enrolment.from_json(data) == replace(ENROLLED, spells={})


def test_a_slow_spell_goes_on_in_the_next_process_and_ends_there() -> None:
    history = canary_history(ENROLLED, 4 << 20)
    assert (history.levels, history.spell) == ((LEVEL,) * 3, SPELL)
    history.count([CanaryReading(compute_ms=0.3, bandwidth_ms=0.05)] * 4)
    known = with_canaries(ENROLLED, 4 << 20, history)
    assert known.spells == {} and len(known.canaries[4 << 20]) == 4


def test_an_unknown_device_has_cautious_noise_and_no_baseline(tmp_path: Path) -> None:
    known = EnrolmentStore(tmp_path).load(FAKE_DEVICE)
    assert known == Enrolment(device=FAKE_DEVICE)
    assert known.noise.floor is None and known.noise.floor_or_default == 0.01


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1, "device": 3}', "\x00"])
def test_a_damaged_file_is_as_none_at_all(tmp_path: Path, content: str) -> None:
    store = EnrolmentStore(tmp_path)
    store.path(FAKE_DEVICE.fingerprint).write_text(content)
    assert store.load(FAKE_DEVICE) == Enrolment(device=FAKE_DEVICE)
    assert store.all() == []


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("canaries", "compute_ms", "fast"), ("canaries", "compute_ms", None), ("canaries", "bandwidth_spread", 1e9),
        ("canaries", "compute_spread", float("nan")), ("noise", "floor", "x"), ("noise", "floor", -1),
        ("noise", "floor", float("nan")), ("noise", "least_spread", "a"), ("noise", "degrees", -4),
        ("spells", "since_s", -1.0), ("spells", "last_s", "now"), ("spells", "levels", []), ("spells", "levels", None),
        ("aa", "num_pairs", -3), ("aa", "gap95", "wide"), ("aa", "gap95", -0.5),
    ],
)  # fmt: skip
def test_a_file_with_a_number_that_no_run_leaves_is_as_none_at_all(
    tmp_path: Path, part: str, field: str, value: object
) -> None:
    data = json.loads(json.dumps(ENROLLED.to_json()))
    size = str(4 << 20)
    place = {"canaries": data["canaries"][size][0], "spells": data["spells"][size]}.get(part, data[part])
    assert field in place
    place[field] = value
    store = EnrolmentStore(tmp_path)
    store.path(FAKE_DEVICE.fingerprint).write_text(json.dumps(data))
    assert store.load(FAKE_DEVICE) == Enrolment(device=FAKE_DEVICE)
    assert store.all() == []


def test_a_canary_without_levels_is_as_no_file(tmp_path: Path) -> None:
    data = ENROLLED.to_json() | {"canaries": {"4096": []}}
    store = EnrolmentStore(tmp_path)
    store.path(FAKE_DEVICE.fingerprint).write_text(json.dumps(data))
    assert store.all() == []


def test_a_file_under_anothers_name_is_not_believed(tmp_path: Path) -> None:
    store, other = EnrolmentStore(tmp_path), replace(FAKE_DEVICE, cores=(7,))
    store.save(ENROLLED)
    store.path(FAKE_DEVICE.fingerprint).rename(store.path(other.fingerprint))
    assert store.load(other) == Enrolment(device=other)


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    store, stop = EnrolmentStore(tmp_path), threading.Event()
    store.save(ENROLLED)

    def write() -> None:
        while not stop.is_set():
            store.save(with_canaries(ENROLLED, 8 << 20, CanaryHistory((LEVEL,) * 9)))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert all(store.load(FAKE_DEVICE).aa == AA for _ in range(300))
    finally:
        stop.set()
        writer.join()
    assert list(tmp_path.glob("*.tmp")) == []


def test_unknown_forms_are_refused_by_name() -> None:
    with pytest.raises(ProfilerError, match="format 2"):
        Enrolment.from_json(ENROLLED.to_json() | {"format": 2})
    with pytest.raises(ProfilerError, match="enrol again"):
        Enrolment.from_json(ENROLLED.to_json() | {"noise": {"volume": 11}})


def test_a_measurement_of_another_device_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    profiler = FakeProfiler(script=lambda artifact: 1.0)
    store, seen = EnrolmentStore(tmp_path), profiler.measure(ARTIFACT, SEARCH)
    assert isinstance(seen, Measurement)
    store.refuse_foreign(seen, FAKE_DEVICE)
    here = replace(FAKE_DEVICE, facts=(("processor", "another one"),))
    with pytest.raises(ForeignMeasurementError, match="an unknown device"):
        store.refuse_foreign(seen, here)
    store.save(ENROLLED)
    with pytest.raises(ForeignMeasurementError, match="processor: 'another one' here, 'made up' there"):
        store.refuse_foreign(seen, here)
