"""Remembers measurements by artifact, protocol and fingerprint, across studies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from profilers.artifact import Artifact
from profilers.device import DeviceSpec
from profilers.errors import ProfileFailure, ProfilerError
from profilers.json_file import write_json
from profilers.measurement import Measurement, MeasureProtocol
from profilers.profiler import Profiler
from profilers.statistics import summarise


class CachingProfiler:
    """A `Profiler` that measures the same artifact with the same protocol on the same device once.

    Rejected measurements and failures are not kept: another time may be quieter.
    """

    def __init__(
        self,
        profiler: Profiler,
        folder: Path,
        change_since: Callable[[Artifact, Measurement], str | None] = lambda artifact, measurement: None,
    ) -> None:
        """Keeps one file a measurement in `folder`, which may be shared by several processes.

        Args:
            profiler: measures what is not remembered.
            folder: of the files.
            change_since: how the device has changed since a measurement; what it no longer is says nothing.
        """
        self._profiler = profiler
        self._folder = folder
        self._change_since = change_since

    def device(self) -> DeviceSpec:
        """The device behind it."""
        return self._profiler.device()

    def measure(self, artifact: Artifact, protocol: MeasureProtocol) -> Measurement | ProfileFailure:
        """The remembered measurement, or a new one."""
        key = json.dumps([artifact.digest, asdict(protocol), self.device().fingerprint], sort_keys=True)
        path = self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
        known = _read(path)
        # A file that was copied here from another machine is no evidence, whatever its name.
        is_ours = known is not None and known.fingerprint == self.device().fingerprint
        is_of_it = known is not None and is_ours and known.artifact_digest == artifact.digest
        if known is not None and is_of_it and self._change_since(artifact, known) is None:
            return known
        seen = self._profiler.measure(artifact, protocol)
        if isinstance(seen, Measurement) and seen.rejected_because is None:
            _write(path, seen)
        return seen


def _read(path: Path) -> Measurement | None:
    try:
        known = Measurement.from_json(json.loads(path.read_text()))
        # The number must follow from the raw blocks beside it: an edited file is measured again.
        seen = summarise(known.blocks).latency_ms
        is_sound = abs(seen - known.latency_ms) <= 1e-9 * seen and 0 < known.lower_ms <= seen <= known.upper_ms
        return known if is_sound else None
    except (OSError, ValueError, TypeError, RecursionError, ProfilerError):  # absent, torn, another version
        return None


def _write(path: Path, measurement: Measurement) -> None:
    write_json(path, measurement.to_json())
