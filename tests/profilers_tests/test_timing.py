from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profilers.errors import ChildFailureError
from profilers.measurement import MeasureProtocol
from profilers.testing import FakeClock
from profilers.timing import batch_size, compare_outputs, time_block, warm_up

PROTOCOL = MeasureProtocol(block_ms=50.0, warmup_min_runs=10, warmup_max_s=10.0)


class Clock:
    """Nanoseconds; a run of the program under test moves it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.runs = 0

    def __call__(self) -> int:
        return round(self.clock() * 1e9)

    def program(self, *durations_ms: float, then_ms: float) -> None:
        self.durations_ms = [*durations_ms]
        self.then_ms = then_ms

    def run(self) -> None:
        self.clock.sleep((self.durations_ms.pop(0) if self.durations_ms else self.then_ms) / 1e3)
        self.runs += 1


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20), st.floats(-10, 10))
def test_the_difference_is_the_largest_absolute_one(values: list[float], gap: float) -> None:
    reference = np.asarray(values)
    output = reference.copy()
    output[-1] += gap
    expected = max(abs(a - b) for a, b in zip(output.tolist(), values, strict=True))
    assert compare_outputs([output], [reference], tolerance=10.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("output", "reference", "words"),
    [
        ([1.0, 2.1], [1.0, 2.0], "differs from the reference by 0.1, allowed 0.02"),
        ([1.0, np.nan], [1.0, 2.0], "by inf"),
        ([1.0, 2.0], [1.0, np.nan], "by inf"),
        ([1.0, np.inf], [1.0, 2.0], "by inf"),
        ([1.0, np.inf], [1.0, -np.inf], "by inf"),
        ([1.0], [1.0, 2.0], "shape"),
    ],
)
def test_wrong_outputs_are_refused(output: list[float], reference: list[float], words: str) -> None:
    with pytest.raises(ChildFailureError, match=words) as caught:
        compare_outputs([np.asarray(output)], [np.asarray(reference)], tolerance=0.01)
    assert caught.value.failure.kind == "outputs_differ"


def test_an_output_of_another_type_or_a_missing_one_is_refused() -> None:
    reference = np.ones(2, np.float32)
    for outputs in ([reference.astype(np.float64)], [], [reference, reference]):
        with pytest.raises(ChildFailureError, match="shape and type"):
            compare_outputs(outputs, [reference], tolerance=1.0)


def test_outputs_may_be_infinite_where_the_reference_is_and_tolerance_grows_with_it() -> None:
    same = np.asarray([np.inf, np.nan, 1.0])
    assert compare_outputs([same], [same], tolerance=0.0) == 0.0
    assert compare_outputs([np.asarray(100.5)], [np.asarray(100.0)], tolerance=0.01) == pytest.approx(0.5)
    assert compare_outputs([np.ones(3, np.int64)], [np.ones(3, np.int64)], tolerance=0.0) == 0.0


def test_warm_up_ends_once_three_blocks_agree() -> None:
    clock = Clock()
    clock.program(*[20.0] * 30, then_ms=10.0)
    assert warm_up(clock.run, PROTOCOL, clock) is None
    # 3 blocks of 3 runs of 20 ms agree, but are fewer than 10 runs; the fourth agrees as well.
    assert clock.runs == 12


def test_warm_up_goes_on_while_a_program_still_gets_faster() -> None:
    clock = Clock()
    clock.program(*[50.0, 40.0, 40.0, 30.0, 30.0], then_ms=10.0)
    assert warm_up(clock.run, PROTOCOL, clock) is None
    assert clock.runs >= 5 + 3 * 5


def test_warm_up_gives_up_on_a_program_that_never_settles() -> None:
    clock = Clock()
    clock.program(*[50.0 * 1.1**i for i in range(80)], then_ms=1e5)
    reason = warm_up(clock.run, PROTOCOL, clock)
    assert reason is not None and "not steady after 10 s" in reason


@pytest.mark.parametrize(("run_us", "expected"), [(1.0, 25), (10.0, 3), (24.0, 2), (25.0, 1), (5000.0, 1)])
def test_only_short_runs_are_timed_in_batches(run_us: float, expected: int) -> None:
    clock = Clock()
    clock.program(then_ms=run_us / 1e3)
    assert batch_size(clock.run, clock) == expected


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_block_lasts_and_holds_one_sample_a_batch_and_the_last_result(num_threads: int) -> None:
    results = iter(range(10_000_000))
    block, last = time_block(lambda: next(results), 5.0, 100, num_threads)
    assert sum(block["latencies_ms"]) * 100 >= 0.5 * 5.0
    assert 0 <= block["cpu_over_wall"] < 1.2
    assert next(results) == int(str(last)) + 1
