"""The real workbench's patience with a disturbed machine, on a profiler and a clock of the test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nas.budget import parse_budget, resolve_budgets
from nas.search import quiet, workbench
from nas.search.progress import Silent
from nas.search.quiet import MIN_ATTEMPTS, PATIENCE_S, PAUSES_S, QuietPatience
from nas.search.workbench import LocalWorkbench
from profilers.artifact import Artifact
from profilers.canary import LASTING_S
from profilers.errors import ProfileFailure
from profilers.measurement import Measurement, MeasureProtocol
from profilers.testing import FakeClock, FakeProfiler

LOOK_S = 7.0


@dataclass(slots=True)
class Disturbed:
    """A profiler whose first looks are rejected; each says that it took `LOOK_S`, and takes `clock_s` by the clock."""

    clock: FakeClock
    num_rejected: int
    clock_s: float = LOOK_S
    num_looks: int = 0

    def measure(self, artifact: Artifact, protocol: MeasureProtocol) -> Measurement | ProfileFailure:
        self.clock.sleep(self.clock_s)
        self.num_looks += 1
        reason = "a hog" if self.num_looks <= self.num_rejected else None
        seen = FakeProfiler.of({"c": 1.0}).measure(artifact, protocol)
        assert isinstance(seen, Measurement)
        return replace(seen, rejected_because=reason, duration_s=LOOK_S)


def make_bench(monkeypatch: pytest.MonkeyPatch, profiler: Disturbed, budget: str) -> LocalWorkbench:
    """A workbench without processes: only what `measure` uses."""
    monkeypatch.setattr(workbench.time, "monotonic", profiler.clock)
    monkeypatch.setattr(quiet.time, "sleep", profiler.clock.sleep)
    bench = object.__new__(LocalWorkbench)
    bench.budgets = resolve_budgets([parse_budget(budget)], ["infer"])
    bench._watcher = Silent()
    bench._patience = QuietPatience(bench._watcher)
    bench._cached_profiler = profiler  # type: ignore[assignment]
    return bench


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return Artifact(
        folder=tmp_path, candidate_id="c", phase="infer", runtime="tvm", target="llvm", precision="float32",
        num_threads=1, inputs=(), outputs=(), files=(), tuned_coverage=1.0, model_bytes=1,
    )  # fmt: skip


def test_a_rejected_look_and_its_pause_are_part_of_what_a_measurement_took(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler = Disturbed(clock=FakeClock(), num_rejected=1)
    seen, answer = make_bench(monkeypatch, profiler, "5ms").measure(artifact)
    assert isinstance(seen, Measurement) and answer == "meets"
    assert seen.duration_s == 2 * LOOK_S + PAUSES_S[0]


def test_a_measurement_from_the_cache_keeps_what_it_took(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Disturbed(clock=FakeClock(), num_rejected=0, clock_s=0.1)
    seen, _ = make_bench(monkeypatch, profiler, "5ms").measure(artifact)
    assert isinstance(seen, Measurement)
    assert seen.duration_s == LOOK_S


def test_a_machine_that_is_disturbed_for_ten_minutes_costs_waiting_and_no_network(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler = Disturbed(clock=FakeClock(), num_rejected=17)  # of 37 s each, pause and look
    seen, answer = make_bench(monkeypatch, profiler, "5ms").measure(artifact)
    assert isinstance(seen, Measurement) and seen.rejected_because is None and answer == "meets"
    assert LASTING_S < seen.duration_s < PATIENCE_S


def test_patience_is_for_the_search_and_not_anew_for_each_network(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler = Disturbed(clock=FakeClock(), num_rejected=10**6)
    bench = make_bench(monkeypatch, profiler, "5ms")
    bench.measure(artifact)
    assert profiler.clock() > PATIENCE_S
    num_before = profiler.num_looks
    bench.measure(artifact)
    assert profiler.num_looks - num_before == MIN_ATTEMPTS


def test_patience_begins_anew_after_a_good_run(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Disturbed(clock=FakeClock(), num_rejected=4)
    bench = make_bench(monkeypatch, profiler, "5ms")
    bench.measure(artifact)
    profiler.clock.sleep(10 * PATIENCE_S)
    profiler.num_rejected = profiler.num_looks + 4
    seen, _ = bench.measure(artifact)
    assert isinstance(seen, Measurement) and seen.rejected_because is None
