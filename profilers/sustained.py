"""Latency under continuous load: what is left of it once the device has become warm."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from profilers.surroundings import Surroundings, disturbances

WINDOW_S = 1.0
_END_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """About a second of continuous inference.

    Attributes:
        start_s: since the load began.
        num_runs: inferences in it.
        median_ms, p95_ms: of single runs.
        cpu_over_wall: share of the window in which the thread had its processor.
        frequency_mhz: of the first core at its end; None where the kernel does not say.
    """

    start_s: float
    num_runs: int
    median_ms: float
    p95_ms: float
    cpu_over_wall: float
    frequency_mhz: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedLatency:
    """A device's latency over a time of continuous load, no pauses.

    Attributes:
        windows: in order.
        disturbances: what the surroundings said: throttled, frequency moved, swapped, ...
    """

    windows: tuple[Window, ...]
    disturbances: tuple[str, ...]

    @property
    def drift(self) -> float:
        """Relative change of the median from the first to the last tenth of the time, at least a window each."""
        share = max(1, round(_END_SHARE * len(self.windows)))
        first = np.median([window.median_ms for window in self.windows[:share]])
        last = np.median([window.median_ms for window in self.windows[-share:]])
        return float(last / first - 1)

    @property
    def worst_p95_ms(self) -> float:
        """The largest 95th percentile of any window."""
        return max(window.p95_ms for window in self.windows)

    @property
    def disturbed_share(self) -> float:
        """Share of windows in which something else had the processor for more than 3% of the time."""
        return sum(window.cpu_over_wall < 0.97 for window in self.windows) / len(self.windows)

    @property
    def duration_s(self) -> float:
        """From the first window's start to the end of the last, which is about a window long."""
        return self.windows[-1].start_s + WINDOW_S

    def p95_over_time_ms(self, num_parts: int) -> list[float]:
        """The 95th percentile over time: the median of its windows' in each of up to `num_parts` parts."""
        parts = np.array_split([window.p95_ms for window in self.windows], min(num_parts, len(self.windows)))
        return [float(np.median(part)) for part in parts]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SustainedLatency:
        """What the child answered."""
        return cls(
            windows=tuple(Window(**window) for window in data["windows"]), disturbances=tuple(data["disturbances"])
        )


def sustain(job: Mapping[str, Any], seal: Callable[..., str]) -> dict[str, Any]:
    """Entry point for `run_child`: loads, checks and then runs for `job["duration_s"]` without a pause.

    The job is that of `profilers.timing.measure`, with `duration_s`; canaries would be pauses, so
    there are none.
    """
    from profilers.timing import open_sealed

    core = job["cores"][0]
    os.sched_setaffinity(0, job["cores"])
    opened = open_sealed(job, seal)
    looks = [Surroundings.look(core)]
    windows = []
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < job["duration_s"]:
        window, result = _window(opened.session.run, elapsed, core)
        windows.append(window)
        opened.check(result)
        looks.append(Surroundings.look(core))
    return {
        "windows": [asdict(window) for window in windows],
        "disturbances": disturbances(looks),
        "sandbox": opened.sandbox,
    }


def _window(run: Callable[[], object], start_s: float, core: int) -> tuple[Window, object]:
    samples: list[int] = []
    result: object = None
    cpu, start = time.thread_time_ns(), time.perf_counter_ns()
    end = start
    while end - start < WINDOW_S * 1e9 or not samples:
        begin = time.perf_counter_ns()
        result = run()
        end = time.perf_counter_ns()
        samples.append(end - begin)
    share = (time.thread_time_ns() - cpu) / (end - start)
    return summarise_window(samples, start_s, share, Surroundings.look(core).frequency_mhz), result


def summarise_window(
    samples_ns: Sequence[int], start_s: float, cpu_over_wall: float, frequency_mhz: float | None
) -> Window:
    """One window from its single runs.

    >>> summarise_window([1_000_000, 1_000_000, 4_000_000], 0.0, 1.0, None).median_ms
    1.0
    """
    runs_ms = np.asarray(samples_ns) / 1e6
    return Window(
        start_s=round(start_s, 3),
        num_runs=len(samples_ns),
        median_ms=float(np.median(runs_ms)),
        p95_ms=float(np.quantile(runs_ms, 0.95)),
        cpu_over_wall=round(cpu_over_wall, 4),
        frequency_mhz=frequency_mhz,
    )
