from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from profilers.artifact import MANIFEST_NAME, Artifact, ArtifactError
from profilers.cache import CachingProfiler
from profilers.measurement import SEARCH, Measurement
from profilers.testing import FakeProfiler


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    made = Artifact(
        folder=tmp_path / "artifact", candidate_id="c", phase="infer", runtime="tvm", target="t", precision="float32",
        num_threads=1, inputs=(), outputs=(), files=(), tuned_coverage=1.0, model_bytes=1,
    )  # fmt: skip
    made.folder.mkdir()
    made.save()
    return made


@pytest.fixture
def device() -> FakeProfiler:
    return FakeProfiler.of({"c": 2.0})


def test_the_same_question_is_asked_of_the_device_once(
    artifact: Artifact, device: FakeProfiler, tmp_path: Path
) -> None:
    cached = CachingProfiler(device, tmp_path / "cache")
    first, again = cached.measure(artifact, SEARCH), cached.measure(artifact, SEARCH)
    assert first == again
    assert len(device.calls) == 1


def test_another_protocol_or_artifact_is_another_question(
    artifact: Artifact, device: FakeProfiler, tmp_path: Path
) -> None:
    cached = CachingProfiler(device, tmp_path / "cache")
    cached.measure(artifact, SEARCH)
    cached.measure(artifact, replace(SEARCH, num_processes=4))
    cached.measure(replace(artifact, model_bytes=2), SEARCH)
    assert len(device.calls) == 3


def test_what_was_measured_before_the_device_changed_is_measured_again(
    artifact: Artifact, device: FakeProfiler, tmp_path: Path
) -> None:
    changes = iter([None, "compute canary 0.32 ms, 0.36 ms when it was measured"])
    cached = CachingProfiler(device, tmp_path / "cache", lambda artifact, seen: next(changes))
    for _ in range(3):
        cached.measure(artifact, SEARCH)
    assert len(device.calls) == 2


def test_a_rejected_measurement_is_not_kept(artifact: Artifact, device: FakeProfiler, tmp_path: Path) -> None:
    device.rejected_because = "noise"
    cached = CachingProfiler(device, tmp_path / "cache")
    cached.measure(artifact, SEARCH)
    cached.measure(artifact, SEARCH)
    assert len(device.calls) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"latency_ms": 0.001, "lower_ms": 0.001},
        {"latency_ms": "x"},
        {"upper_ms": -1.0},
        {"blocks": []},
        {"blocks": None},
    ],
)
def test_an_edited_measurement_is_measured_again(
    artifact: Artifact, device: FakeProfiler, tmp_path: Path, change: dict[str, object]
) -> None:
    cached = CachingProfiler(device, tmp_path / "cache")
    cached.measure(artifact, SEARCH)
    (file,) = (tmp_path / "cache").iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    seen = cached.measure(artifact, SEARCH)
    assert isinstance(seen, Measurement)
    assert seen.latency_ms == pytest.approx(2.0, rel=0.05)
    assert len(device.calls) == 2


def test_a_measurement_of_another_device_is_no_evidence_whatever_its_file_is_called(
    artifact: Artifact, device: FakeProfiler, tmp_path: Path
) -> None:
    cached = CachingProfiler(device, tmp_path / "cache")
    cached.measure(artifact, SEARCH)
    (path,) = (tmp_path / "cache").iterdir()
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"fingerprint": "0123456789abcdef"}))
    seen = cached.measure(artifact, SEARCH)
    assert isinstance(seen, Measurement) and seen.fingerprint == device.device().fingerprint
    assert len(device.calls) == 2


@pytest.mark.parametrize(
    "change", [{"files": None}, {"files": ["a"]}, {"inputs": [1]}, {"inputs": None}, {"format": 9}]
)
def test_a_damaged_artifact_manifest_is_one_line(artifact: Artifact, change: dict[str, object]) -> None:
    path = artifact.folder / MANIFEST_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ArtifactError) as caught:
        Artifact.load(artifact.folder)
    assert "\n" not in str(caught.value)
