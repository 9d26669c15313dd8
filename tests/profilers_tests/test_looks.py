from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from profilers.artifact import Artifact
from profilers.errors import ProfileFailure
from profilers.looks import LOOKS, combine, decide
from profilers.measurement import SEARCH, Measurement
from profilers.testing import FakeProfiler, Script

SETTLING_SEED = 4
"""Of a fake whose second look lowers the upper bound."""


@pytest.fixture
def artifact() -> Artifact:
    return Artifact(
        folder=Path("nowhere"), candidate_id="c", phase="infer", runtime="tvm", target="any", precision="float32",
        num_threads=1, inputs=(), outputs=(), files=(), tuned_coverage=1.0, model_bytes=1,
    )  # fmt: skip


def fake(latency_ms: float, **options: float) -> FakeProfiler:
    return FakeProfiler(script=lambda artifact: latency_ms, **options)  # type: ignore[arg-type]


def test_a_clear_case_takes_one_look(artifact: Artifact) -> None:
    for maximum_ms, expected in ((2.0, "meets"), (0.5, "misses")):
        profiler = fake(1.0)
        seen, answer = decide(profiler, artifact, maximum_ms)
        assert (answer, len(profiler.calls)) == (expected, 1)
        assert isinstance(seen, Measurement)


def after_each_look(artifact: Artifact, **options: float) -> list[Measurement]:
    """What a fake knows after one, two and three looks."""
    profiler = fake(1.0, **options)
    measured = [each for protocol in LOOKS if isinstance(each := profiler.measure(artifact, protocol), Measurement)]
    return [measured[0], combine(measured[:2]), combine([combine(measured[:2]), measured[2]])]


def test_a_close_case_takes_three_looks_that_grow_and_are_pooled(artifact: Artifact) -> None:
    known = after_each_look(artifact, spread=0.2)
    low, high = max(each.lower_ms for each in known), min(each.upper_ms for each in known)
    assert low < high  # the fake's seed leaves a budget that no look settles
    profiler = fake(1.0, spread=0.2)
    assert decide(profiler, artifact, (low + high) / 2) == (known[2], "undecided")
    assert [protocol for _, protocol in profiler.calls] == list(LOOKS)
    sizes = [protocol.num_processes * protocol.blocks_per_process for protocol in LOOKS]
    assert sizes == sorted(sizes)
    assert len(known[2].blocks) == sum(sizes)
    assert {block.process for block in known[2].blocks} == set(range(sum(each.num_processes for each in LOOKS)))


def test_a_second_look_settles_what_the_first_left_open(artifact: Artifact) -> None:
    first, second, _ = after_each_look(artifact, spread=0.05, seed=SETTLING_SEED)
    assert second.upper_ms < first.upper_ms
    profiler = fake(1.0, spread=0.05, seed=SETTLING_SEED)
    assert decide(profiler, artifact, (first.upper_ms + second.upper_ms) / 2) == (second, "meets")
    assert len(profiler.calls) == 2


def test_what_fails_or_is_rejected_is_undecided(artifact: Artifact) -> None:
    failure = ProfileFailure(kind="timeout", reason="hung")
    assert decide(FakeProfiler.of({"c": failure}), artifact, 9.0) == (failure, "undecided")
    rejecting = fake(1.0)
    rejecting.rejected_because = "a hog"
    seen, answer = decide(rejecting, artifact, 9.0)
    assert answer == "undecided" and isinstance(seen, Measurement)
    assert len(rejecting.calls) == 1


def test_a_later_look_that_fails_leaves_what_was_known(artifact: Artifact) -> None:
    first = fake(1.0, spread=0.2).measure(artifact, SEARCH)
    assert isinstance(first, Measurement)
    scripts: Iterator[Script] = iter([1.0, ProfileFailure(kind="timeout", reason="hung")])
    profiler = FakeProfiler(script=lambda artifact: next(scripts), spread=0.2)
    assert decide(profiler, artifact, first.latency_ms) == (first, "undecided")


def test_measurements_of_unlike_things_are_not_combined(artifact: Artifact) -> None:
    one = fake(1.0).measure(artifact, SEARCH)
    assert isinstance(one, Measurement)
    for wrong in (replace(one, fingerprint="other"), replace(one, artifact_digest="other")):
        with pytest.raises(ValueError, match="same artifact"):
            combine([one, wrong])
    with pytest.raises(ValueError, match="rejected"):
        combine([one, replace(one, rejected_because="a hog")])
    with pytest.raises(ValueError, match="needs measurements"):
        combine([])


def test_one_measurement_combined_is_itself(artifact: Artifact) -> None:
    one = fake(1.0).measure(artifact, SEARCH)
    assert isinstance(one, Measurement)
    assert combine([one]) == one
