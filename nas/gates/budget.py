"""The budget gate: what a candidate may cost, and by how much it costs more."""

from __future__ import annotations

from nas.budget import Budget, Metric, format_amount
from nas.trial import CandidateCost
from profilers.measurement import BudgetVerdict, verdict


def spent(budget: Budget, cost: CandidateCost) -> tuple[float, float] | None:
    """What a candidate uses of a resolved budget, in the budget's base unit.

    Returns:
        Lower and upper bound, equal for what is counted; of a candidate that was not measured, those of its prediction.
        None when nothing is known.
    """
    if budget.metric == "latency_ms":
        estimate = cost.latency(budget.phase) if budget.phase else None
        return None if estimate is None else (estimate.lower_ms, estimate.upper_ms)
    amount = getattr(cost, budget.metric)
    if amount is not None:
        return amount, amount
    guess = cost.predicted(budget.metric)
    return None if guess is None else (guess.lower, guess.upper)


def budget_verdict(budgets: tuple[Budget, ...], cost: CandidateCost) -> BudgetVerdict | None:
    """The verdict over all budgets: the worst one; None when one of them was never measured."""
    verdicts: list[BudgetVerdict] = []
    for budget in budgets:
        amount = spent(budget, cost)
        if amount is None:
            return None
        verdicts.append(verdict(*amount, budget.maximum))
    worst_first: tuple[BudgetVerdict, ...] = ("misses", "undecided")
    return next((worst for worst in worst_first if worst in verdicts), "meets")


def violations(budgets: tuple[Budget, ...], cost: CandidateCost) -> tuple[tuple[str, float], ...]:
    """(budget, relative excess of its upper bound) for each budget; at most 0 where it is met.

    Relative, so that milliseconds and bytes weigh the same where a sampler adds them up. The
    upper bound, so that a candidate in doubt counts as a miss. A phase that was left out, because an
    earlier one was over its budget already, has no entry.

    Raises:
        ValueError: a budget's metric was never measured, and no other phase's miss is the reason for that; such a
            candidate must not get this far.
    """
    result: list[tuple[str, float]] = []
    unknown: list[Budget] = []
    for budget in budgets:
        amount = spent(budget, cost)
        if amount is None:
            unknown.append(budget)
        else:
            result.append((str(budget), amount[1] / budget.maximum - 1.0))
    is_over = any(excess > 0 for _, excess in result)
    for budget in unknown:
        if budget.metric != "latency_ms" or not is_over:
            raise ValueError(f"budget {budget}: this candidate's {budget.metric} was never measured")
    return tuple(result)


def predicted_violations(budgets: tuple[Budget, ...], cost: CandidateCost) -> tuple[tuple[str, float], ...]:
    """As `violations`, for a candidate that was not measured: best guesses, and only of what is known."""
    result = []
    for budget in budgets:
        estimate = cost.latency(budget.phase) if budget.metric == "latency_ms" and budget.phase else None
        amount = estimate.latency_ms if estimate is not None else getattr(cost, budget.metric, None)
        guess = cost.predicted(budget.metric)
        if amount is None and guess is not None:
            amount = guess.value
        if amount is not None:
            result.append((str(budget), amount / budget.maximum - 1.0))
    return tuple(result)


def explain_miss(budgets: tuple[Budget, ...], cost: CandidateCost) -> str:
    """One line that names each budget that is not met, and what was seen."""
    parts = []
    for budget in budgets:
        amount = spent(budget, cost)
        if amount is None:
            parts.append(f"{budget}: {budget.metric} was not measured")
        elif amount[1] > budget.maximum:
            low, high = (rounded_amount(budget.metric, bound) for bound in amount)
            seen = high if amount[0] == amount[1] else f"{low} to {high}"
            doubt = ", undecided after all looks" if amount[0] <= budget.maximum else ""
            parts.append(f"{budget}: seen {seen}{doubt}")
    return "; ".join(parts)


def rounded_amount(metric: Metric, amount: float) -> str:
    """Latencies to four digits, which is finer than any interval; whole numbers exactly, and no half bytes.

    >>> rounded_amount("latency_ms", 1.23456), rounded_amount("peak_memory_bytes", 2.0**20)
    ('1.235ms', '1MiB')
    """
    return format_amount(metric, float(f"{amount:.4g}") if metric == "latency_ms" else round(amount))
