"""Known times of kernels as a term, and the other costs that a calibration predicts."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import time
from pathlib import Path

import numpy as np
import pytest

from profilers.cost_model import candidate_terms
from profilers.cost_model.candidate_terms import CandidateEncoder, Target
from profilers.cost_model.kernel_times import KernelTimes
from profilers.cost_model.model import CostModel
from profilers.cost_model.store import Calibration, load, save
from profilers.cost_model.terms import CostModelError
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.layer import Layer
from search_spaces.layers import layers_of
from search_spaces.space import RandomSuggest

SPACE = ConvAttentionSpace(BlockSpec.of("image", channels=1, height=8, width=8), BlockSpec.of("classifier", classes=10))
DRAWN = [SPACE.sample(RandomSuggest(random.Random(number))) for number in range(260)]
SOME = list({each.candidate_id: each for each in DRAWN}.values())
ENCODER = CandidateEncoder.from_candidates(SOME, "infer")


def layer(number: int, kind: str = "linear", *, macs: int = 1000, num_bytes: int = 300) -> Layer:
    return Layer(
        name=f"l{number}", kind=kind, num_macs=macs, num_params=10, input_bytes=num_bytes // 3,
        output_bytes=num_bytes // 3, weight_bytes=num_bytes // 3, signature=(kind, number, macs, num_bytes),
    )  # fmt: skip


def of(layers: list[Layer], seconds: list[float]) -> KernelTimes:
    times = KernelTimes.of(layers, {each.signature: took for each, took in zip(layers, seconds, strict=True)})
    assert times is not None
    return times


def test_known_times_tell_networks_apart_that_look_alike_to_the_layer_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve kernels of one kind and size, of very different speed; a network has four of them."""
    kernels = [layer(number) for number in range(12)]
    seconds = [1e-6 * (1 + number) for number in range(12)]
    networks = {
        each.candidate_id: tuple(random.Random(number).choices(kernels, k=4)) for number, each in enumerate(SOME)
    }
    monkeypatch.setattr(candidate_terms, "layers_of", lambda candidate, phase: networks[candidate.candidate_id])
    plain = CandidateEncoder.from_candidates(SOME, "infer")
    known = plain.with_kernel_times(of(kernels, seconds), SOME)
    times = of(kernels, seconds)
    latency = {each.candidate_id: 1e3 * times.seconds_of(networks[each.candidate_id]) for each in SOME}
    samples = tuple((each, latency[each.candidate_id]) for each in SOME[:20])
    unseen = sorted(SOME[20:], key=lambda each: latency[each.candidate_id])
    two = [unseen[0], unseen[-1]]
    truth = np.array([latency[each.candidate_id] for each in two])
    blind, seeing = (
        Calibration.fit(fingerprint="f", phase="infer", encoder=encoder, samples=samples) for encoder in (plain, known)
    )
    alike = blind.model.predict(plain.encode(two)).latency_ms
    told = seeing.model.predict(known.encode(two)).latency_ms
    assert alike[0] == pytest.approx(alike[1])
    assert truth[1] > 2 * truth[0]
    assert np.allclose(told, truth, rtol=0.1)


def test_times_that_mislead_do_no_harm() -> None:
    layers = [each for candidate in SOME for each in layers_of(candidate, "infer")]
    generator = random.Random(0)
    wrong = {each.signature: generator.lognormvariate(0, 1) * 1e-6 for each in layers}
    encoder = ENCODER.with_kernel_times(KernelTimes.of(layers, wrong), SOME)
    latency = ENCODER.encode(SOME).variants[0].values[:, :5] @ np.array([0.1, 0.2, 0.4, 0.2, 0.1])
    samples = tuple(zip(SOME[:30], map(float, latency), strict=False))
    errors = []
    for each in (ENCODER, encoder):
        model = Calibration.fit(fingerprint="f", phase="infer", encoder=each, samples=samples).model
        errors.append(float(np.abs(model.predict(each.encode(SOME[30:])).latency_ms / latency[30:] - 1).mean()))
    assert errors[1] < errors[0] + 0.01


