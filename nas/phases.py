"""Which of a space's phases a study or a command is about: those to time, or the one that was named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nas.budget import Budget, BudgetError, resolve_budgets
from nas.errors import NasError
from search_spaces.candidate import Candidate
from search_spaces.layers import state_bytes
from search_spaces.space import SearchSpace, replay


class PhaseError(NasError):
    """A phase that a space does not have."""


def reference_of(space: SearchSpace) -> tuple[str, Candidate]:
    """Name and network of the space's first reference."""
    name, choices = next(iter(space.references().items()))
    return name, replay(space, choices)


def phase_names(space: SearchSpace) -> tuple[str, ...]:
    """The phases of a space's networks, the primary one first; all its networks have the same."""
    return tuple(phase.name for phase in space.phases(reference_of(space)[1]))


def timed_phases(phases: Sequence[str], budgets: Iterable[Budget]) -> tuple[str, ...]:
    """The phases that a study compiles and times: the primary one, and each that a latency budget names.

    Args:
        phases: names of the space's phases, the primary one first.
        budgets: resolved ones.

    Returns:
        In the space's order, whatever the order of the budgets.

    >>> budgets = [Budget(metric="latency_ms", phase="prefill@256", maximum=60.0)]
    >>> timed_phases(["decode@512", "prefill@512", "decode@256", "prefill@256"], budgets)
    ('decode@512', 'prefill@256')
    >>> timed_phases(["decode@512", "prefill@512"], [])
    ('decode@512',)
    """
    named = {budget.phase for budget in budgets if budget.metric == "latency_ms"}
    return (phases[0], *(phase for phase in phases[1:] if phase in named))


def chosen_phase(name: str | None, phases: Sequence[str]) -> str:
    """The phase of that name; the first one where none was named.

    Raises:
        PhaseError: there is none of that name; the known ones are listed.

    >>> chosen_phase(None, ["decode@512", "prefill@512"])
    'decode@512'
    """
    if name is None:
        return phases[0]
    if name not in phases:
        raise PhaseError(f"phase {name!r} is unknown; allowed: {', '.join(phases)}")
    return name


def study_budgets(budgets: Iterable[Budget], space: SearchSpace) -> tuple[Budget, ...]:
    """Budgets that networks of the space can be held against, their latencies with the name of a phase.

    Raises:
        BudgetError: a phase that the space has not got, two budgets on one thing, or one on the state of
            networks that keep none: nothing could ever meet it.
    """
    phases = phase_names(space)
    resolved = resolve_budgets(budgets, phases)
    for budget in resolved:
        if budget.metric == "state_bytes" and state_bytes(reference_of(space)[1], phases[0]) is None:
            raise BudgetError(
                f"budget {budget}: networks of the space {space.name!r} keep no state between calls; leave it out"
            )
    return resolved
