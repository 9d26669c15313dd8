from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from nas.search.gaussian_process import GaussianProcesses
from nas.search.transfer import Earlier, Transfer, line_between
from nas.search.warp import Warp

Floats = NDArray[np.float64]
NUM_FEATURES = 6


def drawn(seed: int, count: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(count, NUM_FEATURES))


def truth(features: Floats) -> Floats:
    return np.asarray(0.9 - 0.1 * np.exp(-features[:, 0] + 0.5 * np.sin(2 * features[:, 1]) + 0.3 * features[:, 2]))


def another_truth(features: Floats) -> Floats:
    """Has nothing to do with `truth`."""
    return np.asarray(0.9 - 0.1 * np.exp(features[:, 4] + 0.5 * np.sin(2 * features[:, 5])))


def agreement_of(earlier: Earlier | None, num_own: int) -> float:
    """Rank correlation of what the surrogate says of new networks after `num_own` results with what they are."""
    features, values = drawn(1, num_own), truth(drawn(1, num_own))
    studies = None
    if earlier is not None:
        (carried,) = Transfer([earlier], np.random.default_rng(0)).carried(features, values)
        studies = np.repeat([0, 1], [num_own, len(carried.qualities)])
        features, values = np.vstack([features, carried.features]), np.append(values, carried.qualities)
    fitted = GaussianProcesses(features, Warp(values).apply(values), np.random.default_rng(0), studies)
    new = drawn(2, 200)
    return float(spearmanr(fitted.predict(new)[0], truth(new)).statistic)


def test_scores_of_a_shorter_training_help_although_they_are_another_quantity() -> None:
    features = drawn(3, 80)
    earlier = Earlier(features=features, qualities=0.6 * truth(features) - 0.2)
    assert agreement_of(earlier, 8) > agreement_of(None, 8) + 0.1


def test_scores_that_order_networks_otherwise_fall_silent() -> None:
    features = drawn(3, 80)
    unrelated = Earlier(features=features, qualities=another_truth(features))
    assert agreement_of(unrelated, 60) > agreement_of(None, 60) - 0.05


def test_promise_orders_new_networks_as_the_earlier_study_would() -> None:
    features = drawn(3, 80)
    transfer = Transfer([Earlier(features=features, qualities=truth(features))], np.random.default_rng(0))
    new = drawn(2, 100)
    assert np.corrcoef(transfer.promise(new), truth(new))[0, 1] > 0.7


def test_a_study_with_hardly_any_score_says_nothing() -> None:
    few = Earlier(features=drawn(0, 3), qualities=np.array([0.1, 0.2, 0.3]))
    assert not Transfer([few], np.random.default_rng(0)).has_evidence
    assert not Transfer([], np.random.default_rng(0)).has_evidence


@pytest.mark.parametrize(
    ("here", "least", "most"),
    [
        ([0.70, 0.75, 0.80], 0.99, 1.01),  # the same steps from another level
        ([0.50, 0.70, 0.90], 1.5, 4.0),
        ([0.80, 0.75, 0.70], 0.0, 0.5),
    ],
)
def test_the_line_between_two_studies_never_falls(here: list[float], least: float, most: float) -> None:
    earlier = np.array([0.50, 0.55, 0.60])
    slope, offset = line_between(earlier, np.array(here), spread=0.03)
    assert least <= slope <= most
    assert offset + slope * earlier.mean() == pytest.approx(np.mean(here)), "it goes through the means"


def test_networks_of_one_spread_have_a_line_of_slope_one() -> None:
    assert line_between(np.array([0.5]), np.array([0.7]), spread=0.0) == (1.0, pytest.approx(0.2))
