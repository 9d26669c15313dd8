"""The publish gate: what must hold before a front may be called one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nas.gates.result import GateResult
from nas.training.audit import Finding
from nas.training.score import HeldOutScore
from nas.trial import CandidateCost, Outcome, TrialRecord

MIN_TUNED_COVERAGE = 0.95
"""Least share of a front member's operations in kernels with a tuning record. Untuned code ranks
networks as their MACs do (Spearman 0.98), which is no measurement of a device."""

MAX_DUPLICATE_SHARE = 0.01
"""Share of val or test that may also be in train: 1 point of accuracy at most comes from it."""

MAX_COPIED_SHARE = 0.1
"""Share of a held-out text's passages that may stand in another split as well: in the standard library, whose files
share idioms and licences, it is 3%."""


def measured_gate(costs: Sequence[CandidateCost], num_dropped: int) -> GateResult:
    """Every member was measured again in fresh processes; those that then missed are gone."""
    figures = (("measured_again", len(costs)), ("dropped", num_dropped))
    dropped = f", {num_dropped} dropped for missing on the second look" if num_dropped else ""
    return GateResult(
        passed=True,
        reason=f"{len(costs)} members measured again with trained weights in fresh processes{dropped}",
        figures=figures,
    )


def device_gate(fingerprints: Mapping[int, str], device: str) -> GateResult:
    """Every member's latency is of the study's own device.

    Args:
        fingerprints: of the measurement of each member, by trial.
        device: the study's.
    """
    foreign = sorted(trial for trial, fingerprint in fingerprints.items() if fingerprint != device)
    figures = (("members", len(fingerprints)), ("foreign", len(foreign)), ("fingerprint", device))
    if foreign:
        reason = (
            f"the latency of trial {foreign[0]} was measured on another device ({fingerprints[foreign[0]]}, this one is"
            f" {device}); measure it here, a latency cannot be copied"
        )
        return GateResult(passed=False, reason=reason, figures=figures)
    return GateResult(passed=True, reason=f"{len(fingerprints)} latencies are of device {device}", figures=figures)


def parity_gate(costs: Sequence[CandidateCost], tolerance: float) -> GateResult:
    """Every member's outputs were compared with torch's before it was timed."""
    seen = [cost.parity_max_abs for cost in costs]
    known = [value for value in seen if value is not None]
    figures = (("largest_difference", max(known, default=None)), ("relative_tolerance", tolerance))
    if len(known) < len(seen):
        return GateResult(
            passed=False, reason=f"{len(seen) - len(known)} members were never compared with torch", figures=figures
        )
    return GateResult(passed=True, reason=f"compiled outputs of {len(known)} members agree with torch", figures=figures)


def tuned_gate(costs: Sequence[CandidateCost]) -> GateResult:
    """Every member runs tuned kernels."""
    least = min((cost.tuned_coverage or 0.0 for cost in costs), default=None)
    figures = (("least_tuned_coverage", least), ("minimum", MIN_TUNED_COVERAGE))
    passed = least is None or least >= MIN_TUNED_COVERAGE
    seen = "no member" if least is None else f"at least {least:.1%} of each member's work is in tuned kernels"
    return GateResult(passed=passed, reason=seen, figures=figures)


def infrastructure_gate(records: Sequence[TrialRecord], accepted: str | None) -> GateResult:
    """Trials that failed for reasons of their own say nothing; somebody must look at them."""
    counts = {outcome: 0 for outcome in Outcome if outcome.is_infrastructure}
    for record in records:
        if record.outcome in counts:
            counts[record.outcome] += 1
    total = sum(counts.values())
    figures = tuple((outcome.value, count) for outcome, count in counts.items())
    if total == 0:
        return GateResult(passed=True, reason="no trial failed for reasons of the infrastructure", figures=figures)
    if accepted is not None and accepted.strip():
        return GateResult(passed=True, reason=f"{total} failed trials accepted: {accepted}", figures=figures)
    first = next(record for record in records if record.outcome.is_infrastructure)
    return GateResult(
        passed=False,
        reason=(
            f"{total} of {len(records)} trials failed (first: trial {first.trial}, {first.outcome}: {first.error});"
            ' look at them, then run again with --accept-failures "REASON"'
        ),
        figures=figures,
    )


def data_gate(findings: Sequence[Finding]) -> GateResult:
    """Held-out examples must be held out, and every class must be there; the rest is only said."""
    copies = [
        finding for finding in findings if finding.kind == "duplicates" and finding.where.startswith(("train/", "val/"))
    ]
    worst = max(copies, key=lambda finding: finding.count / finding.num_checked, default=None)
    share = 0.0 if worst is None else worst.count / worst.num_checked
    missing = [finding for finding in findings if finding.kind == "missing_class"]
    copied = [
        each for each in findings if each.kind == "copied_text" and each.count > MAX_COPIED_SHARE * each.num_checked
    ]
    figures = (("findings", len(findings)), ("largest_duplicate_share", share))
    if worst is not None and share > MAX_DUPLICATE_SHARE:
        reason = f"{worst}; split the data so that no example is in two"
        return GateResult(passed=False, reason=reason, figures=figures)
    if copied:
        reason = f"{copied[0]}; leave out what repeats, or put what quotes each other into one file"
        return GateResult(passed=False, reason=reason, figures=figures)
    if missing:
        reason = f"{missing[0]}; split the data so that every class is in each split"
        return GateResult(passed=False, reason=reason, figures=figures)
    reason = "nothing odd about the splits" if not findings else "; ".join(str(finding) for finding in findings)
    return GateResult(passed=True, reason=reason, figures=figures)


def learning_gate(
    scores: Mapping[int, HeldOutScore], untrained: Mapping[int, HeldOutScore], constant: float, direction: str
) -> GateResult:
    """Every member beats its own untrained self and the answer that is always the same, by its interval.

    Args:
        scores: val score of each member, by trial.
        untrained: the same networks before training.
        constant: score of the best answer that does not look at the inputs (`nas.training.baselines`).
        direction: of the metric.
    """
    figures = (("constant_answer", constant), ("members", len(scores)))
    for trial, score in scores.items():
        for level, what in (
            (untrained[trial].value, "before training {:.3f}: it learnt nothing"),
            (constant, "an answer that is always the same scores {:.3f}"),
        ):
            beats = score.lower > level if direction == "maximize" else score.upper < level
            if not beats:
                reason = f"trial {trial} scores {score.value:.3f}, {what.format(level)}"
                return GateResult(passed=False, reason=reason, figures=figures)
    return GateResult(
        passed=True, reason="every member beats its untrained self and an answer that is always the same",
        figures=figures,
    )  # fmt: skip


def held_out_gate(test_scores: Mapping[int, HeldOutScore | None], opened_at: str | None) -> GateResult:
    """Every member has a test score, and the file says when test was opened."""
    missing = [trial for trial, score in test_scores.items() if score is None]
    figures = (("members", len(test_scores)), ("test_opened_at", opened_at))
    if missing:
        return GateResult(passed=False, reason=f"no test score for trials {missing}", figures=figures)
    reason = "val steered the search; test was scored once for each member, at the end"
    return GateResult(passed=True, reason=reason, figures=figures)
