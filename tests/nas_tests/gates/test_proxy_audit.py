from __future__ import annotations

import json
import math
import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.gates.proxy_audit import MIN_TAU, OrderAudit, compare_orders, kendall_tau, order_gate

NAMES = [f"c{number}" for number in range(8)]
RISING = [0.5 + number / 20 for number in range(8)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_tau_counts_the_pairs_that_agree(pairs: list[tuple[int, int]]) -> None:
    left, right = [list(column) for column in zip(*pairs, strict=True)]
    ours = kendall_tau(left, right)
    if len(set(left)) == 1 or len(set(right)) == 1:
        assert ours is None
    else:
        couples = list(combinations(pairs, 2))
        signs = [np.sign(a - b) * np.sign(x - y) for (a, x), (b, y) in couples]
        untied = [sum(first[side] != second[side] for first, second in couples) for side in (0, 1)]
        assert ours == pytest.approx(sum(signs) / math.sqrt(untied[0] * untied[1]))


def test_the_same_order_passes_and_its_interval_holds_tau() -> None:
    audit = compare_orders("proxy", NAMES, RISING, [value**2 for value in RISING], "maximize", cost_share=1 / 8)
    assert audit.tau == pytest.approx(1.0)
    assert (audit.flipped, audit.regret, audit.needed_factor) == ((), 0.0, None)
    assert order_gate(audit).passed


def test_a_random_order_fails_names_the_pairs_and_says_how_much_longer() -> None:
    mixed = [RISING[index] for index in (3, 6, 0, 5, 1, 7, 2, 4)]
    curves = [[mixed[number], mixed[number], RISING[number], RISING[number]] for number in range(8)]
    audit = compare_orders("proxy", NAMES, mixed, RISING, "maximize", cost_share=1 / 8, curves=curves)
    assert audit.tau is not None and audit.tau < MIN_TAU
    assert audit.lower is not None and audit.upper is not None and audit.lower <= audit.tau <= audit.upper
    assert audit.regret == pytest.approx(RISING[7] - RISING[5])
    assert audit.needed_factor == 6, "from three quarters of the eightfold training on its order is the last one"
    result = order_gate(audit)
    assert not result.passed
    assert "train about 6 times longer" in result.reason and f"{audit.flipped[0][0]}/" in result.reason


def test_where_less_is_better_regret_is_counted_the_other_way() -> None:
    audit = compare_orders("latency", NAMES[:3], [3.0, 1.0, 2.0], [3.0, 2.0, 1.0], "minimize")
    assert audit.regret == 1.0
    assert audit.flipped == (("c1", "c2"),)


def test_too_few_candidates_or_none_say_nothing() -> None:
    assert order_gate(None).passed
    few = compare_orders("proxy", NAMES[:4], [1, 2, 3, 4], [4, 3, 2, 1], "maximize")
    assert order_gate(few).passed and "only 4 candidates" in order_gate(few).reason


def test_scores_that_are_all_equal_are_no_order() -> None:
    audit = compare_orders("proxy", NAMES, [0.1] * 8, RISING, "maximize")
    assert audit.tau is None
    assert not order_gate(audit).passed


def test_an_audit_survives_json() -> None:
    generator = random.Random(0)
    audit = compare_orders("proxy", NAMES, RISING, [generator.random() for _ in NAMES], "maximize", cost_share=0.5)
    assert OrderAudit.from_json(json.loads(json.dumps(audit.to_json()))) == audit


def test_sequences_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="needs two or more"):
        compare_orders("proxy", NAMES, RISING[:3], RISING, "maximize")
