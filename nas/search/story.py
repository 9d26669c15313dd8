"""The story of one candidate in a study, stage by stage, with the evidence for each gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nas.budget import Budget
from nas.errors import NasError
from nas.gates.budget import budget_verdict, explain_miss, rounded_amount
from nas.gates.publish import MIN_TUNED_COVERAGE
from nas.gates.slices import worst_slice
from nas.ledger import Ledger, StageResult
from nas.search.audit_run import known_audit
from nas.search.controls_run import known_controls
from nas.search.screening import AUDIT_EVENT
from nas.search.screening_report import is_trusted
from nas.training.score import LOWER_IS_BETTER, HeldOutScore
from nas.trial import Outcome, Rung, TrialRecord, score_from_json

Verdict = str
"""`passed`, `stopped here`, `not reached`, `left out`, or empty where nothing is judged."""


class StoryError(NasError):
    """A candidate that the study does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One stage.

    Attributes:
        stage: its name.
        verdict: what its gate said.
        evidence: lines.
        seconds: wall clock; None when unknown.
    """

    stage: str
    verdict: Verdict
    evidence: tuple[str, ...]
    seconds: float | None = None


def find_record(records: Sequence[TrialRecord], wanted: str) -> TrialRecord:
    """The trial of that number, or the first one of the candidate whose id begins like that.

    Raises:
        StoryError: none, or several candidates.
    """
    if wanted.isdigit() and len(wanted) < 6:
        for record in records:
            if record.trial == int(wanted):
                return record
    found = {r.candidate.candidate_id: r for r in reversed(records) if r.candidate.candidate_id.startswith(wanted)}
    if len(found) == 1:
        return next(iter(found.values()))
    many = f"{len(found)} candidates begin like that ({', '.join(sorted(found)[:3])})" if found else "not in this study"
    raise StoryError(f"candidate {wanted!r}: {many}; give a trial number, or an id of trials.csv")


def tell_story(record: TrialRecord, ledger: Ledger, budgets: tuple[Budget, ...]) -> tuple[Chapter, ...]:
    """Every stage of the flow, whether this candidate got there or not."""
    source = record.trial if record.duplicate_of is None else record.duplicate_of
    return tuple(_chapters(record, source, ledger, budgets))


_STOPS = {
    Outcome.PREDICTED_OVER_BUDGET: "screen", Outcome.COMPILE_FAILED: "compile", Outcome.PARITY_FAILED: "parity",
    Outcome.PROFILE_FAILED: "measure", Outcome.OVER_BUDGET: "budget", Outcome.DIVERGED: "train",
    Outcome.STOPPED_EARLY: "train", Outcome.TRAIN_FAILED: "train",
}  # fmt: skip
_ORDER = ("propose", "screen", "compile", "parity", "measure", "budget", "train", "score", "winner", "test", "controls",
          "audit")  # fmt: skip


def _chapters(record: TrialRecord, source: int, ledger: Ledger, budgets: tuple[Budget, ...]) -> Iterator[Chapter]:
    stop = _STOPS.get(record.outcome)
    seconds = dict(record.seconds)

    def chapter(stage: str, *evidence: str, spent: str | None = None) -> Chapter:
        if stop is not None and _ORDER.index(stage) > _ORDER.index(stop):
            return Chapter(stage=stage, verdict="not reached", evidence=())
        if stage == stop:
            kind = "infrastructure" if record.outcome.is_infrastructure else record.outcome.kind
            evidence = (*evidence, f"{record.outcome} ({kind}): {record.error}")
            return Chapter(stage=stage, verdict="stopped here", evidence=evidence, seconds=seconds.get(spent or ""))
        if stage in ("compile", "parity", "measure") and is_trusted(record):
            return Chapter(stage=stage, verdict="left out", evidence=())
        return Chapter(stage=stage, verdict="passed", evidence=evidence, seconds=seconds.get(spent or ""))

    again = () if record.duplicate_of is None else (f"the same network as trial {source}, whose result this is",)
    yield chapter("propose", f"trial {record.trial}, candidate {record.candidate.candidate_id}", *again)
    audited = [event.detail for event in ledger.events(AUDIT_EVENT) if event.detail["trial"] == source]
    cost = record.cost
    trusted = [f"surely within the budgets: {_measured(record)[0]}; trained unmeasured"] if is_trusted(record) else []
    yield chapter("screen", *map(_audited, audited), *trusted)
    yield chapter("compile", *_compiled(record), spent="compile")
    yield chapter("parity", *([] if cost is None or cost.parity_max_abs is None else
                              [f"largest difference to torch {cost.parity_max_abs:.2g}"]))  # fmt: skip
    yield chapter("measure", *_measured(record), spent="profile")
    fits = [] if cost is None or stop == "screen" or budget_verdict(budgets, cost) != "meets" else [
        f"within {', '.join(str(budget) for budget in budgets)}"]  # fmt: skip
    misses = [explain_miss(budgets, cost)] if cost is not None and stop == "budget" else []
    yield chapter("budget", *fits, *misses)
    stages = {stage.stage: stage for stage in ledger.stages(source)}
    trained = stages.get("train")
    yield chapter(
        "train", *map(_rung, record.rungs), *([] if trained is None else _curve(trained.payload)), spent="train"
    )
    untrained = [] if trained is None else [
        f"before training {score_from_json(trained.payload['untrained_score']).value:.3f}"]  # fmt: skip
    yield chapter("score", *([] if record.score is None else [_score(record.score)]), *untrained)
    yield from _late_chapters(record, source, ledger, stages.get("test"))


def _late_chapters(record: TrialRecord, source: int, ledger: Ledger, test: StageResult | None) -> Iterator[Chapter]:
    """What only winners go through; a stage that did not happen is left out."""
    lines: tuple[str, ...]
    for event in ledger.events("winner_measured"):
        if event.detail["trial"] == source:
            seen = event.detail["measurement"]
            line = f"{seen['latency_ms']:.3g} ms ({seen['lower_ms']:.3g} to {seen['upper_ms']:.3g})"
            lines = (f"{event.at}: measured again with trained weights, {_phase_of(event.detail)}{line}",)
            yield Chapter(stage="winner", verdict="passed", evidence=lines)
    if test is not None:
        opened = [event.at for event in ledger.events("test_opened") if event.detail["trial"] == source]
        lines = (_score(score_from_json(test.payload["score"])), *(f"opened {at}" for at in opened[:1]))
        yield Chapter(stage="test", verdict="passed", evidence=lines)
    controls = known_controls(ledger)
    if controls is not None and controls.trial == source:
        lines = (f"shuffled inputs {controls.shuffled_inputs.value:.3f}",
                 f"shuffled labels {controls.shuffled_labels.value:.3f}")  # fmt: skip
        yield Chapter(stage="controls", verdict="", evidence=lines)
    audit = known_audit(ledger)
    if audit is not None and record.candidate.candidate_id in audit.candidates:
        index = audit.candidates.index(record.candidate.candidate_id)
        lines = (f"short training {audit.cheap[index]:.3f}, long {audit.dear[index]:.3f}",
                 f"in {sum(record.candidate.candidate_id in pair for pair in audit.flipped)} of"
                 f" {len(audit.candidates) - 1} pairs in another order")  # fmt: skip
        yield Chapter(stage="audit", verdict="", evidence=lines)


def _audited(detail: Mapping[str, Any]) -> str:
    answer = "trusted" if detail.get("answer") == "trusted" else "ruled out"
    seen = (
        f"{detail['predicted_ms']:.3g} ms"
        if "predicted_ms" in detail
        else f"{detail['metric']} of {rounded_amount(detail['metric'], detail['predicted'])}"
    )
    return f"{_phase_of(detail)}predicted {seen} and {answer}, measured as a check"


def _rung(rung: Rung) -> str:
    compared = "" if rung.num_others is None else f", compared with {rung.num_others} others"
    score = rung.score
    return (f"rung of {rung.epochs} epochs: val {score.value:.3f} ({score.lower:.3f} to {score.upper:.3f}),"
            f" {rung.verdict}{compared} ({rung.seconds:.1f} s)")  # fmt: skip


def _compiled(record: TrialRecord) -> list[str]:
    cost = record.cost
    if cost is None or cost.tuned_coverage is None:
        return []
    enough = "enough" if cost.tuned_coverage >= MIN_TUNED_COVERAGE else f"below {MIN_TUNED_COVERAGE:.0%}"
    return [f"{cost.runtime}, {cost.tuned_coverage:.1%} of the work in tuned kernels ({enough})"]


def _measured(record: TrialRecord) -> list[str]:
    return [
        f"{phase} {seen.latency_ms:.3g} ms ({seen.lower_ms:.3g} to {seen.upper_ms:.3g}), {seen.source}"
        for phase, seen in (() if record.cost is None else record.cost.latencies)
    ]


def _phase_of(detail: Mapping[str, Any]) -> str:
    """The phase that an event is of, with a space behind it; nothing where the event does not say."""
    return f"{detail['phase']} " if "phase" in detail else ""


def _curve(payload: object) -> list[str]:
    assert hasattr(payload, "get")
    history = payload.get("history") or []
    if not history:
        return []
    values = ", ".join(f"{epoch['step']}: {epoch['val_value']:.3f}" for epoch in history)
    first, last = history[0]["train_loss"], history[-1]["train_loss"]
    return [f"loss {first:.3g} to {last:.3g} in {payload.get('num_steps')} steps",
            f"telemetry, val by step: {values}"]  # fmt: skip


def _score(score: HeldOutScore) -> str:
    worst = worst_slice(score, "minimize" if score.metric in LOWER_IS_BETTER else "maximize")
    tail = "" if worst is None else f"; worst slice {worst[0]} {worst[1]:.3f}"
    return (f"{score.split} {score.metric} {score.value:.3f} ({score.lower:.3f} to {score.upper:.3f}),"
            f" {score.num_examples} examples{tail}")  # fmt: skip
