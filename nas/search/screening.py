"""Screening: candidates that a cost model is sure about need not be measured.

Those surely over a budget on latency, model size or peak memory are not compiled. Those surely within every one may be
trained before they are measured, where the study asks for that; they are measured when they reach the front. There is
one model for each phase that is timed and each of these costs. It learns from `nas calibrate`, where that was run on
this device, and from every measurement of the study. A share of what it is sure about is measured all the same; from
those we know how often it is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from nas.budget import Budget
from nas.gates.budget import rounded_amount
from nas.ledger import Ledger
from nas.trial import PredictedAmount, TrialRecord
from profilers.cost_model.candidate_terms import CandidateEncoder, Target
from profilers.cost_model.model import CostModel, Predicted
from profilers.cost_model.store import fit_target
from profilers.cost_model.terms import CostModelError
from profilers.measurement import LatencyEstimate
from search_spaces.candidate import Candidate

LEAST_MEASURED = 12
"""Measurements before anything is ruled out: with fewer, a 90% bound is the worst error seen."""
RULED_OUT_BELOW = 0.05
"""A candidate is ruled out when the probability that it meets the budget is below this, and the lower end of
its 90% interval is over the budget; with few measurements no probability is that small."""
TRUSTED_ABOVE = 0.95
"""A candidate is trusted when the probability that it meets each budget is at least this, and the upper end of each
90% interval is within the budget."""
SCREENED_AMOUNTS: tuple[Target, ...] = ("model_bytes", "peak_memory_bytes")
"""Costs besides latencies that a budget can name and a model predicts."""
AUDIT_SHARE = 0.15
AUDIT_EVENT = "screening_audit"

Sample = tuple[Candidate, float]
Answer = Literal["unknown", "pass", "ruled_out", "trusted", "audited"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What a model says of one candidate's cost in one phase, in the unit of the cost.

    Attributes:
        value: the best guess.
        lower, upper: ends of the 90% interval.
        probability: of costing at most what a budget allows; None where none was given.
    """

    value: float
    lower: float
    upper: float
    probability: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What the cost models say of one candidate.

    Attributes:
        answer: `unknown` (no budget has a model with enough measurements), `pass` (measure it), `ruled_out`, `trusted`
            (surely within all budgets on latency, model size and memory), or `audited`: one of these two, and measured
            all the same.
        estimates: (phase, prediction) of every phase that has a model, the primary one first.
        amounts: predictions of other costs that have a budget.
        budget: the one that is least likely to be met; None when unknown.
        guess: what is said of that budget.
    """

    answer: Answer
    estimates: tuple[tuple[str, LatencyEstimate], ...] = ()
    amounts: tuple[PredictedAmount, ...] = ()
    budget: Budget | None = None
    guess: Guess | None = None

    @property
    def prediction(self) -> str:
        """The prediction for `budget`, for people."""
        assert self.budget is not None and self.guess is not None, "of what is known"
        low, best, high = (
            rounded_amount(self.budget.metric, each) for each in (self.guess.lower, self.guess.value, self.guess.upper)
        )
        return f"{best}, {low} to {high}"


UNKNOWN = Screened(answer="unknown")


class PhaseModel:
    """A model of one cost in one phase, fitted to what was measured so far; the same measurements, the same answers."""

    def __init__(
        self, *, encoder: CandidateEncoder, phase: str, ledger: Ledger, calibrated: Sequence[Sample] = (),
        target: Target = "latency_ms", learns: bool = True,
    ) -> None:  # fmt: skip
        """Learns from `calibrated`, and from the measured trials of `ledger` unless `learns` is False.

        Raises:
            CostModelError: the encoder is of another phase.
        """
        if encoder.phase not in (None, phase):
            raise CostModelError(f"the encoder is of phase {encoder.phase!r}, the model of {phase!r}")
        self.phase = phase
        self.target: Target = target
        self._encoder = encoder
        self._ledger = ledger
        self._calibrated = tuple(calibrated)
        self._learns = learns
        self._fitted_to = -1
        self._model: CostModel | None = None

    def predict(self, candidates: Sequence[Candidate]) -> Predicted | None:
        """Costs of candidates with their intervals; None while too little was measured."""
        model = self._refitted()
        return None if model is None else model.predict(self._encoder.encode(candidates, self.target))

    def expect(self, candidate: Candidate, maximum: float | None) -> Guess | None:
        """The prediction for one candidate, and the probability that it costs at most `maximum`.

        Returns:
            None while too little was measured; no probability without a maximum.
        """
        model = self._refitted()  # once for both: it reads the whole ledger
        if model is None:
            return None
        encoded = self._encoder.encode([candidate], self.target)
        seen = model.predict(encoded)
        return Guess(
            value=float(seen.latency_ms[0]), lower=float(seen.lower_ms[0]), upper=float(seen.upper_ms[0]),
            probability=None if maximum is None else float(model.probability_within(encoded, maximum)[0]),
        )  # fmt: skip

    def _refitted(self) -> CostModel | None:
        known = {candidate.candidate_id: (candidate, amount) for candidate, amount in self._calibrated}
        for candidate, amount in self._of_the_study():
            known.setdefault(candidate.candidate_id, (candidate, amount))
        if len(known) < LEAST_MEASURED:
            return None
        if len(known) != self._fitted_to:
            try:
                self._model = fit_target(self._encoder, self.target, tuple(known.values()))
            except CostModelError:  # a candidate of another space version: nothing is ruled out on its account
                self._model = None
            self._fitted_to = len(known)
        return self._model

    def _of_the_study(self) -> list[Sample]:
        if not self._learns:
            return []
        records = self._ledger.records()
        if self.target == "latency_ms":
            return measured_samples(records, self.phase)
        return measured_amounts(records, self.target)


class Screener:
    """Judges candidates by the models of all timed phases."""

    def __init__(
        self,
        models: Sequence[PhaseModel],
        *,
        seed: int,
        ledger: Ledger,
        trusts: bool = False,
        amounts: Sequence[PhaseModel] = (),
    ) -> None:
        """Takes the models of a study.

        Args:
            models: of latencies, one a timed phase, that of the primary phase first.
            seed: of the study.
            ledger: of the study.
            trusts: whether any answer is `trusted`.
            amounts: models of other costs, for any of the phases.
        """
        self.models = {model.phase: model for model in models}
        self._amounts = tuple(amounts)
        self._trusts = trusts
        self._seed = seed
        self._ledger = ledger

    def judge(self, trial: int, candidate: Candidate, budgets: tuple[Budget, ...]) -> Screened:
        """Whether a candidate is worth compiling: not when it is surely over any one budget.

        Nor now when it is surely within all of them, and every timed phase has a prediction of its latency and of what
        else is budgeted. An audit is noted in the ledger before it is made.
        """
        held: list[_Held] = []
        estimates: dict[str, LatencyEstimate] = {}
        for phase, model in self.models.items():
            budget = next((each for each in budgets if each.metric == "latency_ms" and each.phase == phase), None)
            guess = model.expect(candidate, None if budget is None else budget.maximum)
            if guess is None:
                continue
            estimates[phase] = LatencyEstimate(
                latency_ms=guess.value, lower_ms=guess.lower, upper_ms=guess.upper, source="predicted"
            )
            if budget is not None:
                held.append(_Held(budget=budget, phase=phase, guess=guess))
        amounts = self._hold_amounts(candidate, budgets)
        held += amounts
        if not held:
            return UNKNOWN
        # Those surely over come first. Of equals the earlier one: it is named as the reason.
        worst = min(held, key=lambda each: (not each.is_over, each.probability))
        answer: Answer = "ruled_out" if worst.is_over else "pass"
        is_complete = len(estimates) == len(self.models) and len(amounts) == len(self.models) * sum(
            budget.metric in SCREENED_AMOUNTS for budget in budgets
        )
        if self._trusts and is_complete and all(each.is_within for each in held):
            answer = "trusted"
        if answer != "pass" and is_audited(self._seed, trial):
            self._note_audit(trial, worst, answer)
            answer = "audited"
        return Screened(
            answer=answer, estimates=tuple(estimates.items()), amounts=_largest(amounts), budget=worst.budget,
            guess=worst.guess,
        )  # fmt: skip

    def _hold_amounts(self, candidate: Candidate, budgets: tuple[Budget, ...]) -> list[_Held]:
        held = []
        for budget in budgets:
            for model in self._amounts:
                guess = model.expect(candidate, budget.maximum) if model.target == budget.metric else None
                if guess is not None:
                    held.append(_Held(budget=budget, phase=model.phase, guess=guess))
        return held

    def _note_audit(self, trial: int, worst: _Held, answer: Answer) -> None:
        if all(event.detail["trial"] != trial for event in self._ledger.events(AUDIT_EVENT)):
            name = "predicted_ms" if worst.budget.metric == "latency_ms" else "predicted"
            detail = {
                "trial": trial, "phase": worst.phase, "metric": worst.budget.metric, name: worst.guess.value,
                "probability": worst.probability, "answer": answer,
            }  # fmt: skip
            self._ledger.add_event(AUDIT_EVENT, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A prediction held against a budget."""

    budget: Budget
    phase: str
    guess: Guess

    @property
    def probability(self) -> float:
        assert self.guess.probability is not None, "there is a maximum"
        return self.guess.probability

    @property
    def is_over(self) -> bool:
        return self.probability < RULED_OUT_BELOW and self.guess.lower > self.budget.maximum

    @property
    def is_within(self) -> bool:
        return self.probability >= TRUSTED_ABOVE and self.guess.upper <= self.budget.maximum


