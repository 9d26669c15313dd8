"""How long a process goes on timing on a machine that is quiet only now and then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profilers.canary import CanaryReading
from profilers.measurement import SEARCH, MeasureProtocol
from profilers.timing import wants_block

QUIET, SLOW = CanaryReading(compute_ms=1.0, bandwidth_ms=1.0), CanaryReading(compute_ms=1.1, bandwidth_ms=1.0)
LIMITS = CanaryReading(compute_ms=1.03, bandwidth_ms=1.05)
PROTOCOL = replace(SEARCH, blocks_per_process=3, max_blocks_factor=4)


def num_timed(
    pattern: str, *, limits: CanaryReading | None = LIMITS, cpu: float = 1.0, block_s: float = 0.05,
    protocol: MeasureProtocol = PROTOCOL,
) -> int:  # fmt: skip
    """Blocks that are timed where the canaries are quiet (`q`) or slow (`s`) in turn, over and over."""
    readings, blocks = [QUIET if pattern[0] == "q" else SLOW], list[dict[str, float]]()
    while wants_block(blocks, readings, limits, protocol, block_s * len(blocks)):
        blocks.append({"cpu_over_wall": cpu})
        readings.append(QUIET if pattern[len(blocks) % len(pattern)] == "q" else SLOW)
    return len(blocks)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("q", 3),  # nobody there
        ("qqs", 7),  # one block in three counts: 0-1, 3-4, 6-7
        ("s", 6),  # nothing counts: it is given up after twice as many
        ("qs", 6),  # nor does a block with a quiet reading on one side only
        ("qqssssss", 12),  # one in eight counts: the most there may be
    ],
)
def test_a_process_goes_on_until_enough_blocks_count_or_there_is_no_hope(pattern: str, expected: int) -> None:
    assert num_timed(pattern) == expected


def test_without_known_canaries_every_block_counts() -> None:
    assert num_timed("s", limits=None) == 3


def test_blocks_of_a_starved_process_do_not_count() -> None:
    assert num_timed("q", cpu=0.5) == 6


def test_long_blocks_are_not_repeated_for_long() -> None:
    assert num_timed("qqssssss", block_s=1.0) == 8
    assert num_timed("qqssssss", block_s=20.0) == 3


def test_a_protocol_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="max_blocks_factor is 0; allowed: at least 1"):
        replace(SEARCH, max_blocks_factor=0)
