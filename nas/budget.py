"""What a candidate may cost at most: a budget, read from and printed as text such as `latency=5ms`."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from nas.errors import NasError

Metric = Literal["latency_ms", "num_params", "model_bytes", "peak_memory_bytes", "state_bytes"]

_TIME = {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}
_BYTES = {
    "B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30,
}  # fmt: skip
_COUNT = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}

_UNITS: dict[Metric, dict[str, float]] = {
    "latency_ms": _TIME,
    "num_params": _COUNT,
    "model_bytes": _BYTES,
    "peak_memory_bytes": _BYTES,
    "state_bytes": _BYTES,
}
"""Unit -> factor to the metric's base unit: milliseconds, a count, bytes."""

_NAMES: dict[str, Metric] = {
    "latency": "latency_ms",
    "params": "num_params",
    "model": "model_bytes",
    "memory": "peak_memory_bytes",
    "state": "state_bytes",
}

_ANY_UNIT = "|".join(sorted({unit for units in _UNITS.values() for unit in units if unit}, key=len, reverse=True))
_SYNTAX = re.compile(
    r"\s*(?:(?P<name>[^=]*?)\s*=)?\s*"
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)(?=\s*(?:" + _ANY_UNIT + r")?\s*$))"
    r"\s*(?P<unit>[A-Za-zµ]*)\s*",
    re.ASCII,
)
_PHASE = re.compile(r"[A-Za-z][A-Za-z0-9_]*(@[0-9]+)?")
_EXAMPLE_OF: dict[Metric, str] = {
    "latency_ms": "latency=5ms",
    "num_params": "params=200k",
    "model_bytes": "model=1MB",
    "peak_memory_bytes": "memory=64MiB",
    "state_bytes": "state=64KiB",
}
_EXAMPLES = "5ms, latency=5ms, decode@512=8ms, params=200k, model=1MB, memory=64MiB, state=64KiB"


