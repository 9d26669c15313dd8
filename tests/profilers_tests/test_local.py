from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from profilers import local
from profilers.artifact import Artifact, hash_file
from profilers.canary import CanaryHistory
from profilers.device import DeviceSpec
from profilers.enrolment import EnrolmentStore
from profilers.errors import ProfileFailure
from profilers.judge import Gathered, judge
from profilers.local import LocalProfiler
from profilers.lock import device_lock
from profilers.measurement import SEARCH, Measurement, MeasureProtocol
from profilers.noise import UNKNOWN_NOISE
from profilers.profiler import Profiler
from profilers.runtimes.runtime import RUNTIMES
from profilers.statistics import compare
from profilers.testing import FAKE_DEVICE, ProfilerContract

Make = Callable[..., LocalProfiler]
NAUGHTY = "tests.profilers_tests.naughty"


class Remembering:
    """Measures each artifact once, for tests that look at one measurement from several sides."""

    def __init__(self) -> None:
        self.inner: LocalProfiler | None = None
        self.seen: dict[str, Measurement | ProfileFailure] = {}

    def device(self) -> DeviceSpec:
        assert self.inner is not None
        return self.inner.device()

    def measure(self, artifact: Artifact, protocol: MeasureProtocol) -> Measurement | ProfileFailure:
        assert self.inner is not None
        if artifact.digest not in self.seen:
            self.seen[artifact.digest] = self.inner.measure(artifact, protocol)
        return self.seen[artifact.digest]


@pytest.fixture(scope="module")
def remembering() -> Remembering:
    return Remembering()


class RealContract(ProfilerContract):
    @pytest.fixture
    def profiler(self, make_profiler: Make, remembering: Remembering) -> Profiler:
        remembering.inner = make_profiler()
        return remembering

    @pytest.fixture
    def protocol(self, quick: MeasureProtocol) -> MeasureProtocol:
        return quick

    def test_the_outputs_were_compared_and_the_conditions_recorded(
        self, profiler: Profiler, artifact: Artifact, protocol: MeasureProtocol
    ) -> None:
        seen = profiler.measure(artifact, protocol)
        assert isinstance(seen, Measurement)
        assert 0 <= seen.parity_max_abs < 1e-3
        assert {"load_1min", "sandbox", "child_start_s", "canary_baseline_ms"} <= dict(seen.conditions).keys()


class TestLocalProfilerWithTvm(RealContract):
    @pytest.fixture
    def artifact(self, tvm_artifact: Artifact) -> Artifact:
        return tvm_artifact


class TestLocalProfilerWithOnnxRuntime(RealContract):
    @pytest.fixture
    def artifact(self, onnx_artifact: Artifact) -> Artifact:
        return onnx_artifact


class TestLocalProfilerWithARuntimeThatAUserWrote(RealContract):
    """A third runtime is a class of a few lines and a name; it keeps every promise of the others."""

    @pytest.fixture
    def profiler(self, make_profiler: Make, remembering: Remembering) -> Profiler:
        remembering.inner = make_profiler(runtimes={**RUNTIMES, "copy": f"{NAUGHTY}:CopyRuntime"})
        return remembering

    @pytest.fixture
    def artifact(self, onnx_artifact: Artifact) -> Artifact:
        x = np.ones((1, 64), np.float32)
        np.savez(onnx_artifact.folder / "parity.npz", input_0=x, output_0=x)
        files = tuple((name, hash_file(onnx_artifact.folder / name)) for name, _ in onnx_artifact.files)
        artifact = replace(onnx_artifact, runtime="copy", files=files)
        artifact.save()
        return artifact


def failure_of(profiler: LocalProfiler, artifact: Artifact, protocol: MeasureProtocol) -> ProfileFailure:
    seen = profiler.measure(artifact, protocol)
    assert isinstance(seen, ProfileFailure), seen
    return seen


