"""What can measure an artifact: this machine, an agent on another, a fake in tests."""

from __future__ import annotations

from typing import Protocol

from profilers.artifact import Artifact
from profilers.device import DeviceSpec
from profilers.errors import ProfileFailure
from profilers.measurement import Measurement, MeasureProtocol


class Profiler(Protocol):
    """Measures artifacts on one device."""

    def device(self) -> DeviceSpec:
        """The device as it is now."""
        ...

    def measure(self, artifact: Artifact, protocol: MeasureProtocol) -> Measurement | ProfileFailure:
        """Runs the protocol. Expected failures are returned; only bugs raise."""
        ...
