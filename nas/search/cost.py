"""A cost of networks as a search sees it: its budget, its part in the objectives, where forecasts of it come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from nas.search.cost_belief import Forecast
from nas.search.sampler import LATENCY_ATTRIBUTE, PREDICTED_ATTRIBUTE, RUNG_ATTRIBUTE
from search_spaces.candidate import Candidate
from search_spaces.space import Choices

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

Floats = NDArray[np.float64]


class Forecaster(Protocol):
    """A cost model, or a formula."""

    def forecast(self, candidates: Sequence[Candidate]) -> Forecast | None:
        """What each candidate costs, with standard deviations, 0 for what is known exactly; None: cannot tell yet."""
        ...

    def learn(self, candidates: Sequence[Candidate], measured: Floats) -> None:
        """Everything that was measured so far; a model may fit itself to it, and need not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One cost that is kept within a budget, or made small, or both.

    Attributes:
        name: for people.
        maximum: the budget; None when it is only made small.
        objective: position among the study's values; None when it is only kept within its budget.
        constraint: name of the budget among a trial's constraints, whose value is cost / maximum - 1.
        forecaster: None learns the cost from the study's own trials.
    """

    name: str
    maximum: float | None = None
    objective: int | None = None
    constraint: str | None = None
    forecaster: Forecaster | None = None

    def __post_init__(self) -> None:
        if self.maximum is None and self.objective is None:
            raise ValueError(f"cost {self.name!r}: neither a budget nor an objective; give one of them")
        if (self.maximum is None) != (self.constraint is None):
            raise ValueError(f"cost {self.name!r}: a budget and the name of its constraint come together")

    def known(self, trial: FrozenTrial) -> float | None:
        """What the trial cost; None where nobody knows.

        The constraint is of the upper bound of the interval, which is what has to be within the budget. What was
        predicted counts where the network was trained (see `History.is_measured`): that is where its point lies.
        """
        is_trained = trial.values is not None or RUNG_ATTRIBUTE in trial.user_attrs
        if PREDICTED_ATTRIBUTE in trial.user_attrs and not is_trained:
            return None
        if self.objective is not None and trial.values is not None:
            return float(trial.values[self.objective])
        if self.objective is not None and RUNG_ATTRIBUTE in trial.user_attrs:
            return float(trial.user_attrs[LATENCY_ATTRIBUTE])  # stopped by a rung: no values, but a quality
        if self.constraint in trial.constraints and self.maximum is not None:
            return float((trial.constraints[self.constraint] + 1.0) * self.maximum)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A candidate whose costs were measured outside the study's trials, for instance to calibrate a cost model.

    Attributes:
        choices: what makes it.
        costs: one for each of the sampler's costs; None was not measured.
    """

    choices: Choices
    costs: tuple[float | None, ...]