def test_a_library_with_one_flipped_byte_is_refused_before_it_is_loaded(
    make_profiler: Make, quick: MeasureProtocol, onnx_artifact: Artifact
) -> None:
    profiler = make_profiler(runtimes={"onnxruntime": f"{NAUGHTY}:RecordingRuntime"})
    onnx_artifact.folder.chmod(0o777)
    assert failure_of(profiler, onnx_artifact, quick).kind == "crashed"
    trace = onnx_artifact.folder / "loaded"
    assert trace.exists()  # with intact files it does load
    trace.unlink()
    content = bytearray((onnx_artifact.folder / "model.onnx").read_bytes())
    content[-1] ^= 1
    (onnx_artifact.folder / "model.onnx").write_bytes(content)
    failure = failure_of(profiler, onnx_artifact, quick)
    assert failure.kind == "bad_artifact" and "SHA-256" in failure.reason
    assert not trace.exists()


def test_a_manifest_that_was_exchanged_is_refused(
    make_profiler: Make, quick: MeasureProtocol, onnx_artifact: Artifact
) -> None:
    replace(onnx_artifact, candidate_id="another").save()
    failure = failure_of(make_profiler(), onnx_artifact, quick)
    assert failure.kind == "bad_artifact" and "changed" in failure.reason


@pytest.mark.parametrize("runtime", ["tvm", "onnxruntime"])
def test_wrong_outputs_are_found_before_any_timing(
    make_profiler: Make, quick: MeasureProtocol, request: pytest.FixtureRequest, tmp_path: Path, runtime: str
) -> None:
    good: Artifact = request.getfixturevalue({"tvm": "tvm_artifact", "onnxruntime": "onnx_artifact"}[runtime])
    folder = tmp_path / "wrong"
    shutil.copytree(good.folder, folder)
    with np.load(folder / "parity.npz") as arrays:
        changed = {name: arrays[name].copy() for name in arrays.files}
    changed["output_0"][0, 0] += 0.5
    np.savez(folder / "parity.npz", **changed)
    files = tuple((name, hash_file(folder / name)) for name, _ in good.files)
    wrong = replace(good, folder=folder, files=files)
    wrong.save()
    failure = failure_of(make_profiler(), wrong, quick)
    assert failure.kind == "outputs_differ" and "by 0.5" in failure.reason
    seen = make_profiler(parity_tolerance=1.0).measure(wrong, quick)
    assert isinstance(seen, Measurement) and seen.parity_max_abs == pytest.approx(0.5, rel=1e-3)


def test_a_model_that_hangs_is_a_timeout_and_nothing_is_left(
    make_profiler: Make, quick: MeasureProtocol, onnx_artifact: Artifact
) -> None:
    profiler = make_profiler(runtimes={"onnxruntime": f"{NAUGHTY}:LoopRuntime"})
    before = set(psutil.Process().children(recursive=True))  # other tests keep workers for the session
    assert failure_of(profiler, onnx_artifact, replace(quick, timeout_s=1.5)).kind == "timeout"
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_file_that_is_no_model_is_a_crash_that_says_so(
    make_profiler: Make, quick: MeasureProtocol, onnx_artifact: Artifact
) -> None:
    (onnx_artifact.folder / "model.onnx").write_bytes(b"not a model")
    files = tuple((name, hash_file(onnx_artifact.folder / name)) for name, _ in onnx_artifact.files)
    broken = replace(onnx_artifact, files=files)
    broken.save()
    failure = failure_of(make_profiler(), broken, quick)
    assert failure.kind == "crashed" and "model.onnx" in failure.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "a toaster"}, "compiled for a toaster"),
        ({"num_threads": 64}, "64 threads"),
        ({"runtime": "abacus"}, "known: ['onnxruntime', 'tvm']"),
    ],
)
def test_an_artifact_for_something_else_costs_no_process(
    make_profiler: Make,
    quick: MeasureProtocol,
    onnx_artifact: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    words: str,
) -> None:
    monkeypatch.setattr(local, "run_child", lambda *_, **__: pytest.fail("started a child"))
    failure = failure_of(make_profiler(), replace(onnx_artifact, **change), quick)
    assert failure.kind == "bad_artifact" and words in failure.reason


