"""What a replay compares: searches that people use today, and `BudgetSampler`, behind one way of asking."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from nas.bench.table_problem import TableProblem, TableSource
from nas.bench.tables import Choice
from nas.front import non_dominated
from nas.search.cost_belief import Forecast
from profilers.cost_model.model import MIN_SAMPLES, CostModel

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

NORMAL_90 = 1.645
"""Deviations of a normal distribution on either side within which 90% lie."""

BUDGET = "budget"
"""Name of the one constraint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One evaluated architecture, as a method is told: its quality may be noisy."""

    row: int
    quality: float
    latency_ms: float


class Method(Protocol):
    """A search method at work on one problem with one seed."""

    def ask(self) -> int:
        """The row to evaluate next."""
        ...

    def tell(self, seen: Seen) -> None:
        """The result of the row that was asked for last."""
        ...


class OptunaMethod:
    """Any Optuna sampler, with the latency as second objective and the budget as constraint.

    Args:
        problem: whose choices it is asked for.
        sampler: of Optuna, or `BudgetSampler`.
    """

    def __init__(self, problem: TableProblem, sampler: BaseSampler) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._problem = problem
        self._study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
        self._trial: optuna.Trial | None = None

    def _ask(self) -> int:
        self._trial = self._study.ask()
        choices: dict[str, Choice] = {}
        for name, answers in self._problem.answers.items():
            answer = self._trial.suggest_categorical(name, list(answers))
            assert isinstance(answer, str | float)
            choices[name] = answer
        return self._problem.row_of(choices)

    def _constrain(self, latency_ms: float) -> None:
        assert self._trial is not None
        self._trial.set_constraint(BUDGET, float(latency_ms / self._problem.budget_ms - 1.0))

    def ask(self) -> int:
        """See `Method`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._ask()

    def tell(self, seen: Seen) -> None:
        """See `Method`."""
        self._constrain(seen.latency_ms)
        assert self._trial is not None
        self._study.tell(self._trial, [seen.quality, seen.latency_ms])


@dataclass(slots=True)
class RegularisedEvolution:
    """Ageing evolution (Real et al. 2019) with non-dominated sorting instead of one fitness.

    Attributes:
        problem, rng: what is searched, and its draws.
        population_size, tournament_size: as in the paper, in proportion to a hundred evaluations.
    """

    problem: TableProblem
    rng: np.random.Generator
    population: list[Seen]
    population_size: int = 20
    tournament_size: int = 5

    def ask(self) -> int:
        """A mutation of the best of a few members; random ones until the population is full."""
        if len(self.population) < self.population_size:
            return int(self.rng.integers(len(self.problem.choices)))
        chosen = self.rng.choice(len(self.population), self.tournament_size, replace=False)
        contenders = [self.population[index] for index in chosen]
        return neighbour(self.problem, contenders[_best(contenders, self.problem.budget_ms, self.rng)].row, self.rng)

    def tell(self, seen: Seen) -> None:
        """The youngest enters, the oldest leaves."""
        self.population = [*self.population, seen][-self.population_size :]


@dataclass(slots=True)
class LocalSearch:
    """Walks from the front so far to its unseen neighbours; a random row where there is none."""

    problem: TableProblem
    rng: np.random.Generator
    seen: list[Seen]
    num_start: int = 10

    def ask(self) -> int:
        """An unseen neighbour of a random member of the front."""
        known = {each.row for each in self.seen}
        within = [each for each in self.seen if each.latency_ms <= self.problem.budget_ms]
        if len(self.seen) >= self.num_start and within:
            mask = non_dominated([[each.quality, each.latency_ms] for each in within], ["maximize", "minimize"])
            front = [each for each, is_member in zip(within, mask, strict=True) if is_member]
            for _ in range(50):
                row = neighbour(self.problem, front[self.rng.integers(len(front))].row, self.rng)
                if row not in known:
                    return row
        return int(self.rng.integers(len(self.problem.choices)))

    def tell(self, seen: Seen) -> None:
        """Remembers."""
        self.seen.append(seen)


def neighbour(problem: TableProblem, row: int, rng: np.random.Generator) -> int:
    """A row with one choice answered otherwise."""
    choices = dict(problem.choices[row])
    name = list(problem.answers)[rng.integers(len(problem.answers))]
    others = [answer for answer in problem.answers[name] if answer != choices[name]]
    if others:
        choices[name] = others[rng.integers(len(others))]
    return problem.row_of(choices)


def _best(contenders: Sequence[Seen], budget_ms: float, rng: np.random.Generator) -> int:
    """A random one of the non-dominated within the budget; without any, the fastest."""
    within = [index for index, each in enumerate(contenders) if each.latency_ms <= budget_ms]
    if not within:
        return int(np.argmin([each.latency_ms for each in contenders]))
    points = [[contenders[index].quality, contenders[index].latency_ms] for index in within]
    front = np.flatnonzero(non_dominated(points, ["maximize", "minimize"]))
    return within[int(front[rng.integers(len(front))])]