class BudgetError(NasError, ValueError):
    """A budget that cannot be: one line with what was seen, what is allowed and an example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """An upper bound on one cost.

    Attributes:
        metric: what is bounded; its name ends in the base unit.
        phase: the timed entry point, for `latency_ms` only; None means the space's first phase.
        maximum: the bound in the base unit: milliseconds, parameters, or bytes.
    """

    metric: Metric
    phase: str | None = None
    maximum: float

    def __post_init__(self) -> None:
        if self.metric not in get_args(Metric):
            raise BudgetError(f"budget: unknown metric {self.metric!r}; allowed: {', '.join(get_args(Metric))}")
        if not (math.isfinite(self.maximum) and self.maximum > 0):
            raise BudgetError(
                f"budget: maximum {self.maximum!r} for {self.metric}; allowed: a finite number above 0, as in 5ms"
            )
        if self.phase is not None and self.metric != "latency_ms":
            raise BudgetError(
                f"budget: {self.metric} has phase {self.phase!r}; only a latency has one, as in infer=5ms"
            )
        if self.phase is not None and (not _PHASE.fullmatch(self.phase) or self.phase in _NAMES):
            raise BudgetError(
                f"budget: {self.phase!r} is not the name of a phase; allowed: names like infer, decode@512"
            )

    def __str__(self) -> str:
        """Canonical text, which `parse_budget` reads back to an equal budget."""
        name = self.phase or next(name for name, metric in _NAMES.items() if metric == self.metric)
        return f"{name}={format_amount(self.metric, self.maximum)}"


def format_amount(metric: Metric, amount: float) -> str:
    """`amount` in the base unit of `metric` as exact text with a unit.

    Latency is always in ms. Counts and bytes take the largest unit that leaves a whole number.

    >>> format_amount("latency_ms", 0.8), format_amount("num_params", 2e5), format_amount("model_bytes", 2**26)
    ('0.8ms', '200k', '64MiB')
    """
    amount = float(amount)  # a count may come as an int, which has no is_integer before Python 3.12
    if metric == "latency_ms":
        return _plain(amount) + "ms"
    units = _UNITS[metric]
    for unit in sorted(units, key=lambda unit: (-units[unit], unit != "kB")):
        whole = amount / units[unit]
        if whole >= 1 and whole.is_integer() and whole < 1e6:
            return f"{int(whole)}{unit}"
    return _plain(amount) + ("" if metric == "num_params" else "B")


def parse_budget(text: str) -> Budget:
    """Reads a budget: `[metric or phase =] number unit`.

    A bare duration is the latency of the space's first phase; a name that is no metric is a
    phase (`infer=800us`). Whether the space has that phase is for `resolve_budgets` to say.

    Raises:
        BudgetError: unit missing, unknown unit or metric, or a maximum that is not a finite number above 0.

    >>> parse_budget("infer=800us")
    Budget(metric='latency_ms', phase='infer', maximum=0.8)
    >>> parse_budget("params=200k").maximum
    200000.0
    """
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise BudgetError(f"budget {text!r}: allowed: [metric or phase =] number and unit; for instance {_EXAMPLES}")
    name, unit = match["name"], match["unit"]
    metric, phase = _metric_and_phase(text, name, unit)
    number = float(match["number"])
    if not math.isfinite(number) or number <= 0:
        raise BudgetError(
            f"budget {text!r}: {match['number']} is not allowed; a budget is a finite number above 0, for instance 5ms"
        )
    units = _UNITS[metric]
    if unit not in units:
        seen = f"unknown unit {unit!r}" if unit else "the unit is missing"
        allowed = ", ".join(unit for unit in units if unit)
        raise BudgetError(f"budget {text!r}: {seen}; allowed: {allowed}; for instance {_EXAMPLE_OF[metric]}")
    maximum = number * units[unit]
    if not 0 < maximum < math.inf:
        raise BudgetError(f"budget {text!r}: too {'large' if maximum else 'small'} a number; for instance {_EXAMPLES}")
    return Budget(metric=metric, phase=phase, maximum=maximum)


def _metric_and_phase(text: str, name: str | None, unit: str) -> tuple[Metric, str | None]:
    """What `name` bounds; a bare duration (no name) is the latency of the first phase."""
    if name is None:
        if unit in _BYTES or (unit and unit in _COUNT):
            raise BudgetError(
                f"budget {text!r}: say what is bounded; for instance params=200k, model=1MB, memory=64MiB"
            )
        return "latency_ms", None
    if name in _NAMES:
        return _NAMES[name], None
    # A mistyped metric must not become the name of a phase nobody has.
    close = difflib.get_close_matches(name, [*_NAMES, *_NAMES.values()], n=1, cutoff=0.75)
    if not close and unit in _TIME and _PHASE.fullmatch(name):
        return "latency_ms", name
    hint = ""
    if close:
        meant = close[0] if close[0] in _NAMES else next(key for key in _NAMES if _NAMES[key] == close[0])
        hint = f" (did you mean {meant}?)"
    raise BudgetError(
        f"budget {text!r}: unknown metric {name!r}{hint}; allowed: {', '.join(_NAMES)},"
        f" or a phase with a duration; for instance {_EXAMPLES}"
    )


def contradictions(budgets: Iterable[Budget]) -> list[str]:
    """One line for each budget that bounds what an earlier one already bounds.

    >>> contradictions([parse_budget("5ms"), parse_budget("latency=4ms")])
    ['latency=5ms and latency=4ms bound the same thing; keep one']
    """
    first: dict[tuple[str, str | None], Budget] = {}
    lines = []
    for budget in budgets:
        earlier = first.setdefault((budget.metric, budget.phase), budget)
        if earlier is not budget:
            lines.append(f"{earlier} and {budget} bound the same thing; keep one")
    return lines


def resolve_budgets(budgets: Iterable[Budget], phases: Sequence[str]) -> tuple[Budget, ...]:
    """Budgets whose latencies name a phase of the space: None becomes the first one.

    Args:
        budgets: as parsed.
        phases: names of the space's phases, the most important first.

    Raises:
        BudgetError: a phase the space does not have, or two budgets on the same thing.

    >>> [str(budget) for budget in resolve_budgets([parse_budget("5ms"), parse_budget("model=1MB")], ["infer"])]
    ['infer=5ms', 'model=1MB']
    """
    resolved = []
    for budget in budgets:
        if budget.metric == "latency_ms" and budget.phase not in (None, *phases):
            raise BudgetError(f"budget {budget}: the space has no phase {budget.phase!r}; it has {', '.join(phases)}")
        is_default = budget.metric == "latency_ms" and budget.phase is None
        resolved.append(replace(budget, phase=phases[0]) if is_default else budget)
    if lines := contradictions(resolved):
        raise BudgetError("budgets: " + "; ".join(lines))
    return tuple(resolved)


def latency_budget(budgets: Iterable[Budget], phase: str) -> float | None:
    """The latency that a phase may have, in ms; None without such a budget.

    >>> latency_budget([parse_budget("decode@512=8ms")], "decode@512")
    8.0
    """
    for budget in budgets:
        if budget.metric == "latency_ms" and budget.phase == phase:
            return budget.maximum
    return None


def _plain(number: float) -> str:
    """Shortest text that reads back to the same float, without a useless `.0`."""
    return str(int(number)) if number.is_integer() and number < 1e15 else repr(number)
