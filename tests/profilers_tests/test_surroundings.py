from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from profilers.surroundings import (
    Surroundings,
    busy_ticks,
    conditions_before,
    disturbances,
    status_bytes,
    wait_until_quiet,
)
from profilers.testing import FakeClock

BEFORE = Surroundings(
    frequency_mhz=2000.0, throttle_count=3, swapped_bytes=0, monotonic_s=10.0, boot_s=20.0, wall_s=1e9
)
AFTER = replace(BEFORE, monotonic_s=15.0, boot_s=25.0, wall_s=1e9 + 5, frequency_mhz=2050.0)


def test_a_quiet_run_has_no_disturbances() -> None:
    assert disturbances([BEFORE, AFTER]) == []
    silent = replace(BEFORE, frequency_mhz=None, throttle_count=None)
    assert disturbances([silent, silent]) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"frequency_mhz": 1500.0}, "frequency moved between 1500 and 2000"),
        ({"throttle_count": 5}, "throttled 2 times"),
        ({"swapped_bytes": 4096}, "4096 bytes"),
        ({"boot_s": 90.0}, "slept"),
        ({"wall_s": 2e9}, "clock was set"),
    ],
)
def test_each_disturbance_is_named(change: dict[str, float], words: str) -> None:
    [seen] = disturbances([BEFORE, replace(AFTER, **change)])  # type: ignore[arg-type]
    assert words in seen


def test_a_frequency_that_dips_between_two_looks_is_seen() -> None:
    assert disturbances([BEFORE, replace(BEFORE, frequency_mhz=1000.0), BEFORE])


def test_this_machine_can_be_looked_at() -> None:
    look = Surroundings.look(0)
    assert disturbances([look, look]) == []
    assert dict(conditions_before(0))["load_1min"]
    assert status_bytes("VmRSS") > 0
    assert all(0 <= busy <= total for busy, total in busy_ticks().values())


def ticks(*shares: float) -> list[Mapping[int, tuple[int, int]]]:
    looks: list[Mapping[int, tuple[int, int]]] = []
    busy = 0
    for index, share in enumerate((0.0, *shares)):
        busy += round(100 * share)
        looks.append({0: (0, 100 * index), 1: (busy, 100 * index)})
    return looks


def test_a_run_waits_for_the_busiest_of_its_cores() -> None:
    clock, looks = FakeClock(), iter(ticks(0.9, 0.8, 0.05, 0.0))
    share = wait_until_quiet([0, 1], timeout_s=60, busy=lambda: next(looks), clock=clock, sleep=clock.sleep)
    assert share == pytest.approx(0.05)
    assert clock() == pytest.approx(0.6)


def test_a_run_does_not_wait_for_ever() -> None:
    clock, looks = FakeClock(), iter(ticks(*[1.0] * 50))
    share = wait_until_quiet([1], timeout_s=1.0, busy=lambda: next(looks), clock=clock, sleep=clock.sleep)
    assert share == 1.0
    assert 1.0 <= clock() < 1.3
