from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nas.gates.seeds import over_seeds, ties_with_faster
from nas.search.testing import made_up_score
from nas.training.score import HeldOutScore, wilson_interval


def of_seed(num_right: int, seed: int) -> HeldOutScore:
    return replace(made_up_score(num_right, "val"), seeds=(seed,))


def test_several_seeds_have_their_mean_and_an_interval_no_narrower_than_one_seed_s() -> None:
    scores = [of_seed(number, seed) for seed, number in enumerate((320, 330, 340))]
    score = over_seeds(scores)
    assert score.value == pytest.approx(330 / 360)
    assert score.seeds == (0, 1, 2)
    assert score.upper - score.lower > scores[1].upper - scores[1].lower
    assert over_seeds(scores[:1]) == scores[0]


def test_seeds_that_agree_add_nothing_to_the_examples_part() -> None:
    score = over_seeds([of_seed(330, seed) for seed in range(3)])
    assert (score.lower, score.upper) == pytest.approx(wilson_interval(330, 360))


def test_the_interval_over_seeds_and_examples_covers_the_truth_at_least_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        truth = 0.9
        # Examples are shared: their difficulty is drawn once; each seed adds its own luck.
        shared = generator.normal(0, np.sqrt(truth * (1 - truth) / 360))
        rights = np.clip(np.round(360 * (truth + shared + generator.normal(0, 0.01, 3))), 0, 360)
        score = over_seeds([of_seed(int(right), seed) for seed, right in enumerate(rights)])
        hits += score.lower <= truth <= score.upper
    assert hits >= 940


def test_scores_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="each seed once"):
        over_seeds([of_seed(330, 0), of_seed(331, 0)])
    with pytest.raises(ValueError, match="one metric and split"):
        over_seeds([of_seed(330, 0), replace(of_seed(330, 1), split="test")])


def test_a_member_within_the_interval_of_a_faster_one_is_a_tie_and_one_beyond_all_is_not() -> None:
    scores = [made_up_score(right, "val") for right in (250, 255, 300, 305, 350)]
    assert ties_with_faster(scores, "maximize") == (None, 0, None, 2, None)
    worse = [made_up_score(right, "val") for right in (350, 300)]
    assert ties_with_faster(worse, "minimize") == (None, None)