def test_a_busy_device_is_a_failure_that_names_its_user(
    make_profiler: Make, quick: MeasureProtocol, onnx_artifact: Artifact, tmp_path: Path
) -> None:
    with device_lock("local", folder=tmp_path / "state"):
        failure = failure_of(make_profiler(lock_timeout_s=0.0), onnx_artifact, quick)
    assert failure.kind == "device_busy" and "in use by process" in failure.reason


# From here on children are made up: what is tested is what the parent makes of their answers.


def answer(
    *medians_ms: float, cpu: float | Mapping[int, float] = 1.0, canary: Mapping[int, float] | None = None, **more: Any
) -> dict[str, Any]:
    """What a child says: a block for each median; `cpu` and `canary` change single blocks and readings."""
    shares = dict.fromkeys(range(len(medians_ms)), cpu) if isinstance(cpu, float) else cpu
    return {
        "blocks": [
            {"latencies_ms": [value] * 3, "cpu_over_wall": shares.get(i, 1.0)} for i, value in enumerate(medians_ms)
        ],
        "canaries": [
            {"compute_ms": (canary or {}).get(i, 1.0), "bandwidth_ms": 2.0} for i in range(len(medians_ms) + 1)
        ],
        "disturbances": [],
        "first_inference_ms": 9.0,
        "peak_memory_bytes": 1000,
        "parity_max_abs": 0.0,
        "power_mw": None,
        "sandbox": "none",
        "started_s": 0.1,
        **more,
    }


STEADY = (1.0, 1.001, 0.999, 1.0, 1.001, 1.0)


class Children:
    """Gives out prepared answers, and remembers which artifact each was for."""

    def __init__(self, *answers: dict[str, Any] | ProfileFailure, then: dict[str, Any] | None = None) -> None:
        self.answers, self.then = list(answers), then
        self.asked: list[str] = []

    def __call__(self, entry: str, job: Mapping[str, Any], **_: object) -> dict[str, Any] | ProfileFailure:
        self.asked.append(Path(job["artifact"]).name)
        given = self.answers.pop(0) if self.answers else self.then
        assert given is not None, "one child too many"
        return given


def judged(*answers: dict[str, Any], history: CanaryHistory | None = None, at_s: float = 0.0) -> Measurement:
    gathered = Gathered()
    for each in answers:
        gathered.add(each)
    artifact = Artifact(
        folder=Path("nowhere"), candidate_id="c", phase="infer", runtime="tvm", target="any", precision="float32",
        num_threads=1, inputs=(), outputs=(), files=(), tuned_coverage=1.0, model_bytes=1,
    )  # fmt: skip
    seen = judge(gathered, artifact, FAKE_DEVICE, SEARCH, history or CanaryHistory(), UNKNOWN_NOISE, [], 1.0, at_s)
    assert isinstance(seen, Measurement)
    return seen


def test_a_quiet_run_is_accepted() -> None:
    seen = judged(answer(*STEADY), answer(*STEADY))
    assert seen.rejected_because is None
    assert seen.latency_ms == pytest.approx(1.0)
    assert seen.canary_drift == 0.0
    assert [block.process for block in seen.blocks] == [0] * 6 + [1] * 6


def test_too_little_processor_time_rejects_and_the_blocks_stay() -> None:
    seen = judged(answer(*STEADY, cpu={0: 0.9, 1: 0.9}), answer(*STEADY, cpu={2: 0.5}))
    assert seen.rejected_because is not None and "CPU over wall 0.900" in seen.rejected_because
    assert len(seen.blocks) == 12
    assert sum(block.dropped_because is not None for block in seen.blocks) == 3


def test_one_disturbed_block_is_left_out_and_does_not_reject() -> None:
    slow = answer(1.0, 1.0, 8.0, 1.0, 1.0, 1.0, cpu={2: 0.4})
    seen = judged(answer(*STEADY), slow)
    assert seen.rejected_because is None
    assert seen.upper_ms < 1.1
    assert seen.blocks[8].latencies_ms == (8.0, 8.0, 8.0)


