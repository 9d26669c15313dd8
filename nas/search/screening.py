"""Screening: candidates that a cost model is sure are over a latency budget are not compiled.

There is one model for each phase that is timed. It learns from `nas calibrate`, where that was run on this device,
and from every measurement of the study. A share of what is ruled out is measured all the same; from those we know
how often it is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nas.budget import Budget, latency_budget
from nas.ledger import Ledger
from nas.trial import Outcome, TrialRecord
from profilers.cost_model.candidate_terms import CandidateEncoder
from profilers.cost_model.model import Predicted
from profilers.cost_model.store import Calibration
from profilers.cost_model.terms import CostModelError
from profilers.measurement import LatencyEstimate
from search_spaces.candidate import Candidate

LEAST_MEASURED = 12
"""Measurements before anything is ruled out: with fewer, a 90% bound is the worst error seen."""
RULED_OUT_BELOW = 0.05
"""A candidate is ruled out when the probability that it meets the budget is below this, and the lower end of
its 90% interval is over the budget; with few measurements no probability is that small."""
AUDIT_SHARE = 0.15
AUDIT_EVENT = "screening_audit"

Sample = tuple[Candidate, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What the cost model says of one candidate.

    Attributes:
        answer: `unknown` (no budgeted phase has enough measurements), `pass`, `ruled_out`, or `audited`: ruled
            out, and measured all the same.
        estimates: (phase, prediction) of every phase that has a model, the primary one first.
        phase: the budgeted one that is least likely to be met; None when unknown.
        probability: of meeting its budget.
        maximum_ms: that budget.
    """

    answer: Literal["unknown", "pass", "ruled_out", "audited"]
    estimates: tuple[tuple[str, LatencyEstimate], ...] = ()
    phase: str | None = None
    probability: float | None = None
    maximum_ms: float | None = None

    @property
    def estimate(self) -> LatencyEstimate | None:
        """The prediction of `phase`."""
        return None if self.phase is None else dict(self.estimates)[self.phase]


UNKNOWN = Screened(answer="unknown")


class PhaseModel:
    """A cost model of one phase, fitted to what was measured so far; the same measurements give the same answers."""

    def __init__(
        self, *, encoder: CandidateEncoder, phase: str, fingerprint: str, ledger: Ledger,
        calibrated: Sequence[Sample] = (),
    ) -> None:  # fmt: skip
        """Learns from `calibrated` and from the measured trials of `ledger`."""
        self.phase = phase
        self._encoder = encoder
        self._fingerprint = fingerprint
        self._ledger = ledger
        self._calibrated = tuple(calibrated)
        self._fitted_to = -1
        self._calibration: Calibration | None = None

    def predict(self, candidates: Sequence[Candidate]) -> Predicted | None:
        """Latencies of candidates with their intervals; None while too little was measured."""
        calibration = self._refitted()
        return None if calibration is None else calibration.model.predict(self._encoder.encode(candidates))

    def expect(self, candidate: Candidate, maximum_ms: float | None) -> tuple[LatencyEstimate, float | None] | None:
        """The prediction for one candidate, and the probability that it takes at most `maximum_ms`.

        Returns:
            None while too little was measured; no probability without a maximum.
        """
        calibration = self._refitted()  # once for both: it reads the whole ledger
        if calibration is None:
            return None
        encoded = self._encoder.encode([candidate])
        seen = calibration.model.predict(encoded)
        estimate = LatencyEstimate(
            latency_ms=float(seen.latency_ms[0]), lower_ms=float(seen.lower_ms[0]), upper_ms=float(seen.upper_ms[0]),
            source="predicted",
        )  # fmt: skip
        if maximum_ms is None:
            return estimate, None
        return estimate, float(calibration.model.probability_within(encoded, maximum_ms)[0])

    def _refitted(self) -> Calibration | None:
        known = {candidate.candidate_id: (candidate, latency) for candidate, latency in self._calibrated}
        for candidate, latency in measured_samples(self._ledger.records(), self.phase):
            known.setdefault(candidate.candidate_id, (candidate, latency))
        if len(known) < LEAST_MEASURED:
            return None
        if len(known) != self._fitted_to:
            try:
                self._calibration = Calibration.fit(
                    fingerprint=self._fingerprint, phase=self.phase, encoder=self._encoder,
                    samples=tuple(known.values()),
                )  # fmt: skip
            except CostModelError:  # a candidate of another space version: nothing is ruled out on its account
                self._calibration = None
            self._fitted_to = len(known)
        return self._calibration


