"""The cost model against devices whose laws are known."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from profilers.cost_model.model import CostModel
from profilers.cost_model.sum_of_terms import fit_sum, predict_sum
from profilers.cost_model.terms import CostModelError, Encoded, Variant, with_other_device
from tests.profilers_tests.cost_model.devices import TERMS, architectures, latencies

ALL = architectures(1200)


def fitted(num: int, measured: np.ndarray, first: int = 0) -> CostModel:
    rows = np.arange(first, first + num)
    return CostModel.fit(ALL.take(rows), measured[rows])


def error_of(model: CostModel, truth: np.ndarray, encoded: Encoded = ALL) -> float:
    return float(np.median(np.abs(model.predict(encoded).latency_ms[200:] / truth[200:] - 1)))


@pytest.mark.parametrize("way", [0, 1])
def test_ten_measurements_tell_how_the_device_runs_networks(way: int) -> None:
    truth = latencies(ALL, way=way, error=0.0)
    assert error_of(fitted(10, latencies(ALL, way=way, error=0.01)), truth) < 0.06


def test_more_measurements_make_it_better() -> None:
    truth = latencies(ALL, error=0.0)
    errors = [
        np.mean([error_of(fitted(num, latencies(ALL, error=0.1, seed=seed)), truth) for seed in range(5)])
        for num in (10, 100)
    ]
    assert errors[1] < errors[0]


def test_measurements_that_went_wrong_pull_at_nothing() -> None:
    measured = latencies(ALL, error=0.02)
    broken = measured.copy()
    broken[[3, 17]] *= [12.0, 0.001]
    truth = latencies(ALL, error=0.0)
    assert error_of(fitted(40, broken), truth) < 1.5 * error_of(fitted(40, measured), truth) + 0.01


def test_ninety_percent_intervals_hold_nine_of_ten() -> None:
    held = []
    for seed in range(20):
        measured = latencies(ALL, error=0.08, seed=seed)
        seen = fitted(30, measured, first=30 * seed).predict(ALL)
        inside = (seen.lower_ms <= measured) & (measured <= seen.upper_ms)
        held.append(np.delete(inside, np.arange(30 * seed, 30 * seed + 30)).mean())
    assert 0.86 < np.mean(held) < 0.94


def test_a_one_sided_bound_is_exceeded_by_one_of_ten() -> None:
    over = []
    for seed in range(20):
        measured = latencies(ALL, error=0.08, seed=seed)
        bound = fitted(30, measured, first=30 * seed).upper_ms(ALL)
        over.append((np.delete(measured > bound, np.arange(30 * seed, 30 * seed + 30))).mean())
    assert 0.05 < np.mean(over) < 0.14


def test_intervals_are_wider_where_networks_scatter_more() -> None:
    generator = np.random.default_rng(5)
    clean = latencies(ALL, error=0.0)
    scatter = 0.05 * (clean / np.median(clean)) ** -1.0
    model = fitted(100, clean * np.exp(scatter * generator.normal(size=len(clean))))
    seen = model.predict(ALL)
    width = np.log(seen.upper_ms / seen.lower_ms)
    order = np.argsort(clean)
    assert width[order[:200]].mean() > 1.3 * width[order[-200:]].mean()


def test_the_probability_of_meeting_a_budget_grows_with_the_budget() -> None:
    measured = latencies(ALL, error=0.05)
    model = fitted(50, measured)
    some = ALL.take(range(100, 110))
    probabilities = np.stack([model.probability_within(some, each) for each in np.linspace(1, 30, 30)])
    assert (np.diff(probabilities, axis=0) >= 0).all()
    assert (probabilities[0] < 0.05).all()
    assert (probabilities[-1] > 0.95).all()


def test_predictions_scale_with_the_unit_of_the_measurements() -> None:
    measured = latencies(ALL)
    rows = np.arange(20)
    small = CostModel.fit(ALL.take(rows), measured[rows]).predict(ALL).latency_ms
    large = CostModel.fit(ALL.take(rows), 1e3 * measured[rows]).predict(ALL).latency_ms
    assert np.allclose(large, 1e3 * small)


def test_a_baseline_that_does_better_is_used_and_named() -> None:
    generator = np.random.default_rng(3)
    useless = Encoded(
        encoding="noise-v1",
        variants=(Variant(name="noise", terms=TERMS, values=generator.gamma(1, 1, (60, 4))),),
        macs=ALL.macs[:60],
        counts=generator.gamma(1, 1, (60, 3)),
    )
    measured = 3.0 * ALL.macs[:60] + 1.0
    model = CostModel.fit(useless, measured)
    assert model.predictor == "macs"
    assert model.held_out["macs"] < model.held_out["terms"]
    assert np.allclose(model.predict(useless).latency_ms, measured, rtol=0.02)


def test_another_device_helps_when_it_is_alike_and_does_no_harm_when_not() -> None:
    truth = latencies(ALL, way=1, error=0.0)
    measured = latencies(ALL, way=1, error=0.08)
    alike = with_other_device(ALL, 40 * truth)
    unlike = with_other_device(ALL, np.random.default_rng(0).gamma(2, 1, len(ALL)) + 0.1)
    rows = np.arange(12)
    errors = {}
    for name, encoded in {"alone": ALL, "alike": alike, "unlike": unlike}.items():
        errors[name] = error_of(CostModel.fit(encoded.take(rows), measured[rows]), truth, encoded)
    assert errors["alike"] < errors["alone"]
    assert errors["unlike"] < 1.5 * errors["alone"] + 0.01


def test_averaging_members_agrees_with_least_squares_when_there_is_no_doubt() -> None:
    one = dataclasses.replace(ALL, variants=ALL.variants[:1])
    y = latencies(one, error=0.001, scale_ms=1.0)
    values = one.variants[0].values
    expected = values @ np.linalg.lstsq(values[:500] / y[:500, None], np.ones(500), rcond=None)[0]
    (beta,) = fit_sum(one.take(range(500)), y[:500])
    assert np.allclose(predict_sum(one, [beta]), expected, rtol=0.01)


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        (np.ones(7), "7 measurements are too few"),
        (np.array([*np.ones(9), 0.0]), "sample 9 has latency 0.0 ms"),
        (np.array([-2.0, *np.ones(9)]), "sample 0 has latency -2.0 ms"),
        (np.array([np.nan, *np.ones(9)]), "sample 0 has latency nan ms"),
        (np.array([*np.ones(9), np.inf]), "sample 9 has latency inf ms"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(measured: np.ndarray, message: str) -> None:
    with pytest.raises(CostModelError, match=message):
        CostModel.fit(ALL.take(range(len(measured))), measured)


def test_architectures_of_another_encoding_are_refused() -> None:
    model = fitted(10, latencies(ALL))
    with pytest.raises(CostModelError, match=r"fitted to 'made-up-v1', .* encoded as 'other'"):
        model.predict(dataclasses.replace(ALL, encoding="other"))


def test_equal_latencies_are_no_trouble() -> None:
    model = CostModel.fit(ALL.take(range(12)), np.full(12, 3.0))
    seen = model.predict(ALL)
    assert np.isfinite(seen.latency_ms).all()
    assert (seen.lower_ms > 0).all()


@pytest.mark.slow
def test_ten_thousand_candidates_take_no_two_seconds() -> None:
    model = fitted(100, latencies(ALL))
    many = ALL.take(np.arange(10_000) % len(ALL))
    started = time.process_time()
    model.predict(many)
    assert time.process_time() - started < 2