def _largest(held: Sequence[_Held]) -> tuple[PredictedAmount, ...]:
    """Of each cost, over the phases: what is measured is that of the phase that takes most."""
    amounts = []
    for metric in dict.fromkeys(each.budget.metric for each in held):
        guesses = [each.guess for each in held if each.budget.metric == metric]
        amounts.append(
            PredictedAmount(
                metric=metric,
                value=max(each.value for each in guesses),
                lower=max(each.lower for each in guesses),
                upper=max(each.upper for each in guesses),
            )
        )
    return tuple(amounts)


def is_audited(seed: int, trial: int) -> bool:
    """Whether a candidate that the model is sure about is measured all the same: decided by study and trial alone."""
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


def measured_amounts(records: Iterable[TrialRecord], target: Target) -> list[Sample]:
    """Candidates with a measured model size or peak memory, in the order of their trials."""
    samples = []
    for record in records:
        amount = getattr(record.cost, target) if record.cost is not None and record.duplicate_of is None else None
        if amount is not None:
            samples.append((record.candidate, at_least_a_page(float(amount))))
    return samples


def at_least_a_page(num_bytes: float) -> float:
    """A measured number of bytes, which a model takes logarithms of: nothing measured is a page, the least that shows.

    >>> at_least_a_page(0.0), at_least_a_page(1e6)
    (4096.0, 1000000.0)
    """
    return max(num_bytes, 4096.0)
