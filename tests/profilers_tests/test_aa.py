from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profilers import local
from profilers.aa import MAX_LOOKS, PAIR, aa_result, enrolled, measure_pair, passes, process_spread, run_aa
from profilers.artifact import Artifact
from profilers.enrolment import AaResult, Enrolment
from profilers.errors import ProfileFailure
from profilers.local import LocalProfiler
from profilers.noise import UNKNOWN_NOISE
from profilers.testing import FAKE_DEVICE

Make = Callable[..., LocalProfiler]


class MadeUpChildren:
    """Processes whose medians scatter by `spread`; every `disturb`th had no processor."""

    def __init__(self, spread: float, disturb: int = 0) -> None:
        self.noise, self.spread, self.disturb, self.count = random.Random(3), spread, disturb, 0

    def __call__(self, entry: str, job: Mapping[str, Any], **_: object) -> dict[str, Any]:
        self.count += 1
        share = 0.5 if self.disturb and self.count % self.disturb == 0 else 1.0
        centre = 1 + self.noise.gauss(0, self.spread)
        blocks = [{"latencies_ms": [centre] * 3, "cpu_over_wall": share} for _ in range(PAIR.blocks_per_process)]
        return {
            "blocks": blocks,
            "canaries": [{"compute_ms": 1.0, "bandwidth_ms": 1.0}] * (len(blocks) + 1),
            "disturbances": [], "first_inference_ms": 1.0, "peak_memory_bytes": 1, "parity_max_abs": 0.0,
            "power_mw": None,
            "sandbox": "none", "started_s": 0.1,
        }  # fmt: skip


def test_a_program_is_seldom_told_from_itself_and_the_spread_is_learnt(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact
) -> None:
    monkeypatch.setattr(local, "run_child", MadeUpChildren(spread=0.003))
    pairs = run_aa(make_profiler(), onnx_artifact, 60)
    result = aa_result(pairs)
    assert (result.num_pairs, result.num_rejected) == (60, 0)
    assert result.num_false_alarms <= 4 and passes(result)
    assert process_spread(pairs) == pytest.approx(0.003, rel=0.25)
    known = enrolled(Enrolment(device=FAKE_DEVICE), pairs)
    assert known.noise.floor == result.gap95
    assert known.aa is not None and replace(known.aa, at=result.at) == result  # the clock may tick between the two
    assert known.noise.drift_ratio == UNKNOWN_NOISE.drift_ratio


def test_disturbed_pairs_are_counted_apart(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact
) -> None:
    monkeypatch.setattr(local, "run_child", MadeUpChildren(spread=0.001, disturb=4))
    pairs = run_aa(make_profiler(retries=False), onnx_artifact, 6)
    rejected = [pair for pair in pairs if pair.comparison is None]
    assert rejected and all(pair.rejected_because is not None and pair.gap is None for pair in rejected)
    assert not any(pair.excludes_one for pair in rejected)


def test_a_failure_is_a_rejected_pair_and_nothing_but_those_is_no_result(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact
) -> None:
    monkeypatch.setattr(local, "run_child", lambda *_, **__: ProfileFailure(kind="crashed", reason="SIGSEGV"))
    pair = measure_pair(make_profiler(), onnx_artifact, onnx_artifact, noise=UNKNOWN_NOISE)
    assert pair.rejected_because == "crashed: SIGSEGV"
    with pytest.raises(ValueError, match="every pair was rejected"):
        aa_result([pair])
    with pytest.raises(ValueError, match="no run counts"):
        process_spread([pair])


@pytest.mark.parametrize(
    ("alarms", "gap95", "is_fine"), [(4, 0.009, True), (5, 0.009, False), (0, 0.011, False), (0, 0.001, True)]
)
def test_the_gate_is_four_false_alarms_in_forty_pairs_and_one_per_cent(
    alarms: int, gap95: float, is_fine: bool
) -> None:
    result = AaResult(num_pairs=40, num_rejected=0, num_false_alarms=alarms, gap95=gap95, at="")
    assert passes(result) is is_fine


def test_another_look_is_taken_while_the_ratio_is_not_known_well_enough_whatever_it_says(
    make_profiler: Make, monkeypatch: pytest.MonkeyPatch, onnx_artifact: Artifact
) -> None:
    for spread, num_looks in ((0.0001, 1), (0.03, MAX_LOOKS)):
        children = MadeUpChildren(spread=spread)
        monkeypatch.setattr(local, "run_child", children)
        pair = measure_pair(make_profiler(), onnx_artifact, onnx_artifact, noise=UNKNOWN_NOISE)
        assert children.count == 2 * PAIR.num_processes * num_looks
        assert pair.first is not None and pair.comparison is not None
        assert len({block.process for block in pair.first.blocks}) == PAIR.num_processes * num_looks


def test_two_real_runs_of_one_artifact_are_compared(
    make_profiler: Make, onnx_artifact: Artifact, tmp_path: Path
) -> None:
    (pair,) = run_aa(make_profiler(), onnx_artifact, 1)
    assert (pair.comparison is None) == (pair.rejected_because is not None)
    assert pair.first is not None and pair.second is not None