def test_a_block_is_dropped_when_a_canary_was_slow_before_or_after_it() -> None:
    seen = judged(answer(*STEADY, canary={3: 1.3, 6: 1.9}), answer(*STEADY))
    dropped = [index for index, block in enumerate(seen.blocks) if block.dropped_because is not None]
    assert dropped == [2, 3, 5]
    assert "compute canary 30.0% slower" in str(seen.blocks[2].dropped_because)
    assert seen.rejected_because is None


def test_energy_is_the_power_for_as_long_as_an_inference_takes_and_absent_without_a_meter() -> None:
    assert judged(answer(*STEADY), answer(*STEADY)).energy_mj is None
    seen = judged(answer(*STEADY, power_mw=15_000.0), answer(*STEADY, power_mw=15_200.0))
    assert seen.energy_mj == pytest.approx(15.1)


def test_a_canary_slow_throughout_is_seen_against_earlier_runs() -> None:
    history = CanaryHistory()
    assert judged(answer(*STEADY), answer(*STEADY), history=history).rejected_because is None
    slow = answer(*STEADY, canary=dict.fromkeys(range(7), 1.3))
    seen = judged(slow, slow, history=history)
    assert seen.rejected_because is not None and "canary" in seen.rejected_because


def test_a_run_counts_by_the_quarter_of_its_blocks_between_quiet_readings() -> None:
    history = CanaryHistory()
    assert judged(answer(*STEADY), history=history).rejected_because is None
    before = history.known_baseline()
    noisy = answer(*[1.0] * 6, *[1.1] * 18, canary=dict.fromkeys(range(7, 25), 1.1))
    seen = judged(noisy, noisy, history=history)
    assert seen.rejected_because is None and seen.latency_ms == 1.0 and seen.upper_ms < 1.05
    assert history.known_baseline() == before, "readings of the disturbance are none of the device"
    worse = answer(*[1.0] * 5, *[1.1] * 19, canary=dict.fromkeys(range(6, 25), 1.1))
    assert "allowed: 75%" in str(judged(worse, worse, history=history).rejected_because)


def test_what_somebody_else_slowed_never_becomes_the_baseline() -> None:
    history = CanaryHistory()
    assert judged(answer(*STEADY), history=history).rejected_because is None
    before = history.known_baseline()
    for number in range(40):
        starved = answer(*STEADY, cpu=0.5, canary=dict.fromkeys(range(7), 1.3))
        assert judged(starved, history=history, at_s=60.0 * number).rejected_because is not None
    assert history.known_baseline() == before and history.spell is None


@pytest.mark.parametrize("reason", ["not steady after 10 s", "core throttled 2 times"])
def test_what_the_child_noticed_rejects(reason: str) -> None:
    assert judged(answer(*STEADY), answer(*STEADY, disturbances=[reason])).rejected_because == reason


def run_with(
    children: Children, make_profiler: Make, monkeypatch: pytest.MonkeyPatch, *artifacts: Artifact
) -> list[Measurement | ProfileFailure]:
    monkeypatch.setattr(local, "run_child", children)
    return make_profiler().measure_interleaved(artifacts, SEARCH)


def test_a_rejected_run_is_repeated_once(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact
) -> None:
    bad, good = answer(*STEADY, cpu=0.5), answer(*STEADY)
    children = Children(bad, bad, good, good)
    [seen] = run_with(children, make_profiler, monkeypatch, onnx_artifact)
    assert isinstance(seen, Measurement) and seen.rejected_because is None
    children = Children(bad, bad, bad, bad)
    [seen] = run_with(children, make_profiler, monkeypatch, onnx_artifact)
    assert isinstance(seen, Measurement) and seen.rejected_because is not None
    assert children.answers == []


