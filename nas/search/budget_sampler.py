"""`BudgetSampler`: an Optuna sampler for searches in which costs can be told beforehand and only quality is unknown.

It proposes candidates that probably meet every budget, and of those the one whose quality, as far as
the results so far tell, should add most to the front. See `proposer` for how, `cost_belief` for what it
believes about costs, `candidate_source` for where candidates come from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from nas.search.candidate_source import CandidateSource, Options, joined
from nas.search.cost import Cost, Measured
from nas.search.cost_belief import Forecast, believe
from nas.search.history import History, read_history
from nas.search.proposer import Choice, Known, Pool, Proposer
from nas.search.transfer import Earlier, EarlierScores
from search_spaces.space import Choices

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

Floats = NDArray[np.float64]

NUM_PARENTS = 24
"""Good candidates that are mutated and recombined."""

REFERENCE_MARGIN = 1.1
"""An objective without a budget counts up to this many times the largest cost seen."""


class BudgetSampler(BaseSampler):
    """Proposes candidates by expected gain in hypervolume within budgets.

    Each proposal depends on the seed, the trial's number and the finished trials before it alone, so
    that a study that was killed goes on as if it had not been.

    Args:
        source: where candidates come from.
        costs: at least one, of which at least one is an objective.
        seed: of every draw.
        worst: the quality from which hypervolume counts; None: the worst seen.
        measured: what is known of costs besides the study's trials.
        earlier: what is known of quality from studies before this one.
    """

    def __init__(
        self,
        source: CandidateSource,
        costs: Sequence[Cost],
        *,
        seed: int = 0,
        worst: float | None = None,
        measured: Sequence[Measured] = (),
        earlier: Sequence[EarlierScores] = (),
    ) -> None:
        if not any(cost.objective is not None for cost in costs):
            raise ValueError("costs: none of them is an objective; allowed: one or more, so that there is a front")
        self._source = source
        self._costs = tuple(costs)
        self._seed = seed
        self._worst = worst
        self._measured = tuple(measured)
        self._earlier = [_makeable(source, scores) for scores in earlier]
        self._proposals: dict[int, Choices] = {}
        self._gains: dict[int, float | None] = {}

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing: the space is asked as a whole, as which choices there are depends on the others."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Nothing, see `infer_relative_search_space`."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The answer of this trial's proposal; at random where the proposal has none that fits."""
        if trial.number not in self._proposals:
            self._proposals = {trial.number: self.propose(study, trial.number)}
        answer = self._proposals[trial.number].get(param_name)
        if answer is not None and param_distribution._contains(param_distribution.to_internal_repr(answer)):
            return answer
        from optuna.samplers import RandomSampler

        seed = self._rng(trial.number, param_name).integers(2**32)
        return RandomSampler(seed=int(seed)).sample_independent(study, trial, param_name, param_distribution)

    def propose(self, study: Study, number: int) -> Choices:
        """The choices of trial `number`."""
        from threadpoolctl import threadpool_limits

        # One thread: matrices are small, and beside other work threads that wait for each other take ten times as long.
        with threadpool_limits(limits=1, user_api="blas"):
            return self._propose(study, number)

    def _propose(self, study: Study, number: int) -> Choices:
        rng = self._rng(number)
        trials = [trial for trial in study.get_trials(deepcopy=False) if trial.number != number]
        history = self._history(study, trials)
        taken = history.tried | self._failed(trials)
        running = [trial.params for trial in trials if trial.state is TrialState.RUNNING and trial.params]
        pending = self._source.describe(running)
        pool = joined(self._source.pool(self._parents(history), rng), self._source.describe(self._promising()))
        options = self._fresh(pool, taken | set(pending.keys))
        if not options.keys:  # everything has been tried: the loop notices that a known result comes again
            return self._source.pool((), rng).choices[0]
        choice = self._chosen(history, pending, options, rng)
        self._gains = {number: choice.gain}
        return options.choices[choice.index]

    def gain_of(self, number: int) -> float | None:
        """What trial `number`, if it is the latest proposal of this sampler, was expected to gain; see `Choice`."""
        return self._gains.get(number)

    def _rng(self, number: int, what: str = "") -> np.random.Generator:
        digest = hashlib.sha256(f"{self._seed}:{number}:{what}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "big"))

    def _chosen(self, history: History, pending: Options, options: Options, rng: np.random.Generator) -> Choice:
        earlier = [self._source.describe(each.choices) for each in self._earlier]
        scaled = _scaled(history.options, pending, options, *earlier)
        first, second = len(history.qualities), len(history.qualities) + len(pending.keys)
        end = second + len(options.keys)
        beliefs = [
            self._belief(position, history, scaled[:first], options, pending, scaled[first:end], rng)
            for position in range(len(self._costs))
        ]
        values = np.array([belief.values for belief in beliefs]).T
        spreads = np.array([belief.deviations for belief in beliefs]).T
        objectives = [position for position, cost in enumerate(self._costs) if cost.objective is not None]
        is_scored = ~np.isnan(history.qualities)
        costs = history.costs[:, objectives]
        known = Known(
            features=scaled[:first][is_scored],
            qualities=history.qualities[is_scored],
            costs=costs[is_scored],
            is_within=history.is_within[is_scored],
        )
        offset = second - first
        pool = Pool(
            features=scaled[second:end],
            costs=values[offset:, objectives],
            within=self._within(values[offset:], spreads[offset:]),
        )
        seen = np.vstack([costs[is_scored], pool.costs])
        proposer = Proposer(
            known,
            (scaled[first:second], values[:offset, objectives]),
            num_tried=len(history.tried) + len(pending.keys),
            lowest=np.nanmin(seen, axis=0),
            maximum=self._maximum(objectives, seen),
            worst=self._worst,
            earlier=self._scored_earlier(earlier, scaled[end:]),
            rng=rng,
        )
        return proposer.choose(pool)

    def _scored_earlier(self, described: Sequence[Options], features: Floats) -> list[Earlier]:
        ends = np.cumsum([len(each.keys) for each in described], dtype=int)
        return [
            Earlier(features=features[end - len(each.keys) : end], qualities=np.array(scores.qualities))
            for each, scores, end in zip(described, self._earlier, ends, strict=True)
        ]

    def _promising(self) -> list[Choices]:
        """The best networks of each earlier study, as many of one as of another."""
        return [
            scores.choices[index]
            for scores in self._earlier
            for index in np.argsort(-np.array(scores.qualities), kind="stable")[: NUM_PARENTS // len(self._earlier)]
        ]

    def _maximum(self, objectives: Sequence[int], seen: Floats) -> Floats:
        budgets = [self._costs[position].maximum for position in objectives]
        largest = REFERENCE_MARGIN * np.nanmax(seen, axis=0)
        return np.array([each if budget is None else budget for budget, each in zip(budgets, largest, strict=True)])

    def _belief(
        self,
        position: int,
        history: History,
        known_features: Floats,
        options: Options,
        pending: Options,
        features: Floats,
        rng: np.random.Generator,
    ) -> Forecast:
        """Of the pending candidates, then of the options."""
        is_measured = ~np.isnan(history.costs[:, position]) & history.is_measured
        forecaster = self._costs[position].forecaster
        forecast = known_forecast = None
        if forecaster is not None:
            measured = [
                each for each, is_known in zip(history.options.candidates, is_measured, strict=True) if is_known
            ]
            forecaster.learn(measured, history.costs[is_measured, position])
            forecast = forecaster.forecast([*pending.candidates, *options.candidates])
            known_forecast = forecaster.forecast(measured) if measured else None
        learned = believe(
            features, forecast, known_features[is_measured], known_forecast, history.costs[is_measured, position], rng
        )
        belief = Forecast(values=learned.values.copy(), deviations=learned.deviations.copy())
        seen = {
            key: cost
            for key, cost in zip(history.options.keys, history.costs[:, position], strict=True)
            if cost == cost
        }
        for at, key in enumerate([*pending.keys, *options.keys]):
            if key in seen:
                belief.values[at], belief.deviations[at] = seen[key], 0.0
        return belief

    def _within(self, values: Floats, deviations: Floats) -> Floats:
        """Probability of meeting every budget, costs taken as independent."""
        from scipy.special import ndtr

        within = np.ones(len(values))
        for position, cost in enumerate(self._costs):
            if cost.maximum is not None:
                room = cost.maximum - values[:, position]
                spread = deviations[:, position]
                within *= np.where(spread > 0, ndtr(room / np.maximum(spread, 1e-300)), room >= 0)
        return within

    def _history(self, study: Study, trials: Sequence[FrozenTrial]) -> History:
        from optuna.study import StudyDirection

        sign = 1.0 if study.directions[0] == StudyDirection.MAXIMIZE else -1.0
        return read_history(trials, self._source, self._costs, self._measured, sign=sign, rng=self._rng(-1, "history"))

    def _failed(self, trials: Sequence[FrozenTrial]) -> set[str | None]:
        """Keys of candidates whose infrastructure failed: nothing was learned, but not again at once."""
        failed = [trial.params for trial in trials if trial.state is TrialState.FAIL and trial.params]
        return set(self._source.keys(failed))

    def _parents(self, history: History) -> Sequence[Choices]:
        """The best within the budgets: half of them by quality alone, the others each in its share of the costs.

        While these are few, the best of earlier studies as well.
        """
        own = self._own_parents(history)
        return [*own, *self._promising()[: NUM_PARENTS - len(own)]]

    def _own_parents(self, history: History) -> Sequence[Choices]:
        scored = np.flatnonzero(~np.isnan(history.qualities) & history.is_within)
        if not len(scored):
            scored = np.flatnonzero(~np.isnan(history.qualities))
        if not len(scored) and self._earlier:
            return ()
        if not len(scored):
            return [history.options.choices[index] for index in range(min(NUM_PARENTS, len(history.qualities)))]
        best = scored[np.argsort(-history.qualities[scored], kind="stable")]
        objective = next(position for position, cost in enumerate(self._costs) if cost.objective is not None)
        by_cost = scored[np.argsort(history.costs[scored, objective], kind="stable")]
        shares = np.array_split(by_cost, NUM_PARENTS // 2)
        each = [int(share[np.argmax(history.qualities[share])]) for share in shares if len(share)]
        chosen = dict.fromkeys([*best[: NUM_PARENTS // 2].tolist(), *each])
        return [history.options.choices[index] for index in chosen]

    @staticmethod
    def _fresh(options: Options, taken: Set[str | None]) -> Options:
        return options.at([at for at, key in enumerate(options.keys) if key not in taken])


def _makeable(source: CandidateSource, scores: EarlierScores) -> EarlierScores:
    """Those of its networks that `source` can make."""
    known = [at for at, key in enumerate(source.keys(scores.choices)) if key is not None]
    return EarlierScores(
        study=scores.study,
        choices=tuple(scores.choices[at] for at in known),
        qualities=tuple(scores.qualities[at] for at in known),
    )


def _scaled(*groups: Options) -> Floats:
    """The features of all groups below each other, to mean 0 and deviation 1; what never varies is left out."""
    features = np.vstack([group.features for group in groups if len(group.keys)])
    deviations = features.std(axis=0)
    is_varied = deviations > 1e-9 * np.maximum(1.0, np.abs(features).max(axis=0))
    if not is_varied.any():
        return np.zeros((len(features), 1))
    return np.asarray((features[:, is_varied] - features[:, is_varied].mean(axis=0)) / deviations[is_varied])
