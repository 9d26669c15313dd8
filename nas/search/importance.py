"""Which choices mattered: Optuna's importances of a study's quality and latency."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

MIN_COMPLETE = 8
"""Scored trials below which an importance would be an accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceImportance:
    """Shares of the variance over the study's trials that one choice explains.

    Attributes:
        choice: its name in the space.
        quality, latency: shares; those of all choices add up to 1.
    """

    choice: str
    quality: float
    latency: float


def importances_of(study: optuna.Study, *, seed: int = 0) -> tuple[ChoiceImportance, ...]:
    """Importances by fANOVA (Hutter et al. 2014), the most important for quality first.

    Only choices that every scored trial has are compared; which those are depends on the space. A
    study shows what it tried: a good sampler soon stops trying poor choices, which then seem to matter less.

    Returns:
        Nothing when fewer than `MIN_COMPLETE` trials were scored or none of the choices varied.
    """
    import optuna

    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if len(complete) < MIN_COMPLETE:
        return ()
    shares: list[dict[str, float]] = []
    for objective in (0, 1):
        if len({trial.values[objective] for trial in complete}) == 1:
            shares.append({})
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=seed)
            shares.append(
                optuna.importance.get_param_importances(study, evaluator=evaluator, target=_value_at(objective))
            )
    names = sorted({*shares[0], *shares[1]}, key=lambda name: (-shares[0].get(name, 0.0), name))
    return tuple(
        ChoiceImportance(choice=name, quality=shares[0].get(name, 0.0), latency=shares[1].get(name, 0.0))
        for name in names
    )


def _value_at(objective: int) -> Callable[[FrozenTrial], float]:
    return lambda trial: float(trial.values[objective])