def spread_rows(problem: TableProblem, count: int, rng: np.random.Generator) -> list[int]:
    """Rows to calibrate a cost model on: far from each other in features (k-means++, Arthur 2007)."""
    offered = rng.choice(len(problem.choices), min(2000, len(problem.choices)), replace=False)
    features = problem.features[offered] / np.maximum(problem.features.std(axis=0), 1e-9)
    chosen = [int(rng.integers(len(offered)))]
    nearest = ((features - features[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(count, len(offered)):
        total = nearest.sum()
        weights = nearest / total if total > 0 else None
        chosen.append(int(rng.choice(len(offered), p=weights)))
        nearest = np.minimum(nearest, ((features - features[chosen[-1]]) ** 2).sum(axis=1))
    return [int(offered[index]) for index in chosen]


class TableCostModel:
    """The product's cost model, fitted to what was measured: a few rows beforehand, then everything that was tried."""

    def __init__(self, problem: TableProblem) -> None:
        self._problem = problem
        self._num_fitted = 0
        self._forecast: Forecast | None = None

    def learn(self, candidates: Sequence[int], measured: NDArray[np.float64]) -> None:
        """Fits again when there is a tenth more than at the last fit."""
        if len(candidates) >= max(MIN_SAMPLES, 1.1 * self._num_fitted):
            model = CostModel.fit(self._problem.encoded.take(candidates), measured)
            seen = model.predict(self._problem.encoded)
            deviations = (seen.upper_ms - seen.lower_ms) / (2 * NORMAL_90)
            self._forecast = Forecast(values=seen.latency_ms, deviations=np.maximum(deviations, 1e-6))
            self._num_fitted = len(candidates)

    def forecast(self, candidates: Sequence[int]) -> Forecast:
        """Of these rows; without any fit, nothing but a guess."""
        rows = np.asarray(candidates, dtype=int)
        if self._forecast is None:
            middle = self._problem.budget_ms
            return Forecast(values=np.full(len(rows), middle), deviations=np.full(len(rows), middle))
        return Forecast(values=self._forecast.values[rows], deviations=self._forecast.deviations[rows])


class TrueLatency:
    """A cost model that knows the table."""

    def __init__(self, problem: TableProblem) -> None:
        self._latencies_ms = problem.latencies_ms

    def learn(self, candidates: Sequence[int], measured: NDArray[np.float64]) -> None:
        """Nothing: it knows."""

    def forecast(self, candidates: Sequence[int]) -> Forecast:
        """The table's own latencies, exactly."""
        values = self._latencies_ms[np.asarray(candidates, dtype=int)]
        return Forecast(values=values, deviations=np.zeros(len(values)))


def _ours(problem: TableProblem, seed: int, num_measured: int) -> Method:
    return _budget_method(problem, seed, TableCostModel(problem), num_measured)


def _ours_learning(problem: TableProblem, seed: int, num_measured: int) -> Method:
    return _budget_method(problem, seed, None, num_measured)


def _ours_true(problem: TableProblem, seed: int, num_measured: int) -> Method:
    return _budget_method(problem, seed, TrueLatency(problem), 0)


def _budget_method(
    problem: TableProblem, seed: int, forecaster: TableCostModel | TrueLatency | None, num_measured: int
) -> Method:
    from nas.search.budget_sampler import BudgetSampler
    from nas.search.cost import Cost, Measured

    measured = [
        Measured(choices=problem.choices[row], costs=(float(problem.latencies_ms[row]),))
        for row in (spread_rows(problem, num_measured, np.random.default_rng([seed, 1])) if num_measured else ())
    ]
    cost = Cost(
        name="latency",
        maximum=problem.budget_ms,
        objective=1,
        constraint=BUDGET,
        forecaster=forecaster,  # type: ignore[arg-type]
    )
    sampler = BudgetSampler(TableSource(problem), [cost], seed=seed, worst=problem.worst, measured=measured)
    return OptunaMethod(problem, sampler)


def _optuna(name: str, **options: object) -> Callable[[TableProblem, int, int], Method]:
    def make(problem: TableProblem, seed: int, num_measured: int) -> Method:
        import optuna

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return OptunaMethod(problem, getattr(optuna.samplers, name)(seed=seed, **options))

    return make


def _evolution(problem: TableProblem, seed: int, num_measured: int) -> Method:
    return RegularisedEvolution(problem, np.random.default_rng(seed), [])


def _local(problem: TableProblem, seed: int, num_measured: int) -> Method:
    return LocalSearch(problem, np.random.default_rng(seed), [])


METHODS: Mapping[str, Callable[[TableProblem, int, int], Method]] = {
    "random": _optuna("RandomSampler"),
    "nsga2": _optuna("NSGAIISampler", population_size=20),
    "tpe": _optuna("TPESampler"),
    "tpe_multivariate": _optuna("TPESampler", multivariate=True),
    "gp": _optuna("GPSampler", deterministic_objective=True),
    "evolution": _evolution,
    "local_search": _local,
    "ours": _ours,
    "ours_no_cost_model": _ours_learning,
    "ours_true_latency": _ours_true,
}
"""Each takes the problem, a seed, and how many latencies a cost model may be fitted on beforehand."""
