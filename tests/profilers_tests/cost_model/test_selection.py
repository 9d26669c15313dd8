"""Which architectures are measured."""

import numpy as np
import pytest

from profilers.cost_model.model import CostModel
from profilers.cost_model.selection import choose
from tests.profilers_tests.cost_model.devices import architectures, latencies

ALL = architectures(600)


def test_no_architecture_is_chosen_twice() -> None:
    chosen = choose(ALL, 100, np.random.default_rng(0))
    assert len(set(chosen.tolist())) == 100


def test_the_same_seed_chooses_the_same() -> None:
    first, second = (choose(ALL, 20, np.random.default_rng(4)).tolist() for _ in range(2))
    assert first == second


def test_chosen_samples_teach_more_than_random_ones() -> None:
    errors: dict[str, list[float]] = {"chosen": [], "random": []}
    truth = latencies(ALL, way=1, error=0.0)
    for seed in range(12):
        measured = latencies(ALL, way=1, error=0.06, seed=seed)
        generator = np.random.default_rng(seed)
        for name, rows in (("chosen", choose(ALL, 10, generator)), ("random", generator.permutation(600)[:10])):
            model = CostModel.fit(ALL.take(rows), measured[rows])
            errors[name].append(float(np.median(np.abs(model.predict(ALL).latency_ms / truth - 1))))
    assert np.mean(errors["chosen"]) < np.mean(errors["random"])


def test_more_samples_than_architectures_are_refused() -> None:
    with pytest.raises(ValueError, match="601 samples of 600 architectures"):
        choose(ALL, 601, np.random.default_rng(0))
