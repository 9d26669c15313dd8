"""Calibrations on disk, and candidates as terms."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest

from profilers.cost_model.candidate_terms import CandidateEncoder
from profilers.cost_model.store import Calibration, load, save
from profilers.cost_model.terms import CostModelError
from search_spaces import layers
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.layers import num_macs
from search_spaces.space import RandomSuggest


def candidates(num: int, side: int = 8) -> list[Candidate]:
    image = BlockSpec.of("image", channels=1, height=side, width=side)
    space = ConvAttentionSpace(image, BlockSpec.of("classifier", classes=10))
    return [space.sample(RandomSuggest(random.Random(seed))) for seed in range(num)]


SOME = candidates(60)
ENCODER = CandidateEncoder.from_candidates(SOME)
CALIBRATION = Calibration.fit(
    fingerprint="abc", phase="infer", encoder=ENCODER,
    samples=tuple((each, 0.05 + num_macs(each) / 1e7) for each in SOME[:30]),
)  # fmt: skip


def test_a_calibration_survives_the_disk(tmp_path: Path) -> None:
    path = CALIBRATION.key.path(tmp_path)
    save(CALIBRATION, path)
    known = load(path, CALIBRATION.key)
    encoded = ENCODER.encode(SOME)
    assert np.array_equal(known.model.predict(encoded).upper_ms, CALIBRATION.model.predict(encoded).upper_ms)
    assert known.samples == CALIBRATION.samples
    assert known.key == CALIBRATION.key


def test_the_file_is_plain_json_with_its_measurements(tmp_path: Path) -> None:
    save(CALIBRATION, tmp_path / "c.json")
    data = json.loads((tmp_path / "c.json").read_text())
    assert data["space"] == "conv_attention"
    assert len(data["samples"]) == 30


@pytest.mark.parametrize(
    ("field", "value"),
    [("fingerprint", "def"), ("space", "other"), ("space_version", 99), ("phase", "decode@512"), ("ends", "[]")],
)
def test_a_foreign_calibration_is_refused_by_what_is_foreign(tmp_path: Path, field: str, value: str | int) -> None:
    save(CALIBRATION, tmp_path / "c.json")
    wanted = dataclasses.replace(CALIBRATION.key, **{field: value})
    with pytest.raises(CostModelError, match=rf"foreign calibration: {field} is .*; run `nas calibrate`"):
        load(tmp_path / "c.json", wanted)


def damaged() -> list[str]:
    data = CALIBRATION.to_json()
    model = data["model"]
    return [
        "", "[]", "{}", "null", '{"format": 1', json.dumps({**data, "format": 3}),
        json.dumps({**data, "model": {**model, "typical_ms": float("nan")}}),
        json.dumps({**data, "model": {**model, "typical_ms": -1.0}}),
        json.dumps({**data, "model": {**model, "predictor": "oracle"}}),
        json.dumps({**data, "model": {**model, "coefficients": [["a"]]}}),
        json.dumps({**data, "samples": [["x", 1.0]]}),
    ]  # fmt: skip


@pytest.mark.parametrize("text", damaged())
def test_a_damaged_calibration_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(CostModelError, match="not a calibration that this version can read") as caught:
        load(tmp_path / "c.json", CALIBRATION.key)
    assert "\n" not in str(caught.value)


def test_a_calibration_that_was_never_made_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(CostModelError, match=r"there is no calibration; run `nas calibrate`"):
        load(tmp_path / "c.json", CALIBRATION.key)


def test_candidates_of_another_task_are_refused() -> None:
    with pytest.raises(CostModelError, match="run `nas calibrate`"):
        ENCODER.encode(candidates(1, side=32))


def test_terms_add_up_over_layers() -> None:
    encoded = ENCODER.encode(SOME)
    macs = np.array([num_macs(each) for each in SOME])
    assert np.allclose(encoded.macs, macs / macs.mean())
    assert np.allclose(encoded.variants[0].values.mean(0)[:5], 1.0)


def test_an_encoder_takes_candidates_of_one_task_only() -> None:
    with pytest.raises(CostModelError, match="2 spaces or tasks"):
        CandidateEncoder.from_candidates([*candidates(2), *candidates(2, side=16)])


def test_an_encoder_sees_the_layers_of_its_own_phase_also_after_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = {"decode@512": 8, "prefill@512": 32, None: 8}
    monkeypatch.setitem(layers.INPUTS, "image", lambda spec, phase: (1, sides[phase], 8))
    decode, prefill = (CandidateEncoder.from_candidates(SOME, phase) for phase in ("decode@512", "prefill@512"))
    assert max(prefill.typical[2:5]) > 2 * max(decode.typical[2:5])
    samples = tuple((each, 0.05 + num_macs(each) / 1e7) for each in SOME[:30])
    fitted = Calibration.fit(fingerprint="abc", phase="prefill@512", encoder=prefill, samples=samples)
    save(fitted, fitted.key.path(tmp_path))
    known = load(fitted.key.path(tmp_path), fitted.key)
    assert known.encoder == prefill
    assert np.array_equal(known.encoder.encode(SOME).macs, prefill.encode(SOME).macs)
    with pytest.raises(CostModelError, match="encoder is of phase 'decode@512', the latencies are of 'prefill@512'"):
        Calibration.fit(fingerprint="abc", phase="prefill@512", encoder=decode, samples=samples)
