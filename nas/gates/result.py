"""What a gate says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Whether a gate let the study pass, why, and the figures behind it.

    Attributes:
        passed: False blocks publication.
        reason: one line, for a person; given in both cases.
        figures: (name with unit, number or text), for instance `(("largest_difference", 2e-6),)`.
    """

    passed: bool
    reason: str
    figures: tuple[tuple[str, float | int | str | None], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.figures]
        if len({*names, "passed", "reason"}) != len(names) + 2:
            raise ValueError(f"gate figures {names}: names must be unique, and not `passed` or `reason`")
