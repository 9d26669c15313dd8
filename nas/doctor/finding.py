"""What one check of `nas doctor` came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line.

    Attributes:
        name: what was checked.
        state: `good`; `warning`: works, with less; `bad`: something will fail; `unknown`: not checked.
        text: what was seen and, unless it is good, what to do.
        figures: numbers behind it, for machines.
    """

    name: str
    state: Literal["good", "warning", "bad", "unknown"]
    text: str
    figures: Mapping[str, float | str | None] = field(default_factory=dict)