def test_an_unknown_kernel_is_estimated_from_those_of_its_kind_by_work_and_bytes() -> None:
    slow = [layer(n, "conv 3", macs=1000 * n, num_bytes=300) for n in (1, 2, 4)]
    fast = [layer(n, "linear", macs=1000 * n, num_bytes=300 * n) for n in (1, 2)]
    times = of([*slow, *fast], [10e-6, 20e-6, 40e-6, 1e-6, 2e-6])
    assert times.seconds_of([layer(9, "conv 3", macs=3000, num_bytes=300)]) == pytest.approx(30e-6, rel=0.05)
    assert times.seconds_of([layer(9, "linear", macs=4000, num_bytes=1200)]) == pytest.approx(4e-6, rel=0.05)


def test_a_kernel_of_a_kind_that_nobody_timed_is_estimated_from_all_of_them() -> None:
    times = of([layer(1, macs=1000), layer(2, macs=2000)], [1e-6, 2e-6])
    assert times.seconds_of([layer(9, "softmax", macs=0, num_bytes=600)]) > 0
    assert times.seconds_of([layer(9, "conv 3", macs=3000)]) == pytest.approx(3e-6, rel=0.2)


def test_a_sum_has_the_known_times_as_they_are_and_says_what_share_of_the_work_they_are() -> None:
    one, two, new = layer(1, macs=1000), layer(2, macs=3000), layer(3, macs=4000)
    times = of([one, two], [5e-6, 7e-6])
    assert times.seconds_of([one, two, two]) == pytest.approx(19e-6)
    assert times.known_share([one, two, new]) == 0.5
    assert times.known_share([one, two]) == 1.0


def test_nothing_known_is_no_term() -> None:
    assert KernelTimes.of([layer(1)], {}) is None
    assert len(ENCODER.with_kernel_times(None, SOME).encode(SOME[:1]).variants) == 1


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused_by_name(seconds: float) -> None:
    with pytest.raises(CostModelError, match=r"kernel \('linear', 1, 1000, 300\) takes .* allowed: finite, above 0"):
        of([layer(1)], [seconds])


# In a calibration


def timed() -> CandidateEncoder:
    layers = [each for candidate in SOME[:30] for each in layers_of(candidate, "infer")]
    seconds = {each.signature: 1e-7 + each.num_macs / 4e10 for each in layers}
    return ENCODER.with_kernel_times(KernelTimes.of(layers, seconds), SOME[:50])


def num_weight_bytes(candidate: Candidate) -> int:
    return sum(each.weight_bytes for each in layers_of(candidate, "infer"))


def amount(candidate: Candidate, target: Target) -> float:
    """A made-up device; scatters by a few percent, always the same for a candidate."""
    luck = random.Random(f"{candidate.candidate_id} {target}").gauss(1, 0.03)
    layers = layers_of(candidate, "infer")
    macs = sum(each.num_macs for each in layers)
    if target == "model_bytes":
        return (60_000 + 3_000 * len(layers) + num_weight_bytes(candidate)) * luck
    if target == "peak_memory_bytes":
        return (2e6 + 2.5 * num_weight_bytes(candidate) + max(each.output_bytes for each in layers)) * luck
    if target == "energy_mj":
        return (0.5 + 0.02 * len(layers) + macs / 1e7) * luck
    return (0.02 + 0.004 * len(layers) + macs / 4e7) * luck


def samples_of(target: Target, num: int = 40) -> tuple[tuple[Candidate, float], ...]:
    return tuple((each, amount(each, target)) for each in SOME[:num])


OTHERS: tuple[Target, ...] = ("model_bytes", "peak_memory_bytes", "energy_mj")


@functools.cache
def calibration() -> Calibration:
    return Calibration.fit(
        fingerprint="abc", phase="infer", encoder=timed(), samples=samples_of("latency_ms"),
        amounts={target: samples_of(target) for target in OTHERS},
    )  # fmt: skip


def test_a_calibration_keeps_the_times_it_was_fitted_with_and_predicts_the_same_numbers(tmp_path: Path) -> None:
    made = calibration()
    save(made, tmp_path / "c.json")
    known = load(tmp_path / "c.json", made.key)
    assert known.encoder == made.encoder
    assert known.encoder.kernel_times is not None
    models: dict[Target, tuple[CostModel, CostModel]] = {"latency_ms": (known.model, made.model)}
    models |= {a.target: (a.model, b.model) for a, b in zip(known.amounts, made.amounts, strict=True)}
    assert len(models) == 4
    for target, (read, fitted) in models.items():
        seen, expected = (
            model.predict(each.encoder.encode(SOME, target)) for model, each in ((read, known), (fitted, made))
        )
        assert np.array_equal(seen.upper_ms, expected.upper_ms)
    assert [each.samples for each in known.amounts] == [each.samples for each in made.amounts]


