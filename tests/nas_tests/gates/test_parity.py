from __future__ import annotations

import numpy as np

from nas.gates.parity import FLOAT32_EPSILON, RELATIVE_TOLERANCE, ROUNDING_UNITS
from profilers.timing import compare_outputs


def test_epsilon_is_that_of_float32() -> None:
    assert float(np.finfo(np.float32).eps) == FLOAT32_EPSILON


def test_the_tolerance_passes_reordered_sums_and_not_a_wrong_weight() -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((64, 4608), dtype=np.float32)
    weights = generator.standard_normal((4608, 64), dtype=np.float32) / np.float32(4608**0.5)
    order = generator.permutation(4608)
    one, other = x @ weights, x[:, order] @ weights[order]
    assert not np.array_equal(one, other), "the sums must be reordered for this to say anything"
    assert compare_outputs([other], [one], RELATIVE_TOLERANCE) > 0
    weights[7, 7] += 0.01
    wrong = x @ weights
    assert np.abs(wrong - one).max() > RELATIVE_TOLERANCE * np.abs(one).max()


def test_the_tolerance_stays_below_the_rounding_of_half_precision() -> None:
    # Code that was silently compiled for float16 must not pass: its epsilon alone is larger.
    assert RELATIVE_TOLERANCE == ROUNDING_UNITS * FLOAT32_EPSILON < float(np.finfo(np.float16).eps)
