"""Samplers by name, and the adapter through which a space asks an Optuna trial."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nas.budget import Budget, Metric
from search_spaces.space import Choices, SearchSpace, V

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

    from nas.search.budget_sampler import BudgetSampler
    from nas.search.cost import Cost, Forecaster

Bounded = tuple[Metric, str | None]
"""What a budget bounds: a metric, and for a latency the phase."""

LATENCY_ATTRIBUTE = "latency_ms"
"""Of a measured trial that was not scored: it has no values, and samplers need its latency."""


PREDICTED_ATTRIBUTE = "is_predicted"
"""Of a trial whose latencies and constraints a cost model made: they teach nothing about costs."""


RUNG_ATTRIBUTE = "lowest_rung_score"
"""Of a trial in a study with a ladder: the score that all trained trials have, whatever became of them later."""


class OptunaSuggest:
    """Answers a space's questions from an Optuna trial; an answer once given stays."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def choose(self, name: str, options: Sequence[V]) -> V:
        """The sampler's choice among `options`."""
        choice: V = self._trial.suggest_categorical(name, list(options))
        return choice


@dataclass(slots=True)
class Samplers:
    """The samplers of one study: one for each trial, so that what is proposed depends on the trials before it alone.

    Attributes:
        name: one of `SAMPLERS`, or `budget`.
        seed: the study's.
        num_trials: length of the study; the share that explores at random depends on it.
        space: what is searched.
        budgets: resolved ones.
        phase: the one whose latency is the study's second objective.
        forecasters: a cost model for each metric and phase that has one (no phase but for latencies); the others
            are learned from the trials.
        settings: further arguments of `BudgetSampler`.
    """

    name: str
    seed: int
    num_trials: int
    space: SearchSpace
    budgets: tuple[Budget, ...] = ()
    phase: str = ""
    forecasters: Mapping[Bounded, Forecaster] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    _budget_sampler: BudgetSampler | None = None

    def of(self, trial: int) -> BaseSampler:
        """The sampler that proposes this trial."""
        if self.name != BUDGET_SAMPLER:
            return make_sampler(self.name, seed=self.seed, trial=trial, num_trials=self.num_trials)
        return self.budget_sampler

    @property
    def budget_sampler(self) -> BudgetSampler:
        """One for the whole study: it remembers encodings, which changes nothing but its speed."""
        if self._budget_sampler is None:
            from nas.search.budget_sampler import BudgetSampler
            from nas.search.candidate_source import SpaceSource

            costs = costs_of(self.budgets, self.phase, self.forecasters)
            self._budget_sampler = BudgetSampler(
                SpaceSource(self.space, seed=self.seed), costs, seed=self.seed, **self.settings
            )
        return self._budget_sampler


def costs_of(budgets: Sequence[Budget], phase: str, forecasters: Mapping[Bounded, Forecaster]) -> tuple[Cost, ...]:
    """The costs of a study: its primary latency as objective, and a constraint for every budget.

    Parameters and state are counted, not forecast.
    """
    from nas.search.cost import Cost
    from nas.search.counted_costs import counted_params, counted_state

    known: dict[Bounded, Forecaster] = {
        ("num_params", None): counted_params(), ("state_bytes", None): counted_state(phase), **forecasters,
    }  # fmt: skip
    mine = next((each for each in budgets if each.metric == "latency_ms" and each.phase == phase), None)
    latency = Cost(
        name=f"latency of {phase}",
        maximum=None if mine is None else mine.maximum,
        constraint=None if mine is None else str(mine),
        objective=1,
        forecaster=known.get(("latency_ms", phase)),
    )
    others = [
        Cost(
            name=str(each), maximum=each.maximum, constraint=str(each),
            forecaster=known.get((each.metric, each.phase)),
        )
        for each in budgets
        if each is not mine
    ]  # fmt: skip
    return (latency, *others)


