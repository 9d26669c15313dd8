from __future__ import annotations

from profilers.device import local_device
from profilers.roofline import FOOTPRINTS_BYTES, DevicePeaks, measure_peaks


def test_the_peaks_of_this_machine_are_rates_that_a_nearer_memory_does_not_lower() -> None:
    peaks = measure_peaks(local_device(1))
    assert isinstance(peaks, DevicePeaks), peaks
    assert peaks.flops_per_s > 0
    assert tuple(footprint for footprint, _ in peaks.bandwidths) == FOOTPRINTS_BYTES
    rates = [rate for _, rate in peaks.bandwidths]
    assert rates == sorted(rates, reverse=True)
    assert min(rates) > 0


def test_a_kernel_is_bound_by_what_takes_longer() -> None:
    peaks = DevicePeaks(flops_per_s=1e9, bandwidths=((1 << 10, 1e9), (1 << 20, 1e8)))
    assert peaks.floor_s(2e6, 1000) == (2e-3, "operations")
    assert peaks.floor_s(1.0, 1000) == (1e-6, "bytes")
    assert peaks.floor_s(1.0, 100_000) == (1e-3, "bytes")