class Screener:
    """Judges candidates by the models of all timed phases."""

    def __init__(self, models: Sequence[PhaseModel], *, seed: int, ledger: Ledger) -> None:
        """`models`: one a timed phase, that of the primary phase first."""
        self.models = {model.phase: model for model in models}
        self._seed = seed
        self._ledger = ledger

    def judge(self, trial: int, candidate: Candidate, budgets: tuple[Budget, ...]) -> Screened:
        """Whether a candidate is worth compiling: not when any one budgeted phase is surely over.

        An audit is noted in the ledger before it is made.
        """
        estimates: dict[str, LatencyEstimate] = {}
        held: list[tuple[bool, float, str, float]] = []
        for phase, model in self.models.items():
            maximum_ms = latency_budget(budgets, phase)
            expected = model.expect(candidate, maximum_ms)
            if expected is None:
                continue
            estimate, probability = expected
            estimates[phase] = estimate
            if maximum_ms is not None and probability is not None:
                is_over = probability < RULED_OUT_BELOW and estimate.lower_ms > maximum_ms
                held.append((not is_over, probability, phase, maximum_ms))
        if not held:
            return UNKNOWN
        # Those surely over come first. Of equals the earlier phase: it is named as the reason.
        is_passed, least, worst, allowed_ms = min(held, key=lambda row: row[:2])
        answer: Literal["pass", "ruled_out", "audited"] = "pass"
        if not is_passed:
            answer = "audited" if is_audited(self._seed, trial) else "ruled_out"
        if answer == "audited":
            self._note_audit(trial, worst, estimates[worst], least)
        return Screened(
            answer=answer, estimates=tuple(estimates.items()), phase=worst, probability=least, maximum_ms=allowed_ms
        )

    def _note_audit(self, trial: int, phase: str, estimate: LatencyEstimate, probability: float) -> None:
        if all(event.detail["trial"] != trial for event in self._ledger.events(AUDIT_EVENT)):
            detail = {
                "trial": trial, "phase": phase, "predicted_ms": estimate.latency_ms, "probability": probability,
            }  # fmt: skip
            self._ledger.add_event(AUDIT_EVENT, detail)


def is_audited(seed: int, trial: int) -> bool:
    """Whether a candidate that is ruled out is measured all the same: decided by study and trial alone."""
    digest = hashlib.sha256(f"audit:{seed}:{trial}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < AUDIT_SHARE * 2**32


def measured_samples(records: Iterable[TrialRecord], phase: str) -> list[Sample]:
    """Candidates with a measured latency, in the order of their trials."""
    samples = []
    for record in records:
        estimate = record.cost.latency(phase) if record.cost is not None and record.duplicate_of is None else None
        if estimate is not None and estimate.source == "measured":
            samples.append((record.candidate, estimate.latency_ms))
    return samples


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreeningReport:
    """What screening did in a study.

    Attributes:
        num_ruled_out: trials that were not compiled.
        num_audited: trials that were ruled out and measured all the same.
        num_wrong: of these, the ones that met the budget.
        seconds_saved: what compiling and measuring the ruled-out ones would have taken, at the mean
            of the others; an estimate.
    """

    num_ruled_out: int
    num_audited: int
    num_wrong: int
    seconds_saved: float

    def __str__(self) -> str:
        return (
            f"screening: {self.num_ruled_out} candidates were predicted over budget and not measured"
            f" (about {self.seconds_saved:.0f} s saved); {self.num_audited} more were measured to check,"
            f" {self.num_wrong} of them met the budget after all"
        )


_WITHIN_BUDGET = (Outcome.SCORED, Outcome.STOPPED_EARLY, Outcome.DIVERGED)


def screening_report(ledger: Ledger) -> ScreeningReport:
    """Counts what was ruled out, and how often the audit found that wrong."""
    records = {record.trial: record for record in ledger.records()}
    audited = [
        records[event.detail["trial"]] for event in ledger.events(AUDIT_EVENT) if event.detail["trial"] in records
    ]
    measured = [record for record in records.values() if record.duplicate_of is None and record.cost is not None
                and record.outcome is not Outcome.PREDICTED_OVER_BUDGET]  # fmt: skip
    spent = [
        sum(amount for stage, amount in record.seconds if stage in ("tune", "compile", "profile"))
        for record in measured
    ]
    num_ruled_out = sum(record.outcome is Outcome.PREDICTED_OVER_BUDGET for record in records.values())
    return ScreeningReport(
        num_ruled_out=num_ruled_out,
        num_audited=len(audited),
        num_wrong=sum(record.outcome in _WITHIN_BUDGET for record in audited),
        seconds_saved=num_ruled_out * float(np.mean(spent)) if spent else 0.0,
    )
