from __future__ import annotations

import pytest

from nas.gates.result import GateResult


@pytest.mark.parametrize("names", [("a", "a"), ("passed",), ("reason",)])
def test_names_of_figures_are_unique_and_not_taken(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="unique"):
        GateResult(passed=True, reason="r", figures=tuple((name, 1) for name in names))
