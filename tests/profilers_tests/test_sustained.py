from __future__ import annotations

from collections.abc import Callable

import pytest

from profilers.artifact import Artifact
from profilers.errors import ProfileFailure
from profilers.local import LocalProfiler
from profilers.measurement import MeasureProtocol
from profilers.runtimes.runtime import RUNTIMES
from profilers.sustained import SustainedLatency, Window, summarise_window

Make = Callable[..., LocalProfiler]


def window(start_s: float, median_ms: float, p95_ms: float = 2.0, cpu: float = 1.0) -> Window:
    return Window(
        start_s=start_s, num_runs=9, median_ms=median_ms, p95_ms=p95_ms, cpu_over_wall=cpu, frequency_mhz=None
    )


def test_a_device_that_becomes_warm_drifts() -> None:
    windows = tuple(window(float(second), 1.0 if second < 30 else 1.3, p95_ms=2 + second) for second in range(60))
    seen = SustainedLatency(windows=windows, disturbances=())
    assert seen.drift == pytest.approx(0.3)
    assert seen.worst_p95_ms == 61.0
    assert seen.duration_s == 60.0
    assert seen.p95_over_time_ms(3) == [11.5, 31.5, 51.5]
    assert seen.disturbed_share == 0.0


def test_one_window_is_enough_and_does_not_drift() -> None:
    seen = SustainedLatency(windows=(window(0.0, 1.0, cpu=0.5),), disturbances=())
    assert (seen.drift, seen.p95_over_time_ms(10), seen.disturbed_share) == (0.0, [2.0], 1.0)


def test_a_window_has_the_percentiles_of_its_runs() -> None:
    seen = summarise_window([1_000_000] * 90 + [5_000_000] * 10, 3.0, 0.99999, 2400.0)
    assert (seen.num_runs, seen.median_ms, seen.p95_ms) == (100, 1.0, 5.0)


def test_an_artifact_runs_without_a_pause_for_as_long_as_it_was_told(
    make_profiler: Make, quick: MeasureProtocol, onnx_artifact: Artifact
) -> None:
    seen = make_profiler().sustain(onnx_artifact, 1.5, quick)
    assert isinstance(seen, SustainedLatency), seen
    assert len(seen.windows) == 2
    assert all(each.num_runs > 0 and each.median_ms <= each.p95_ms for each in seen.windows)


def test_a_model_that_hangs_under_load_is_a_timeout(
    make_profiler: Make, quick: MeasureProtocol, onnx_artifact: Artifact
) -> None:
    from dataclasses import replace

    profiler = make_profiler(runtimes={**RUNTIMES, "onnxruntime": "tests.profilers_tests.naughty:LoopRuntime"})
    seen = profiler.sustain(onnx_artifact, 0.5, replace(quick, timeout_s=1.0))
    assert isinstance(seen, ProfileFailure) and seen.kind == "timeout"