def test_a_model_refuses_other_times_than_those_it_was_fitted_with_until_it_is_fitted_again() -> None:
    made = calibration()
    times = made.encoder.kernel_times
    assert times is not None
    faster = KernelTimes(kernels=tuple(dataclasses.replace(each, seconds=each.seconds / 2) for each in times.kernels))
    encoder = made.encoder.with_kernel_times(faster, SOME[:50])
    with pytest.raises(CostModelError, match=r"fitted to .* known kernel times .*; calibrate again"):
        made.model.predict(encoder.encode(SOME[:2]))
    again = made.refitted(encoder)
    assert again.samples == made.samples
    assert [each.samples for each in again.amounts] == [each.samples for each in made.amounts]
    assert np.isfinite(again.model.predict(encoder.encode(SOME)).latency_ms).all()


def test_a_calibration_of_the_first_format_is_read_as_latencies_alone(tmp_path: Path) -> None:
    plain = Calibration.fit(fingerprint="abc", phase="infer", encoder=ENCODER, samples=samples_of("latency_ms"))
    data = {**plain.to_json(), "format": 1}
    for late in ("typical_bytes", "kernel_times", "typical_s", "amounts"):
        del data[late]
    (tmp_path / "c.json").write_text(json.dumps(data))
    known = load(tmp_path / "c.json", plain.key)
    assert known.amounts == () and known.encoder.kernel_times is None
    assert np.array_equal(
        known.model.predict(known.encoder.encode(SOME)).latency_ms, plain.model.predict(ENCODER.encode(SOME)).latency_ms
    )
    with pytest.raises(CostModelError, match="model_bytes: this encoder knows latencies alone"):
        known.encoder.encode(SOME, "model_bytes")


@pytest.mark.parametrize(
    "change",
    [
        {"kernel_times": []}, {"kernel_times": [[["conv"], "conv", 1, 1, -1.0]]}, 
        {"kernel_times": [[[0.5], "c", 1, 1, 1]]},
        {"typical_s": 0.0}, {"typical_s": float("nan")}, {"amounts": {"charm": {}}}, {"amounts": {"energy_mj": {}}},
    ],
)  # fmt: skip
def test_damaged_times_and_amounts_are_refused_in_one_line(tmp_path: Path, change: dict[str, object]) -> None:
    made = calibration()
    (tmp_path / "c.json").write_text(json.dumps({**made.to_json(), **change}))
    with pytest.raises(CostModelError, match="not a calibration that this version can read") as caught:
        load(tmp_path / "c.json", made.key)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("target", OTHERS)
def test_other_costs_of_unseen_candidates_are_predicted_within_their_intervals(target: Target) -> None:
    made = calibration()
    model = next(each.model for each in made.amounts if each.target == target)
    unseen = SOME[40:]
    encoded = made.encoder.encode(unseen, target)
    truth = np.array([amount(each, target) for each in unseen])
    seen = model.predict(encoded)
    assert np.abs(seen.latency_ms / truth - 1).mean() < 0.06
    assert 0.78 < ((seen.lower_ms <= truth) & (truth <= seen.upper_ms)).mean() < 0.99
    least, most = (
        model.probability_within(encoded, 0.3 * truth.min()),
        model.probability_within(encoded, 3 * truth.max()),
    )
    assert (least < 0.05).all() and (most > 0.95).all()


def test_a_cost_that_was_measured_too_rarely_has_no_model() -> None:
    made = Calibration.fit(
        fingerprint="abc", phase="infer", encoder=ENCODER, samples=samples_of("latency_ms"),
        amounts={"energy_mj": samples_of("energy_mj", 7), "model_bytes": samples_of("model_bytes", 8)},
    )  # fmt: skip
    assert [each.target for each in made.amounts] == ["model_bytes"]


@pytest.mark.slow
def test_ten_thousand_candidates_with_known_times_take_no_two_seconds_and_one_no_millisecond() -> None:
    made = calibration()
    encoded = made.encoder.encode(SOME)
    many = encoded.take(np.arange(10_000) % len(SOME))
    started = time.process_time()
    made.model.predict(many)
    assert time.process_time() - started < 2
    started = time.process_time()
    for candidate in SOME[:100]:
        made.encoder.encode([candidate])
    assert (time.process_time() - started) / 100 < 1e-3
