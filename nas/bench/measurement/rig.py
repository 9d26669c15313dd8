"""What the bench measures, and who disturbs it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nas.errors import NasError
from nas.profile.reference_model import CHAIN_LAYERS, WIDE_CHANNELS, make_chain, make_stream
from profilers.artifact import Artifact
from profilers.device import DeviceSpec, local_device
from profilers.enrolment import default_store
from profilers.errors import ProfileFailure
from profilers.local import LocalProfiler
from profilers.measurement import Measurement
from profilers.noise import Noise
from profilers.surroundings import busy_ticks, wait_until_quiet

_START = "import ctypes, os; ctypes.CDLL(None).prctl(1, 9); "  # PR_SET_PDEATHSIG, SIGKILL
_SPIN = "\nwhile True: pass"
_COPY = (
    "\nn = 1 << 27; a, b = ctypes.create_string_buffer(n), ctypes.create_string_buffer(n)"
    "\nwhile True: ctypes.memmove(a, b, n); ctypes.memmove(b, a, n)"
)

_QUIET_TIMEOUT_S = 20.0


@dataclass(slots=True)
class Watch:
    """How many processors everybody else kept busy, on average; 0 until the watch ends."""

    share: float = 0.0
    started_s: float = field(default_factory=time.monotonic)


class RigError(NasError):
    """The bench cannot be run here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """The networks, and profilers that keep what they learn in the bench's own folder.

    Attributes:
        device: this machine, one thread.
        chain, slower: the reference chain, and one with a layer in 33 more.
        wide: a chain that does not fit a private cache.
        stream: mostly memory traffic.
        folder: where profilers keep canary baselines.
        noise: what is stored about this device.
    """

    device: DeviceSpec
    chain: Artifact
    slower: Artifact
    wide: Artifact
    stream: Artifact
    folder: Path
    noise: Noise

    @classmethod
    def build(cls, folder: Path, state: Path) -> Rig:
        """Makes the networks in `folder`, which everybody must be able to read; baselines go to `state`."""
        device = local_device(1)
        return cls(
            device=device,
            chain=make_chain(folder / "chain"),
            slower=make_chain(folder / "slower", CHAIN_LAYERS + 1),
            wide=make_chain(folder / "wide", channels=WIDE_CHANNELS),
            stream=make_stream(folder / "stream"),
            folder=state,
            noise=default_store().load(device).noise,
        )

    def profiler(self, *, learns: bool = True) -> LocalProfiler:
        """A profiler that neither waits for quiet nor repeats: the bench sees every run as it was."""
        return LocalProfiler(quiet_timeout_s=0.0, folder=self.folder, learns=learns, retries=False, noise=self.noise)

    @contextlib.contextmanager
    def watch(self) -> Iterator[Watch]:
        """Waits a while for everybody else to leave, then notes how much they work beside us."""
        every = sorted(os.sched_getaffinity(0))
        wait_until_quiet(every, timeout_s=_QUIET_TIMEOUT_S)
        watch, before = Watch(), _processor_seconds(every)
        yield watch
        (busy, ours), (busy_after, ours_after) = before, _processor_seconds(every)
        wall_s = time.monotonic() - watch.started_s
        watch.share = max(0.0, ((busy_after - busy) - (ours_after - ours)) / wall_s)

    @property
    def other_core(self) -> int | None:
        """A core that inference does not use; None where there is none."""
        others = sorted(os.sched_getaffinity(0) - set(self.device.cores))
        return others[0] if others else None


@contextlib.contextmanager
def busy_process() -> Iterator[None]:
    """One busy process, which the kernel puts where it likes."""
    with _running(_START + _SPIN):
        yield


@contextlib.contextmanager
def core_hog(core: int) -> Iterator[None]:
    """Somebody who computes on this very core."""
    with _running(f"{_START}os.sched_setaffinity(0, {{{core}}}){_SPIN}"):
        yield


@contextlib.contextmanager
def memory_hog(core: int) -> Iterator[None]:
    """Somebody on another core who copies 128 MiB back and forth."""
    with _running(f"{_START}os.sched_setaffinity(0, {{{core}}}){_COPY}"):
        yield


@contextlib.contextmanager
def _running(code: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()


def _processor_seconds(cores: Sequence[int]) -> tuple[float, float]:
    """Processor seconds since boot of everybody on these cores, and of this process with its finished children."""
    ticks, per_second = busy_ticks(), os.sysconf("SC_CLK_TCK")
    used = os.times()
    ours = used.user + used.system + used.children_user + used.children_system
    return sum(ticks[core][0] for core in cores) / per_second, ours


def measured(seen: Measurement | ProfileFailure) -> Measurement:
    """The measurement; a failure is no disturbance, and ends the bench."""
    if isinstance(seen, ProfileFailure):
        raise RigError(f"a reference network could not be measured ({seen.kind}): {seen.reason}")
    return seen
