"""Held-out scores by class or domain: a fine mean must not hide a part that collapsed."""

from __future__ import annotations

from nas.front import Direction
from nas.training.score import HeldOutScore

MAX_FALL = 0.15
"""A slice may be worse than the reference network's by this much of the metric before a network is marked: with 36
examples a slice, as on digits, chance alone moves an accuracy of 0.9 by up to 0.14 (95%, difference of two)."""


def worst_slice(score: HeldOutScore, direction: Direction) -> tuple[str, float] | None:
    """The worst part and its value; None when the score has no parts.

    >>> from nas.search.testing import made_up_score
    >>> worst_slice(made_up_score(300, "val"), "maximize") is None
    True
    """
    sign = 1.0 if direction == "maximize" else -1.0
    return min(score.slices, key=lambda pair: (sign * pair[1], pair[0]), default=None)


def slice_miss(score: HeldOutScore, min_slice: float | None, direction: Direction) -> str | None:
    """Why a network's worst slice rules it out; None when it does not, or nothing was asked.

    A score without slices fails the constraint: what was not looked at is not met.
    """
    if min_slice is None:
        return None
    worst = worst_slice(score, direction)
    if worst is None:
        return f"no score by slice, but --min-slice {min_slice:g} was asked for"
    name, value = worst
    misses = value < min_slice if direction == "maximize" else value > min_slice
    return f"slice {name!r} scores {value:.3f} on val, --min-slice is {min_slice:g}" if misses else None


def fallen_slices(
    score: HeldOutScore, reference: HeldOutScore | None, direction: Direction, max_fall: float = MAX_FALL
) -> tuple[str, ...]:
    """One line for each slice that fell from the reference's by more than `max_fall`, the worst first.

    A score of one slice has no parts: what it says is said by the score.
    """
    if reference is None or len(score.slices) < 2:
        return ()
    sign = 1.0 if direction == "maximize" else -1.0
    before = dict(reference.slices)
    falls = sorted(
        ((sign * (before[name] - value), name, value) for name, value in score.slices if name in before), reverse=True
    )
    return tuple(
        f"slice {name!r} {'fell' if sign > 0 else 'rose'} to {value:.3f}, the reference network has {before[name]:.3f}"
        for fall, name, value in falls
        if fall > max_fall
    )
