"""Optuna's samplers by name, and the adapter through which a space asks an Optuna trial."""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from search_spaces.space import Choices, V

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.samplers import BaseSampler


class OptunaSuggest:
    """Answers a space's questions from an Optuna trial; an answer once given stays."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def choose(self, name: str, options: Sequence[V]) -> V:
        """The sampler's choice among `options`."""
        choice: V = self._trial.suggest_categorical(name, list(options))
        return choice


def make_sampler(name: str, *, seed: int, trial: int, num_trials: int) -> BaseSampler:
    """The sampler that proposes one trial.

    A new one for each trial, seeded by study and trial: what is proposed then depends on the
    trials before it alone, not on whether the process was restarted in between.

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

    with _without_experimental_warnings():
        return PartialFixedSampler(dict(choices), sampler)


@contextlib.contextmanager
def _without_experimental_warnings() -> Iterator[None]:
    """Optuna calls things experimental that it has had for years; a user can do nothing about it."""
    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


def _tpe(seed: int, num_startup: int) -> BaseSampler:
    from optuna.samplers import TPESampler

    # group: which layers are asked about depends on the depth, so trials differ in their questions.
    with _without_experimental_warnings():
        return TPESampler(seed=seed, multivariate=True, group=True, n_startup_trials=num_startup)


def _nsga2(seed: int, num_startup: int) -> BaseSampler:
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed, population_size=max(4, num_startup))


def _gp(seed: int, num_startup: int) -> BaseSampler:
    from optuna.samplers import GPSampler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the whole sampler is called experimental
        return GPSampler(seed=seed, n_startup_trials=num_startup, deterministic_objective=False)


def _random(seed: int, num_startup: int) -> BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


SAMPLERS: dict[str, Callable[[int, int], BaseSampler]] = {
    "tpe": _tpe,
    "nsga2": _nsga2,
    "gp": _gp,
    "random": _random,
}
