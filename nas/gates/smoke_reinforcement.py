"""The smoke gate of a training by reinforcement: a few updates, watched before the rest is paid for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nas.gates.smoke import SmokeFault

MAX_CLIP_RATIO = 0.5
"""Above it most tokens are cut off: the rollouts are of another policy, or the rate is far too high."""
MIN_PARSED = 0.9
"""Share of answers that must parse at the end, or it must have risen."""


class Update(Protocol):
    """What is watched of an update; `nas.training.grpo.UpdateRecord` is one."""

    @property
    def clip_ratio(self) -> float:
        """Share of tokens whose ratio was clipped."""
        ...

    @property
    def mean_reward(self) -> float:
        """Of the rollouts."""
        ...

    @property
    def parsed_share(self) -> float:
        """Share of answers in which an answer was found."""
        ...

    @property
    def rise_of_better(self) -> float | None:
        """Change of log probability of answers rewarded above their group's mean."""
        ...

    @property
    def rise_of_worse(self) -> float | None:
        """The same below it."""
        ...


def reinforcement_fault(updates: Sequence[Update]) -> SmokeFault | None:
    """What is off about some updates from fresh weights, the earliest cause first; None when nothing is."""
    gaps = [
        each.rise_of_better - each.rise_of_worse
        for each in updates
        if each.rise_of_better is not None and each.rise_of_worse is not None
    ]
    if not gaps:
        return _fault("no group had answers of different reward", "a reward that is constant, or answers all alike")
    gap = sum(gaps) / len(gaps)
    if gap == 0:
        return _fault("no update changed any probability", "a learning rate of zero, or ratios that are all clipped")
    if gap < 0:
        return _fault(
            f"answers above their group's mean reward became less likely than those below it, by {-gap:.3g} nats",
            "a flipped sign of the advantage or of the loss",
        )
    clipped = sum(each.clip_ratio for each in updates) / len(updates)
    if clipped > MAX_CLIP_RATIO:
        return _fault(f"{clipped:.0%} of the tokens were clipped", "stale rollouts, or a learning rate too high")
    first, last = updates[0].parsed_share, updates[-1].parsed_share
    if last < MIN_PARSED and last <= first:
        return _fault(f"{last:.1%} of the answers parse, {first:.1%} at first", "a parser or a reward that never fits")
    return None


def _fault(seen: str, likely_cause: str) -> SmokeFault:
    return SmokeFault(stage="reinforce", seen=seen, likely_cause=likely_cause)
