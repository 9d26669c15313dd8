"""The peaks of this machine, measured while nobody else has it."""

from __future__ import annotations

from collections.abc import Callable

from nas.errors import NasError
from profilers.device import local_device
from profilers.errors import ProfileFailure
from profilers.lock import device_lock
from profilers.roofline import DevicePeaks, measure_peaks
from profilers.surroundings import wait_until_quiet

QUIET_TIMEOUT_S = 10.0
_BUSY_SHARE = 0.1
"""Of a core's time. A tenth taken away lowers a peak by about as much, which every floor then inherits."""


class PeaksError(NasError):
    """Peaks that could not be measured."""


def peaks_of_this_machine(num_threads: int, note: Callable[[str], None]) -> DevicePeaks:
    """Measures the peaks under the device's lock, once the cores are quiet or the time for that is up.

    Args:
        num_threads: of one inference.
        note: told in one line whom one waits for, and when the cores stayed busy.

    Raises:
        PeaksError: the child that measures them failed.
        ProfilerError: more threads than cores, or the device is in use.
    """
    device = local_device(num_threads)
    with device_lock(device.id, on_wait=note):
        busy = wait_until_quiet(device.cores, timeout_s=QUIET_TIMEOUT_S)
        if busy > _BUSY_SHARE:
            note(f"other work took {busy:.0%} of a core: the peaks may come out low, and the floors high")
        peaks = measure_peaks(device)
    if isinstance(peaks, ProfileFailure):
        raise PeaksError(f"peaks of the device: {peaks.kind}: {peaks.reason}")
    return peaks