def make_sampler(name: str, *, seed: int, trial: int, num_trials: int) -> BaseSampler:
    """One of Optuna's samplers for one trial, seeded by study and trial.

    Args:
        name: one of `SAMPLERS`.
        seed: the study's.
        trial: number of the trial to propose.
        num_trials: length of the study; the share that explores at random depends on it.
    """
    num_startup = max(4, min(10, num_trials // 3))
    digest = hashlib.sha256(f"{seed}:{trial}".encode()).digest()
    return SAMPLERS[name](int.from_bytes(digest[:4], "big"), num_startup)


def decided_sampler(choices: Choices, sampler: BaseSampler) -> BaseSampler:
    """Answers with `choices`; what they leave open, and what happens after a trial, is `sampler`'s."""
    from optuna.samplers import PartialFixedSampler

    with without_experimental_warnings():
        return PartialFixedSampler(dict(choices), sampler)


@contextlib.contextmanager
def without_experimental_warnings() -> Iterator[None]:
    """Optuna calls things experimental that it has had for years; a user can do nothing about it."""
    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


def taught(sampler: BaseSampler) -> BaseSampler:
    """The sampler, shown trials over budget as complete ones that violate a constraint.

    NSGA-II and GP learn from complete trials only, which need a quality. Over budget nothing was
    trained, so they are shown the median quality: it neither draws nor repels, the constraint decides. The
    made-up value is seen by the sampler alone and is in no database. In a study with a ladder every trained trial is
    shown with its score at the lowest rung instead of a later one.
    """
    for name in ("infer_relative_search_space", "sample_relative", "sample_independent", "before_trial", "after_trial"):
        original = getattr(sampler, name)
        setattr(sampler, name, _with_shown_study(original))
    return sampler


def _with_shown_study(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(study: Study, *arguments: Any) -> Any:
        return method(_shown(study), *arguments)

    return called


def _shown(study: Study) -> Study:
    shown = copy.copy(study)
    original = study._get_trials

    def get_trials(deepcopy: bool = True, states: Any = None, use_cache: bool = False) -> list[FrozenTrial]:
        trials = _completed(original(deepcopy=deepcopy, states=None, use_cache=use_cache))
        return [trial for trial in trials if states is None or trial.state in states]

    shown._get_trials = get_trials  # type: ignore[method-assign]
    return shown


def _completed(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    import statistics

    from optuna.trial import TrialState

    qualities = [
        trial.user_attrs.get(RUNG_ATTRIBUTE, trial.values[0]) for trial in trials if trial.state is TrialState.COMPLETE
    ]
    if not qualities:
        return list(trials)
    typical_quality = statistics.median(qualities)
    typical = _typical_constraints(trials)
    result = []
    for trial in trials:
        if trial.state is TrialState.COMPLETE and RUNG_ATTRIBUTE in trial.user_attrs:
            trial = copy.copy(trial)
            trial.values = [trial.user_attrs[RUNG_ATTRIBUTE], trial.values[1]]
        elif trial.state is TrialState.PRUNED and LATENCY_ATTRIBUTE in trial.user_attrs:
            constraints = typical | trial.constraints
            trial = copy.copy(trial)
            trial.state = TrialState.COMPLETE
            quality = trial.user_attrs.get(RUNG_ATTRIBUTE, typical_quality)
            trial.values = [quality, trial.user_attrs[LATENCY_ATTRIBUTE]]
            # GP wants the same constraints of every trial; a phase that was left out has none.
            trial.system_attrs = {key: value for key, value in trial.system_attrs.items()
                                  if not key.startswith("constraints")}  # fmt: skip
            trial.system_attrs |= {f"constraints:{name}": excess for name, excess in constraints.items()}
        result.append(trial)
    return result


def _typical_constraints(trials: Sequence[FrozenTrial]) -> dict[str, float]:
    """The median of each constraint over the trials that have it, in the order in which they first come."""
    import statistics

    seen: dict[str, list[float]] = {}
    for trial in trials:
        for name, excess in trial.constraints.items():
            seen.setdefault(name, []).append(excess)
    return {name: statistics.median(values) for name, values in seen.items()}


def _tpe(seed: int, num_startup: int) -> BaseSampler:
    from optuna.samplers import TPESampler

    # group: which layers are asked about depends on the depth, so trials differ in their questions.
    with without_experimental_warnings():
        return TPESampler(seed=seed, multivariate=True, group=True, n_startup_trials=num_startup)


def _nsga2(seed: int, num_startup: int) -> BaseSampler:
    from optuna.samplers import NSGAIISampler

    return taught(NSGAIISampler(seed=seed, population_size=max(4, num_startup)))


def _gp(seed: int, num_startup: int) -> BaseSampler:
    from optuna.samplers import GPSampler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the whole sampler is called experimental
        # It cannot relate choices that only some trials have; a line a choice about that helps nobody.
        sampler = GPSampler(
            seed=seed, n_startup_trials=num_startup, deterministic_objective=False, warn_independent_sampling=False
        )
    return taught(sampler)


def _random(seed: int, num_startup: int) -> BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


BUDGET_SAMPLER = "budget"

SAMPLERS: dict[str, Callable[[int, int], BaseSampler]] = {
    "tpe": _tpe,
    "nsga2": _nsga2,
    "gp": _gp,
    "random": _random,
}
"""Optuna's; `BUDGET_SAMPLER` is ours and needs to know the space, see `Samplers`."""
