"""Stand-ins and contract tests for profilers: for the tests of everything that measures."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from profilers.artifact import Artifact
from profilers.device import DeviceSpec
from profilers.errors import ProfileFailure
from profilers.measurement import Block, Measurement, MeasureProtocol
from profilers.profiler import Profiler
from profilers.statistics import summarise

FAKE_DEVICE = DeviceSpec(
    id="fake",
    target='{"kind": "llvm"}',
    cores=(0,),
    num_threads=1,
    runtimes=(("onnxruntime", "0"),),
    facts=(("processor", "made up"),),
)


@dataclass(slots=True)
class FakeClock:
    """A clock that moves when told to, or when slept on.

    >>> clock = FakeClock()
    >>> clock.sleep(2.5)
    >>> clock()
    2.5
    """

    now_s: float = 0.0

    def __call__(self) -> float:
        """The time, in s."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Takes no time, and moves the clock."""
        self.now_s += seconds


Script = ProfileFailure | float
"""What a fake profiler does with an artifact: fail, or find this latency in ms."""


@dataclass(slots=True)
class FakeProfiler:
    """A `Profiler` that makes its blocks up: seeded noise about a latency that the test chose.

    Attributes:
        script: what to do with an artifact.
        spread: relative standard deviation of block medians.
        rejected_because: put into every measurement.
        calls: what it was asked to measure.
    """

    script: Callable[[Artifact], Script]
    spread: float = 0.002
    rejected_because: str | None = None
    seed: int = 0
    spec: DeviceSpec = FAKE_DEVICE
    calls: list[tuple[Artifact, MeasureProtocol]] = field(default_factory=list)

    @classmethod
    def of(cls, scripts: Mapping[str, Script]) -> FakeProfiler:
        """Chooses by `Artifact.candidate_id`."""
        return cls(script=lambda artifact: scripts[artifact.candidate_id])

    def device(self) -> DeviceSpec:
        """A made-up device."""
        return self.spec

    def measure(self, artifact: Artifact, protocol: MeasureProtocol) -> Measurement | ProfileFailure:
        """What the script says for this artifact; later calls see other noise."""
        self.calls.append((artifact, protocol))
        script = self.script(artifact)
        if isinstance(script, ProfileFailure):
            return script
        noise = random.Random(f"{self.seed} {artifact.digest} {len(self.calls)}")
        blocks = tuple(
            Block(
                process=process,
                latencies_ms=tuple(script * (1 + shift + abs(noise.gauss(0, self.spread / 4))) for _ in range(20)),
                cpu_over_wall=1.0,
            )
            for process in range(protocol.num_processes)
            for shift in [abs(noise.gauss(0, self.spread)) for _ in range(protocol.blocks_per_process)]
        )
        return Measurement(
            artifact_digest=artifact.digest,
            fingerprint=self.spec.fingerprint,
            protocol=protocol,
            blocks=blocks,
            **asdict(summarise(blocks)),
            first_inference_ms=2 * script,
            peak_memory_bytes=1 << 20,
            parity_max_abs=0.0,
            canary_drift=0.0,
            rejected_because=self.rejected_because,
            duration_s=0.0,
        )


class ProfilerContract:
    """What every profiler promises. A test class derives from it and gives three pytest fixtures.

    `profiler`: the one under test. `artifact`: one it can measure. `protocol`: a quick one.
    On a busy machine a measurement may be rejected; all else must hold then as well.
    """

    def test_a_measurement_belongs_to_its_artifact_device_and_protocol(
        self, profiler: Profiler, artifact: Artifact, protocol: MeasureProtocol
    ) -> None:
        """What a cache keys a measurement by is in it."""
        seen = profiler.measure(artifact, protocol)
        assert isinstance(seen, Measurement), seen
        assert seen.artifact_digest == artifact.digest
        assert seen.fingerprint == profiler.device().fingerprint
        assert seen.protocol == protocol

    def test_a_measurement_is_ordered_and_finite(
        self, profiler: Profiler, artifact: Artifact, protocol: MeasureProtocol
    ) -> None:
        """Interval about the median, minimum below, and no sentinel values."""
        seen = profiler.measure(artifact, protocol)
        assert isinstance(seen, Measurement), seen
        assert 0 < seen.lower_ms <= seen.latency_ms <= seen.upper_ms < float("inf")
        assert 0 < seen.best_ms <= seen.latency_ms
        assert seen.best_ms <= seen.p90_ms
        assert seen.first_inference_ms > 0
        assert seen.peak_memory_bytes >= 0

    def test_blocks_are_raw_and_as_many_as_the_protocol_allows(
        self, profiler: Profiler, artifact: Artifact, protocol: MeasureProtocol
    ) -> None:
        """Every process ran its blocks, and the stop rule kept to its cap."""
        seen = profiler.measure(artifact, protocol)
        assert isinstance(seen, Measurement), seen
        processes = {block.process for block in seen.blocks}
        assert processes == set(range(len(processes)))
        assert len(processes) >= protocol.num_processes
        assert len(seen.blocks) == len(processes) * protocol.blocks_per_process <= protocol.max_blocks
        assert all(block.latencies_ms and min(block.latencies_ms) > 0 for block in seen.blocks)

    def test_a_measurement_survives_json(
        self, profiler: Profiler, artifact: Artifact, protocol: MeasureProtocol
    ) -> None:
        """A cached measurement is the measurement."""
        seen = profiler.measure(artifact, protocol)
        assert isinstance(seen, Measurement), seen
        assert Measurement.from_json(seen.to_json()) == seen

    def test_the_device_is_the_same_when_asked_twice(self, profiler: Profiler) -> None:
        """A fingerprint that moves by itself makes every cached number foreign."""
        assert profiler.device() == profiler.device()
