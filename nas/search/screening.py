"""Screening: candidates that a cost model is sure are over the latency budget are not compiled.

The model learns from `nas calibrate`, where that was run on this device, and from every measurement of the
study. A share of what it rules out is measured all the same; from those we know how often it is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nas.budget import Budget
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
        answer: `unknown` (too few measurements), `pass`, `ruled_out`, or `audited`: ruled out, and
            measured all the same.
        estimate: the prediction; None when unknown.
        probability: of meeting the latency budget; None when unknown.
        maximum_ms: the budget.
    """

    answer: Literal["unknown", "pass", "ruled_out", "audited"]
    estimate: LatencyEstimate | None
    probability: float | None
    maximum_ms: float | None


UNKNOWN = Screened(answer="unknown", estimate=None, probability=None, maximum_ms=None)


class Screener:
    """Judges candidates from what was measured so far; the same measurements give the same answers."""

    def __init__(
        self, *, encoder: CandidateEncoder, phase: str, fingerprint: str, seed: int, ledger: Ledger,
        calibrated: Sequence[Sample] = (),
    ) -> None:  # fmt: skip
        """Learns from `calibrated` and from the measured trials of `ledger`."""
        self._encoder = encoder
        self._phase = phase
        self._fingerprint = fingerprint
        self._seed = seed
        self._ledger = ledger
        self._calibrated = tuple(calibrated)
        self._fitted_to = -1
        self._calibration: Calibration | None = None

    def judge(self, trial: int, candidate: Candidate, budgets: tuple[Budget, ...]) -> Screened:
        """Whether a candidate is worth compiling. An audit is noted in the ledger before it is made."""
        maximum_ms = latency_budget(budgets, self._phase)
        calibration = self._refitted()
        if maximum_ms is None or calibration is None:
            return UNKNOWN
        encoded = self._encoder.encode([candidate])
        seen = calibration.model.predict(encoded)
        probability = float(calibration.model.probability_within(encoded, maximum_ms)[0])
        estimate = LatencyEstimate(
            latency_ms=float(seen.latency_ms[0]), lower_ms=float(seen.lower_ms[0]), upper_ms=float(seen.upper_ms[0]),
            source="predicted",
        )  # fmt: skip
        answer: Literal["pass", "ruled_out", "audited"] = "pass"
        if probability < RULED_OUT_BELOW and estimate.lower_ms > maximum_ms:
            answer = "audited" if is_audited(self._seed, trial) else "ruled_out"
        if answer == "audited" and all(event.detail["trial"] != trial for event in self._ledger.events(AUDIT_EVENT)):
            self._ledger.add_event(
                AUDIT_EVENT, {"trial": trial, "predicted_ms": estimate.latency_ms, "probability": probability}
            )
        return Screened(answer=answer, estimate=estimate, probability=probability, maximum_ms=maximum_ms)

    def predict(self, candidates: Sequence[Candidate]) -> Predicted | None:
        """Latencies of candidates with their intervals; None while too little was measured."""
        calibration = self._refitted()
        return None if calibration is None else calibration.model.predict(self._encoder.encode(candidates))

    def _refitted(self) -> Calibration | None:
        known = {candidate.candidate_id: (candidate, latency) for candidate, latency in self._calibrated}
        for candidate, latency in measured_samples(self._ledger.records(), self._phase):
            known.setdefault(candidate.candidate_id, (candidate, latency))
        if len(known) < LEAST_MEASURED:
            return None
        if len(known) != self._fitted_to:
            try:
                self._calibration = Calibration.fit(
                    fingerprint=self._fingerprint, phase=self._phase, encoder=self._encoder,
                    samples=tuple(known.values()),
                )  # fmt: skip
            except CostModelError:  # a candidate of another space version: nothing is ruled out on its account
                self._calibration = None
            self._fitted_to = len(known)
        return self._calibration


def latency_budget(budgets: Iterable[Budget], phase: str) -> float | None:
    """The latency that a phase may have, in ms; None without such a budget."""
    for budget in budgets:
        if budget.metric == "latency_ms" and budget.phase == phase:
            return budget.maximum
    return None


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
        num_wrong=sum(record.outcome in (Outcome.SCORED, Outcome.DIVERGED) for record in audited),
        seconds_saved=num_ruled_out * float(np.mean(spent)) if spent else 0.0,
    )
