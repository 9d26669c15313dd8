from __future__ import annotations

import numpy as np

from nas.search.cost_belief import Forecast, believe
from nas.search.gaussian_process import GaussianProcesses
from nas.search.warp import Warp


def data(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 3))
    return features, np.sin(features[:, 0]) + 0.5 * features[:, 1]


def test_predictions_get_better_with_observations_and_deviations_say_so() -> None:
    unseen, truth = data(200, seed=1)
    errors, deviations = [], []
    for count in (8, 80):
        features, values = data(count)
        means, spreads = GaussianProcesses(features, values, np.random.default_rng(0)).predict(unseen)
        errors.append(float(np.abs(means - truth).mean()))
        deviations.append(float(spreads.mean()))
        inside = np.mean(np.abs(means - truth) < 3 * spreads)
        assert inside > 0.9
    assert errors[1] < 0.5 * errors[0]
    assert deviations[1] < deviations[0]


def test_a_drawn_function_goes_through_what_was_seen() -> None:
    features, values = data(40)
    processes = GaussianProcesses(features, values, np.random.default_rng(0))
    drawn = processes.draw(features, np.random.default_rng(1))
    assert np.corrcoef(drawn, values)[0, 1] > 0.95


def test_the_same_generator_gives_the_same_mixture() -> None:
    features, values = data(30)
    one, other = (GaussianProcesses(features, values, np.random.default_rng(3)).predict(features) for _ in range(2))
    assert np.array_equal(one[0], other[0])


def test_one_observation_and_equal_ones_do_not_break_it() -> None:
    for count in (1, 5):
        means, deviations = GaussianProcesses(
            np.ones((count, 2)), np.full(count, 0.7), np.random.default_rng(0)
        ).predict(np.zeros((3, 2)))
        assert np.isfinite(means).all()
        assert (deviations > 0).all()


def test_the_warp_is_undone_exactly_and_keeps_the_order() -> None:
    qualities = np.array([0.1, 0.5, 0.90, 0.91, 0.92])
    warp = Warp(qualities)
    assert np.allclose(warp.undo(warp.apply(qualities)), qualities)
    assert (np.diff(warp.apply(qualities)) > 0).all()


def test_a_forecast_that_is_off_by_a_factor_is_mended_by_measurements() -> None:
    features, _ = data(60)
    truth = np.exp(0.3 * features[:, 0]) * 4.0
    forecast = truth * 0.7
    belief = believe(
        features[40:],
        Forecast(values=forecast[40:], deviations=0.1 * forecast[40:]),
        features[:40],
        Forecast(values=forecast[:40], deviations=0.1 * forecast[:40]),
        truth[:40],
        np.random.default_rng(0),
    )
    assert np.abs(belief.values / truth[40:] - 1).max() < 0.05


def test_what_is_known_exactly_stays_as_it_is() -> None:
    exact = Forecast(values=np.array([3.0, 4.0]), deviations=np.zeros(2))
    belief = believe(np.zeros((2, 1)), exact, np.zeros((1, 1)), exact, np.array([9.0]), np.random.default_rng(0))
    assert belief.values.tolist() == [3.0, 4.0]
