"""What screening did in a study: how many measurements it saved, and how often the checks found it wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nas.ledger import Ledger
from nas.search.screening import AUDIT_EVENT
from nas.trial import Outcome, TrialRecord

MEASURING_STAGES = ("tune", "compile", "profile")
"""Stages that a candidate which is not measured does not go through."""
_WITHIN_BUDGET = (Outcome.SCORED, Outcome.STOPPED_EARLY, Outcome.DIVERGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreeningReport:
    """What screening did in a study.

    Attributes:
        num_ruled_out: trials that were predicted over a budget, and not compiled.
        num_audited: trials that were ruled out and measured all the same.
        num_wrong: of these, the ones that met the budget.
        num_trusted: trials that were predicted within every budget, and trained without being measured.
        num_trusted_audited: trials that would have been, and were measured all the same.
        num_trusted_wrong: of these, the ones over budget.
        seconds_saved: what compiling and measuring all of those would have taken, at the mean of the others; an
            estimate.
    """

    num_ruled_out: int
    num_audited: int
    num_wrong: int
    num_trusted: int
    num_trusted_audited: int
    num_trusted_wrong: int
    seconds_saved: float

    @property
    def is_empty(self) -> bool:
        """Whether the model was never sure of anything."""
        return not (self.num_ruled_out or self.num_audited or self.num_trusted or self.num_trusted_audited)

    def __str__(self) -> str:
        parts = []
        if self.num_ruled_out or self.num_audited:
            parts.append(
                f"{self.num_ruled_out} candidates were predicted over budget and not measured;"
                f" {self.num_audited} more were measured to check, {self.num_wrong} of them met the budget after all"
            )
        if self.num_trusted or self.num_trusted_audited:
            parts.append(
                f"{self.num_trusted} were predicted within the budgets and trained unmeasured;"
                f" {self.num_trusted_audited} more were measured to check, {self.num_trusted_wrong} of them were over"
            )
        return f"screening: {'; '.join(parts) or 'nothing was sure'} (about {self.seconds_saved:.0f} s saved)"


def screening_report(ledger: Ledger) -> ScreeningReport:
    """Counts what was not measured, and how often the audit found that wrong."""
    records = {record.trial: record for record in ledger.records() if record.duplicate_of is None}
    checked: dict[str, list[TrialRecord]] = {"ruled_out": [], "trusted": []}
    for event in ledger.events(AUDIT_EVENT):
        if event.detail["trial"] in records:  # audits of before there was trust name no answer
            checked[event.detail.get("answer", "ruled_out")].append(records[event.detail["trial"]])
    num_ruled_out = sum(record.outcome is Outcome.PREDICTED_OVER_BUDGET for record in records.values())
    num_trusted = sum(map(is_trusted, records.values()))
    spent = [
        sum(amount for stage, amount in record.seconds if stage in MEASURING_STAGES)
        for record in records.values()
        if record.cost is not None and record.cost.is_measured
    ]
    return ScreeningReport(
        num_ruled_out=num_ruled_out,
        num_audited=len(checked["ruled_out"]),
        num_wrong=sum(record.outcome in _WITHIN_BUDGET for record in checked["ruled_out"]),
        num_trusted=num_trusted,
        num_trusted_audited=len(checked["trusted"]),
        num_trusted_wrong=sum(record.outcome is Outcome.OVER_BUDGET for record in checked["trusted"]),
        seconds_saved=(num_ruled_out + num_trusted) * float(np.mean(spent)) if spent else 0.0,
    )


def is_trusted(record: TrialRecord) -> bool:
    """Whether a trial was trained, or was to be, without being measured."""
    is_unmeasured = record.cost is not None and not record.cost.is_measured
    return is_unmeasured and record.outcome is not Outcome.PREDICTED_OVER_BUDGET
