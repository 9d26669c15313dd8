"""Measures artifacts on this machine, each process of a measurement in a sandboxed child."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from profilers.artifact import Artifact
from profilers.canary import CanaryBaseline, footprint_bytes
from profilers.device import DeviceSpec, local_device
from profilers.enrolment import FOLDER_NAME, EnrolmentStore, canary_history, with_canaries
from profilers.errors import ProfileFailure, ProfilerError
from profilers.host import cache_bytes
from profilers.judge import BASELINE_CONDITION, Gathered, judge, wants_more
from profilers.lock import DeviceBusyError, device_lock, state_folder
from profilers.measurement import Measurement, MeasureProtocol
from profilers.noise import Noise
from profilers.runtimes.runtime import RUNTIMES, find_runtime
from profilers.sandbox import Limits, run_child, thread_environment
from profilers.surroundings import conditions_before, wait_until_quiet
from profilers.sustained import SustainedLatency

_ENTRY = "profilers.timing:measure"
_SUSTAIN_ENTRY = "profilers.sustained:sustain"
_USUAL_L2_BYTES = 1 << 20


class LocalProfiler:
    """A `Profiler` for the machine it runs on.

    One process of a measurement is one fresh child (`profilers.timing`); the device's lock is held
    throughout. A run that comes out rejected is repeated once.
    """

    def __init__(
        self,
        *,
        num_threads: int = 1,
        parity_tolerance: float = 1e-3,
        device_id: str = "local",
        lock_timeout_s: float = 600.0,
        runtimes: Mapping[str, str] = RUNTIMES,
        quiet_timeout_s: float = 10.0,
        folder: Path | None = None,
        on_wait: Callable[[str], None] | None = None,
        learns: bool = True,
        retries: bool = True,
        noise: Noise | None = None,
    ) -> None:
        """Nothing is measured yet.

        Args:
            num_threads: threads that inference uses, one a core.
            parity_tolerance: difference allowed between an output and its reference, per unit of
                `max(1, largest absolute reference value)`.
            device_id: name of this machine, also of its lock.
            lock_timeout_s: how long to wait for another user of the device.
            runtimes: `Artifact.runtime` -> `package.module:Class`.
            quiet_timeout_s: how long to wait, before a run, for other work to leave the cores; then
                it runs all the same, and its own checks decide.
            folder: where the lock lives, and what is known about devices; `profilers.lock.state_folder()`
                when None.
            on_wait: told whom one is waiting for.
            learns: whether the canaries' levels of each run become part of the device's baseline.
            retries: whether a run that comes out rejected is repeated once.
            noise: what intervals allow for; what is stored about the device when None.
        """
        self._device = local_device(num_threads, id=device_id)
        self._parity_tolerance = parity_tolerance
        self._lock_timeout_s = lock_timeout_s
        self._runtimes = runtimes
        self._quiet_timeout_s = quiet_timeout_s
        self._folder = folder
        self._on_wait = on_wait
        self._store = EnrolmentStore((state_folder() if folder is None else folder) / FOLDER_NAME)
        self._learns = learns
        self._retries = retries
        self._noise = noise

    def device(self) -> DeviceSpec:
        """This machine as it is now."""
        return local_device(self._device.num_threads, id=self._device.id)

    def measure(self, artifact: Artifact, protocol: MeasureProtocol) -> Measurement | ProfileFailure:
        """Measures one artifact; see `measure_interleaved`."""
        return self.measure_interleaved([artifact], protocol)[0]

    def change_since(self, artifact: Artifact, measurement: Measurement) -> str | None:
        """How this device has become another one, as its canaries say, since an artifact was measured.

        A latency of a host that clocked lower for an hour, or of a laptop before it became warm, is none of today.

        Returns:
            A text for people; None where nothing changed or nothing is known.
        """
        device = self.device()
        baseline = canary_history(self._store.load(device), self._footprint(artifact, device)).known_baseline()
        then = dict(measurement.conditions).get(BASELINE_CONDITION, "")
        return None if baseline is None else baseline.change_since(then)

    def measure_interleaved(
        self,
        artifacts: Sequence[Artifact],
        protocol: MeasureProtocol,
        *,
        parity_tolerances: Sequence[float] | None = None,
    ) -> list[Measurement | ProfileFailure]:
        """Measures several artifacts in rounds, one fresh process of each a round.

        What drifts over minutes then falls on all of them alike; `statistics.compare` pairs their
        rounds. When one comes out rejected, all are measured once more.

        Args:
            artifacts: in the order of the result.
            protocol: the same for all.
            parity_tolerances: one for each; None is the profiler's own for all.

        Returns:
            For each artifact its measurement, which may carry `rejected_because`, or the failure.
        """
        tolerances = parity_tolerances or [self._parity_tolerance] * len(artifacts)
        try:
            with device_lock(
                self._device.id, timeout_s=self._lock_timeout_s, folder=self._folder, on_wait=self._on_wait
            ):
                results = self._run(artifacts, protocol, tolerances)
                is_rejected = any(isinstance(each, Measurement) and each.rejected_because for each in results)
                if is_rejected and self._retries:
                    results = self._run(artifacts, protocol, tolerances)
                return results
        except DeviceBusyError as error:
            return [ProfileFailure(kind="device_busy", reason=str(error)) for _ in artifacts]

    def _run(
        self, artifacts: Sequence[Artifact], protocol: MeasureProtocol, tolerances: Sequence[float]
    ) -> list[Measurement | ProfileFailure]:
        start, device = time.monotonic(), self.device()
        busy = wait_until_quiet(device.cores, timeout_s=self._quiet_timeout_s)
        before = [*conditions_before(device.cores[0]), ("busy_before", f"{busy:.2f}")]
        known = self._store.load(device)
        noise = known.noise if self._noise is None else self._noise
        gathered = [Gathered(failure=self._refusal(artifact, device)) for artifact in artifacts]
        quiet = [canary_history(known, self._footprint(each, device)).known_baseline() for each in artifacts]
        for round_number in range(protocol.max_blocks):
            going = [i for i, each in enumerate(gathered) if each.failure is None]
            if round_number >= protocol.num_processes and not any(
                wants_more(gathered[i], protocol, noise, quiet[i]) for i in going
            ):
                break
            # There and back, so that what drifts within a round favours nobody.
            for i in going if round_number % 2 == 0 else reversed(going):
                answer = self._process(artifacts[i], protocol, device, tolerances[i], quiet[i])
                if isinstance(answer, ProfileFailure):
                    gathered[i].failure = answer
                else:
                    gathered[i].add(answer)
        duration_s = time.monotonic() - start
        results: list[Measurement | ProfileFailure] = []
        for artifact, each in zip(artifacts, gathered, strict=True):
            if each.failure is not None:
                results.append(each.failure)
                continue
            footprint = self._footprint(artifact, device)
            history = canary_history(known, footprint)
            results.append(judge(each, artifact, device, protocol, history, noise, before, duration_s, time.time()))
            known = with_canaries(known, footprint, history)
        if self._learns:
            self._store.save(known)
        return results

    def _refusal(self, artifact: Artifact, device: DeviceSpec) -> ProfileFailure | None:
        """Why an artifact is not for this device, before a process is spent on it."""
        reason = None
        if artifact.target not in ("any", device.target):
            reason = f"compiled for {artifact.target}, this device is {device.target}; compile it for this device"
        elif artifact.num_threads != device.num_threads:
            reason = f"made for {artifact.num_threads} threads, this profiler uses {device.num_threads}"
        else:
            try:
                find_runtime(artifact.runtime, self._runtimes)
            except ProfilerError as error:
                reason = str(error)
        return None if reason is None else ProfileFailure(kind="bad_artifact", reason=reason)

    def _footprint(self, artifact: Artifact, device: DeviceSpec) -> int:
        return footprint_bytes(
            artifact.model_bytes, cache_bytes(device.cores[0], 2) or _USUAL_L2_BYTES, artifact.activation_bytes
        )

    def sustain(
        self, artifact: Artifact, duration_s: float, protocol: MeasureProtocol, *, parity_tolerance: float | None = None
    ) -> SustainedLatency | ProfileFailure:
        """Runs one artifact for `duration_s` without a pause; see `profilers.sustained`."""
        device = self.device()
        if (refused := self._refusal(artifact, device)) is not None:
            return refused
        tolerance = self._parity_tolerance if parity_tolerance is None else parity_tolerance
        job = {**self._job(artifact, protocol, device, tolerance), "duration_s": duration_s}
        limits = self._limits(replace(protocol, timeout_s=protocol.timeout_s + duration_s), device)
        try:
            with device_lock(
                self._device.id, timeout_s=self._lock_timeout_s, folder=self._folder, on_wait=self._on_wait
            ):
                wait_until_quiet(device.cores, timeout_s=self._quiet_timeout_s)
                environment = thread_environment(device.num_threads)
                answer = run_child(_SUSTAIN_ENTRY, job, limits=limits, environment=environment)
        except DeviceBusyError as error:
            return ProfileFailure(kind="device_busy", reason=str(error))
        return answer if isinstance(answer, ProfileFailure) else SustainedLatency.from_json(answer)

    def _process(
        self,
        artifact: Artifact,
        protocol: MeasureProtocol,
        device: DeviceSpec,
        parity_tolerance: float,
        quiet: CanaryBaseline | None,
    ) -> dict[str, Any] | ProfileFailure:
        limits = None if quiet is None else asdict(quiet.limits())
        return run_child(
            _ENTRY,
            {**self._job(artifact, protocol, device, parity_tolerance), "canary_limits": limits},
            limits=self._limits(protocol, device),
            environment=thread_environment(device.num_threads),
        )

    def _job(
        self, artifact: Artifact, protocol: MeasureProtocol, device: DeviceSpec, parity_tolerance: float
    ) -> dict[str, Any]:
        return {
            "artifact": str(artifact.folder.resolve()),
            "digest": artifact.digest,
            "runtime": find_runtime(artifact.runtime, self._runtimes),
            "cores": list(device.cores),
            "num_threads": device.num_threads,
            "parity_tolerance": parity_tolerance,
            "footprint": self._footprint(artifact, device),
            "protocol": asdict(protocol),
            "started_s": time.monotonic(),
        }

    @staticmethod
    def _limits(protocol: MeasureProtocol, device: DeviceSpec) -> Limits:
        return Limits(
            wall_s=protocol.timeout_s,
            cpu_s=protocol.timeout_s * device.num_threads,
            memory_bytes=protocol.memory_bytes,
        )
