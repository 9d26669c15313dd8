from __future__ import annotations

from dataclasses import replace

import pytest

from nas.gates.publish import (
    MAX_DUPLICATE_SHARE,
    MIN_TUNED_COVERAGE,
    data_gate,
    held_out_gate,
    infrastructure_gate,
    learning_gate,
    measured_gate,
    parity_gate,
    tuned_gate,
)
from nas.training.audit import Finding, FindingKind
from nas.trial import Outcome
from tests.nas_tests.trials import make_cost, make_record, make_score

COST = make_cost(2.0)


def make_finding(kind: FindingKind, where: str, count: int, num_checked: int = 1000) -> Finding:
    return Finding(kind=kind, where=where, count=count, num_checked=num_checked, detail=f"{count} of {num_checked}")


def test_the_measured_gate_counts_members_and_those_dropped() -> None:
    result = measured_gate([COST, COST], 1)
    assert result.passed
    assert dict(result.figures) == {"measured_again": 2, "dropped": 1}
    assert "1 dropped" in result.reason
    assert "dropped" not in measured_gate([COST], 0).reason


def test_a_member_never_compared_with_torch_blocks() -> None:
    compared = replace(COST, parity_max_abs=3e-6)
    assert parity_gate([COST, compared], 1e-5).passed
    assert dict(parity_gate([COST, compared], 1e-5).figures)["largest_difference"] == 3e-6
    result = parity_gate([compared, replace(COST, parity_max_abs=None)], 1e-5)
    assert not result.passed
    assert "1 members were never compared" in result.reason


def test_outputs_equal_to_the_last_bit_count_as_compared() -> None:
    assert parity_gate([replace(COST, parity_max_abs=0.0)], 1e-5).passed


@pytest.mark.parametrize(
    ("coverage", "passed", "least"),
    [(1.0, True, 0.97), (MIN_TUNED_COVERAGE, True, 0.95), (0.949, False, 0.949), (0.0, False, 0.0), (None, False, 0.0)],
)
def test_one_member_with_untuned_kernels_blocks(coverage: float | None, passed: bool, least: float) -> None:
    result = tuned_gate([replace(COST, tuned_coverage=0.97), replace(COST, tuned_coverage=coverage)])
    assert result.passed == passed
    assert dict(result.figures)["least_tuned_coverage"] == least


def test_an_empty_front_has_no_untuned_member() -> None:
    assert tuned_gate([]).passed


def test_a_trial_that_failed_for_reasons_of_its_own_blocks_until_somebody_accepts_it() -> None:
    records = [make_record(0), make_record(1, Outcome.COMPILE_FAILED), make_record(2, Outcome.OVER_BUDGET)]
    result = infrastructure_gate(records, None)
    assert not result.passed
    assert result.reason.startswith("1 of 3 trials failed (first: trial 1, compile_failed: the reason of trial 1)")
    assert "--accept-failures" in result.reason
    assert dict(result.figures)["compile_failed"] == 1
    accepted = infrastructure_gate(records, "the disk was full")
    assert accepted.passed
    assert "1 failed trials accepted: the disk was full" in accepted.reason


@pytest.mark.parametrize("blank", ["", "  "])
def test_accepting_failures_needs_a_reason(blank: str) -> None:
    assert not infrastructure_gate([make_record(0, Outcome.TRAIN_FAILED)], blank).passed


@pytest.mark.parametrize("outcome", list(Outcome))
def test_exactly_the_infrastructure_outcomes_block(outcome: Outcome) -> None:
    assert infrastructure_gate([make_record(0, outcome)], None).passed == (not outcome.is_infrastructure)


def test_copies_across_splits_block_above_their_share() -> None:
    allowed = int(MAX_DUPLICATE_SHARE * 1000)
    assert data_gate([make_finding("duplicates", "train/val", allowed)]).passed
    result = data_gate(
        [make_finding("duplicates", "train/val", allowed), make_finding("duplicates", "val/test", allowed + 1)]
    )
    assert not result.passed
    assert "duplicates in val/test" in result.reason
    assert dict(result.figures) == {"findings": 2, "largest_duplicate_share": 0.011}


def test_copies_within_one_split_do_not_block() -> None:
    assert data_gate([make_finding("duplicates", "test", 900)]).passed


def test_a_missing_class_blocks_and_is_what_the_reason_names() -> None:
    findings = [
        make_finding("constant_inputs", "train", 3),
        make_finding("duplicates", "train/val", 1),
        make_finding("missing_class", "val", 1, 10),
    ]
    result = data_gate(findings)
    assert not result.passed
    assert result.reason.startswith("missing_class in val")
    assert data_gate(findings[:2]).passed


def test_text_that_is_mostly_copied_blocks_and_a_little_is_said() -> None:
    assert not data_gate([make_finding("copied_text", "train/test", 110)]).passed
    little = data_gate([make_finding("copied_text", "train/test", 90)])
    assert little.passed and "copied_text in train/test" in little.reason


def test_oddities_that_do_not_block_are_said() -> None:
    assert "imbalance in train" in data_gate([make_finding("imbalance", "train", 2)]).reason
    assert data_gate([]).reason == "nothing odd about the splits"


def test_a_member_must_beat_its_untrained_self_and_the_majority_by_its_interval() -> None:
    good, untrained = make_score(330), make_score(36)
    assert learning_gate({1: good, 2: good}, {1: untrained, 2: untrained}, 0.1, "maximize").passed
    stuck = learning_gate({1: good, 2: make_score(40)}, {1: untrained, 2: untrained}, 0.05, "maximize")
    assert not stuck.passed
    assert "trial 2" in stuck.reason
    assert "learnt nothing" in stuck.reason
    lazy = learning_gate({1: make_score(200)}, {1: untrained}, 0.55, "maximize")
    assert not lazy.passed
    assert "an answer that is always the same scores 0.550" in lazy.reason


def test_where_less_is_better_everything_is_compared_the_other_way_round() -> None:
    better, worse = make_score(36), make_score(330)
    assert learning_gate({1: better}, {1: worse}, 0.9, "minimize").passed
    assert not learning_gate({1: worse}, {1: better}, 1.0, "minimize").passed
    lazy = learning_gate({1: better}, {1: worse}, 0.1, "minimize")
    assert not lazy.passed
    assert "an answer that is always the same scores 0.100" in lazy.reason


def test_a_score_that_is_no_number_has_learnt_nothing() -> None:
    broken = replace(make_score(330), value=float("nan"), lower=float("nan"), upper=float("nan"))
    for direction in ("maximize", "minimize"):
        assert not learning_gate({1: broken}, {1: make_score(36)}, 0.1, direction).passed


def test_a_member_without_a_test_score_blocks() -> None:
    score = make_score(320, split="test")
    opened = held_out_gate({1: score, 2: score}, "2026-01-01T00:00:00")
    assert opened.passed
    assert dict(opened.figures)["test_opened_at"] == "2026-01-01T00:00:00"
    result = held_out_gate({1: score, 2: None}, None)
    assert not result.passed
    assert "[2]" in result.reason