def test_how_fast_the_canaries_were_is_remembered_also_by_the_next_profiler(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact
) -> None:
    quiet, slow = answer(*STEADY), answer(*STEADY, canary=dict.fromkeys(range(7), 1.3))
    monkeypatch.setattr(local, "run_child", Children(*[quiet] * 6, then=slow))
    seen = [make_profiler().measure(onnx_artifact, SEARCH) for _ in range(4)]
    reasons = [each.rejected_because for each in seen if isinstance(each, Measurement)]
    assert reasons[:3] == [None] * 3
    assert reasons[3] is not None and "compute canary 30.0% slower" in reasons[3]


def test_a_profiler_that_does_not_learn_leaves_the_baseline_alone(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact
) -> None:
    quiet, slow = answer(*STEADY), answer(*STEADY, canary=dict.fromkeys(range(7), 1.3))
    monkeypatch.setattr(local, "run_child", Children(*[quiet] * 2, then=slow))
    make_profiler().measure(onnx_artifact, SEARCH)
    probing = make_profiler(learns=False, retries=False)
    seen = [probing.measure(onnx_artifact, SEARCH) for _ in range(12)]
    assert all(isinstance(each, Measurement) and each.rejected_because is not None for each in seen)


def test_an_enrolled_floor_widens_every_interval_after_it(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact, tmp_path: Path
) -> None:
    monkeypatch.setattr(local, "run_child", Children(then=answer(*STEADY)))
    profiler = make_profiler()
    before = profiler.measure(onnx_artifact, SEARCH)
    store = EnrolmentStore(tmp_path / "state" / "devices")
    known = store.load(profiler.device())
    store.save(replace(known, noise=replace(known.noise, floor=0.05)))
    after = profiler.measure(onnx_artifact, SEARCH)
    assert isinstance(before, Measurement) and isinstance(after, Measurement)
    assert before.half_width < 0.02 < 0.05 <= after.half_width


def test_processes_are_added_until_the_interval_is_narrow(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact
) -> None:
    wide = answer(1.0, 1.3, 0.9, 1.1, 0.8, 1.2)
    children = Children(wide, wide, then=answer(*STEADY))
    [seen] = run_with(children, make_profiler, monkeypatch, onnx_artifact)
    assert isinstance(seen, Measurement)
    assert seen.half_width <= SEARCH.half_width or len(children.asked) == SEARCH.max_blocks // 6
    assert len(children.asked) > 2
    assert len(seen.blocks) == 6 * len(children.asked) <= SEARCH.max_blocks


def test_a_narrow_interval_needs_no_more_and_a_hopeless_one_stops_at_the_cap(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact
) -> None:
    children = Children(then=answer(*STEADY))
    run_with(children, make_profiler, monkeypatch, onnx_artifact)
    assert len(children.asked) == SEARCH.num_processes
    children = Children(then=answer(1.0, 3.0, 0.5, 2.0, 0.8, 4.0))
    run_with(children, make_profiler, monkeypatch, onnx_artifact)
    assert len(children.asked) == SEARCH.max_blocks // SEARCH.blocks_per_process


def test_a_failure_ends_a_measurement_at_once(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact
) -> None:
    failure = ProfileFailure(kind="crashed", reason="SIGSEGV")
    children = Children(answer(*STEADY), failure)
    assert run_with(children, make_profiler, monkeypatch, onnx_artifact) == [failure]


def test_interleaved_artifacts_take_turns_and_one_that_fails_does_not_stop_the_other(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact, tmp_path: Path
) -> None:
    other = replace(onnx_artifact, folder=tmp_path / "other")
    slower = answer(*(value * 1.2 for value in STEADY))
    children = Children(answer(*STEADY), slower, slower, answer(*STEADY))
    first, second = run_with(children, make_profiler, monkeypatch, onnx_artifact, other)
    assert children.asked == ["onnx_artifact", "other", "other", "onnx_artifact"]
    assert isinstance(first, Measurement) and isinstance(second, Measurement)
    assert compare(first.blocks, second.blocks).verdict == "faster"
    failure = ProfileFailure(kind="timeout", reason="hung")
    children = Children(answer(*STEADY), failure, answer(*STEADY))
    first, second = run_with(children, make_profiler, monkeypatch, onnx_artifact, other)
    assert isinstance(first, Measurement) and second == failure
