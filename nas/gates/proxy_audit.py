"""The proxy audit: does the order after short training hold after long training?

Kendall's tau-b (Kendall 1945, "The treatment of ties in ranking problems", Biometrika 33) between the
two, with a bootstrap interval over candidates, the pairs that flipped, and what choosing by the short
training costs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from nas.front import Direction
from nas.gates.result import GateResult

MIN_TAU = 0.6
"""Least tau of a proxy that may choose: 4 of 5 pairs in the right order."""
MIN_CANDIDATES = 5
"""Below this many candidates tau says nothing: with 4, chance alone reaches 0.6 one time in six."""
NUM_RESAMPLES = 1000
SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAudit:
    """Two orders of the same candidates compared.

    Attributes:
        what: `proxy` (short against long training) or `latency` (predicted against measured).
        candidates: ids.
        cheap, dear: value of each candidate by the cheap way and by the one that is believed.
        direction: which values are better.
        tau, lower, upper: Kendall's tau-b with its 95% bootstrap interval; None when one side is constant.
        flipped: pairs of ids in another order; ties are not counted.
        regret: by how much the best candidate by the cheap way is worse than the best, both by the dear one.
        cost_share: cost of the cheap way over that of the dear one.
        needed_factor: how many times longer the proxy must be for tau to reach the threshold, an
            estimate from the curves of the long trainings; None when it need not be, or is unknown.
    """

    what: str
    candidates: tuple[str, ...]
    cheap: tuple[float, ...]
    dear: tuple[float, ...]
    direction: Direction
    tau: float | None
    lower: float | None
    upper: float | None
    flipped: tuple[tuple[str, str], ...]
    regret: float
    cost_share: float | None = None
    needed_factor: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OrderAudit:
        """The inverse of `to_json`."""
        lists = {name: tuple(data[name]) for name in ("candidates", "cheap", "dear")}
        return cls(**{**data, **lists, "flipped": tuple((left, right) for left, right in data["flipped"])})


def compare_orders(
    what: str,
    candidates: Sequence[str],
    cheap: Sequence[float],
    dear: Sequence[float],
    direction: Direction,
    *,
    seed: int = 0,
    cost_share: float | None = None,
    curves: Sequence[Sequence[float]] = (),
) -> OrderAudit:
    """Compares two orders.

    Args:
        what, candidates, cheap, dear, direction, cost_share: as in `OrderAudit`.
        seed: of the bootstrap.
        curves: of each candidate the dear value after each part of the dear training, the last one last.

    Raises:
        ValueError: sequences of different lengths, or fewer than two candidates.
    """
    if not len(candidates) == len(cheap) == len(dear) or len(candidates) < 2:
        raise ValueError(
            f"{len(candidates)} candidates, {len(cheap)} and {len(dear)} values; needs two or more of each"
        )
    sign = 1.0 if direction == "maximize" else -1.0
    chosen = max(range(len(cheap)), key=lambda index: sign * cheap[index])
    tau = kendall_tau(cheap, dear)
    lower, upper = _bootstrap(cheap, dear, seed)
    needed = None if tau is not None and tau >= MIN_TAU else _needed_factor(dear, curves, cost_share)
    return OrderAudit(
        what=what,
        candidates=tuple(candidates),
        cheap=tuple(cheap),
        dear=tuple(dear),
        direction=direction,
        tau=tau,
        lower=lower,
        upper=upper,
        flipped=tuple(
            (candidates[left], candidates[right])
            for left, right in combinations(range(len(cheap)), 2)
            if (cheap[left] - cheap[right]) * (dear[left] - dear[right]) < 0
        ),
        regret=max(sign * value for value in dear) - sign * dear[chosen],
        cost_share=cost_share,
        needed_factor=needed,
    )


def kendall_tau(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Kendall's tau-b; None when one side is all ties, as there is no order then.

    >>> kendall_tau([1, 2, 3], [1, 3, 2]), kendall_tau([1, 1], [1, 2])
    (0.33333333333333337, None)
    """
    from scipy.stats import kendalltau

    tau = float(kendalltau(left, right).statistic)
    return None if math.isnan(tau) else tau


def _bootstrap(left: Sequence[float], right: Sequence[float], seed: int) -> tuple[float | None, float | None]:
    """The 95% percentile interval over resampled candidates (Efron 1979)."""
    generator, size = random.Random(seed), len(left)
    draws = ([generator.randrange(size) for _ in range(size)] for _ in range(NUM_RESAMPLES))
    taus = (kendall_tau([left[index] for index in draw], [right[index] for index in draw]) for draw in draws)
    known = sorted(tau for tau in taus if tau is not None)
    if not known:
        return None, None
    return known[int(0.025 * (len(known) - 1))], known[math.ceil(0.975 * (len(known) - 1))]


def _needed_factor(dear: Sequence[float], curves: Sequence[Sequence[float]], cost_share: float | None) -> float | None:
    """The first part of the long training from which on its order agrees with its end, over the proxy's length."""
    length = min((len(curve) for curve in curves), default=0)
    if not length or not cost_share:
        return None
    first = length
    for part in reversed(range(length)):
        tau = kendall_tau([curve[part] for curve in curves], dear)
        if tau is None or tau < MIN_TAU:
            break
        first = part + 1
    return max(2.0, math.ceil(first / length / cost_share))


def order_gate(audit: OrderAudit | None) -> GateResult:
    """Below the threshold an order decided nothing, and a front chosen by it must not be published.

    Not audited is not failed: an audit costs more than the search, so it is asked for (`nas audit`).
    """
    if audit is None:
        return GateResult(passed=True, reason="not audited; `nas audit STUDY` does it", figures=(("audited", 0),))
    figures: tuple[tuple[str, float | int | str | None], ...] = (
        ("audited", len(audit.candidates)), ("tau", audit.tau), ("tau_lower", audit.lower), ("tau_upper", audit.upper),
        ("minimum", MIN_TAU), ("flipped_pairs", len(audit.flipped)), ("regret", audit.regret),
        ("cost_share", audit.cost_share),
    )  # fmt: skip
    if len(audit.candidates) < MIN_CANDIDATES:
        reason = (
            f"only {len(audit.candidates)} candidates to compare, at least {MIN_CANDIDATES} needed; nothing is said"
        )
        return GateResult(passed=True, reason=reason, figures=figures)
    cheap, dear = ("short", "long training") if audit.what == "proxy" else ("predicted", "measured latency")
    seen = "undefined" if audit.tau is None else f"{audit.tau:.2f}"
    if audit.lower is not None and audit.upper is not None:
        seen += f" ({audit.lower:.2f} to {audit.upper:.2f})"
    line = f"Kendall's tau between {cheap} and {dear} is {seen} over {len(audit.candidates)} candidates"
    if audit.tau is not None and audit.tau >= MIN_TAU:
        return GateResult(passed=True, reason=f"{line}; regret {audit.regret:.3g}", figures=figures)
    pairs = ", ".join(f"{left}/{right}" for left, right in audit.flipped[:SHOWN])
    advice = "" if audit.what != "proxy" else (
        f"; train about {audit.needed_factor:g} times longer" if audit.needed_factor else "; train longer"
    )  # fmt: skip
    reason = (
        f"{line}, below {MIN_TAU:g}: {len(audit.flipped)} pairs flipped ({pairs}), regret {audit.regret:.3g}{advice}"
    )
    return GateResult(passed=False, reason=reason, figures=figures)
