from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nas.search.proposer import Known, Pool, Proposer
from nas.search.transfer import Earlier

FLOOR = 0.0
Floats = NDArray[np.float64]


def quality_of(features: Floats) -> Floats:
    return np.asarray(0.5 + 0.4 * np.tanh(features[:, 0]))


def proposer(known: Floats, costs: Floats, earlier: tuple[Earlier, ...] = (), seed: int = 0) -> Proposer:
    return Proposer(
        Known(features=known, qualities=quality_of(known), costs=costs[:, None], is_within=costs <= 1.0),
        (np.zeros((0, known.shape[1])), np.zeros((0, 1))),
        num_tried=len(known),
        lowest=np.array([0.0]),
        maximum=np.array([1.0]),
        worst=FLOOR,
        earlier=earlier,
        rng=np.random.default_rng(seed),
    )


def test_the_starting_design_asks_earlier_studies_where_there_are_any() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(60, 2))
    earlier = Earlier(features=features, qualities=quality_of(features))
    pool = Pool(features=rng.normal(size=(80, 2)), costs=np.linspace(0, 0.9, 80)[:, None], within=np.ones(80))
    known = rng.normal(size=(3, 2))
    costs = np.array([0.1, 0.5, 0.9])
    warm = [proposer(known, costs, (earlier,), seed).choose(pool) for seed in range(5)]
    cold = [proposer(known, costs, (), seed).choose(pool) for seed in range(5)]
    assert len({choice.index for choice in warm}) == 1, "nothing is drawn"
    qualities = quality_of(pool.features)
    assert qualities[warm[0].index] > np.mean([qualities[choice.index] for choice in cold])
    assert 0.3 < pool.costs[warm[0].index, 0] < 0.5, "it keeps to the fourth of eight shares of the cost"
    assert warm[0].gain is None


def test_the_best_network_within_the_budget_is_looked_for_although_it_is_hardly_cheaper() -> None:
    """Up to the budget itself, a network that costs all of it adds no hypervolume, however good it is."""
    rng = np.random.default_rng(3)
    known = rng.normal(size=(12, 2))
    costs = np.linspace(0.1, 0.9, 12)
    pool = Pool(features=np.array([[3.0, 0.0], [-3.0, 0.0]]), costs=np.array([[1.0], [0.95]]), within=np.ones(2))
    expected = proposer(known, costs).expected(pool)
    assert expected[0] > 0 and expected[0] > expected[1]
