from __future__ import annotations

from pathlib import Path

import pytest

from profilers.artifact import Artifact
from profilers.measurement import SEARCH, Measurement, MeasureProtocol
from profilers.testing import FakeProfiler, ProfilerContract


class TestFakeProfiler(ProfilerContract):
    @pytest.fixture
    def profiler(self) -> FakeProfiler:
        return FakeProfiler(script=lambda artifact: 3.0)

    @pytest.fixture
    def artifact(self) -> Artifact:
        return Artifact(
            folder=Path("nowhere"), candidate_id="c", phase="infer", runtime="tvm", target="any", precision="float32",
            num_threads=1, inputs=(), outputs=(), files=(), tuned_coverage=1.0, model_bytes=1,
        )  # fmt: skip

    @pytest.fixture
    def protocol(self) -> MeasureProtocol:
        return SEARCH

    def test_it_finds_about_the_latency_it_was_given(
        self, profiler: FakeProfiler, artifact: Artifact, protocol: MeasureProtocol
    ) -> None:
        seen = profiler.measure(artifact, protocol)
        assert isinstance(seen, Measurement)
        assert seen.latency_ms == pytest.approx(3.0, rel=0.01)
        assert profiler.measure(artifact, protocol) != seen
