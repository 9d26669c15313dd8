"""Calibration: what is measured, fitted and tested; and that searches find it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nas.ledger import Ledger
from nas.search.calibration import CalibrationError, CalibrationResult, calibrate, key_of, save_plot
from nas.search.progress import Silent
from nas.search.screener import known_calibration, open_screener, random_candidates, with_times_of_now
from nas.search.testing import FakeWorkbench, Script, SmallSpace
from profilers.cost_model.store import save
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.layers import layers_of, num_macs

IMAGE, CLASSES = BlockSpec.of("image", channels=1, height=8, width=8), BlockSpec.of("classifier", classes=10)
SPACE = ConvAttentionSpace(IMAGE, CLASSES)


def law_ms(candidate: Candidate) -> float:
    """Calls and work count, as on real devices."""
    luck = 1 + 0.01 * (int(candidate.candidate_id[:2], 16) / 128 - 1)
    return (0.02 + 0.004 * len(layers_of(candidate)) + num_macs(candidate) / 4e7) * luck


def run(
    folder: Path,
    look: Callable[[Candidate], Script] = lambda each: Script(look=law_ms(each)),
    *,
    samples: int = 20,
    tests: int = 15,
) -> CalibrationResult:
    with Ledger(f"sqlite:///{folder}/l.db") as ledger:
        bench = FakeWorkbench(folder=folder, ledger=ledger, script=look)
        return calibrate(SPACE, bench, "abc", Silent(), num_samples=samples, num_tests=tests, seed=0)


def test_the_model_is_tested_on_candidates_that_the_fit_never_saw(tmp_path: Path) -> None:
    result = run(tmp_path)
    fitted = {candidate.candidate_id for candidate, _ in result.calibration.samples}
    tested = {candidate.candidate_id for candidate, _ in result.tested}
    assert (len(fitted), len(tested)) == (20, 15)
    assert not fitted & tested


def test_the_model_beats_both_baselines_where_calls_and_work_count(tmp_path: Path) -> None:
    model, macs, counts = run(tmp_path).held_out
    assert [each.predictor for each in (model, macs, counts)] == ["model", "macs", "counts"]
    assert model.within10 > 0.9
    assert model.mape < min(macs.mape, counts.mape)
    assert model.coverage90 is not None
    assert counts.coverage90 is None


def test_candidates_without_a_latency_are_counted_and_left_out(tmp_path: Path) -> None:
    lost = {candidate.candidate_id for candidate in random_candidates(SPACE, 2000, seed=0)[:3]}
    result = run(
        tmp_path,
        lambda each: Script(compile_failure="no rule") if each.candidate_id in lost else Script(look=law_ms(each)),
    )
    assert result.num_failed == 3
    assert len(result.tested) == 12


def test_a_device_on_which_most_fails_is_no_device_to_calibrate(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="6 of 6 candidates gave no latency"):
        run(tmp_path, lambda each: Script(compile_failure="no rule"))


def test_a_space_with_too_few_candidates_is_named(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/l.db") as ledger:
        bench = FakeWorkbench(folder=tmp_path, ledger=ledger)
        with pytest.raises(CalibrationError, match="only 42 distinct candidates"):
            calibrate(SmallSpace(IMAGE, CLASSES), bench, "abc", Silent(), num_samples=40, num_tests=10, seed=0)


def test_without_tests_there_is_a_model_and_no_figures(tmp_path: Path) -> None:
    assert run(tmp_path, tests=0).held_out == ()


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    save_plot(run(tmp_path), tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_search_on_the_same_device_uses_the_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path / "cache"))
    result = run(tmp_path, samples=40, tests=0)
    save(result.calibration, key_of(SPACE, "infer", "abc").path(tmp_path / "cache"))
    assert known_calibration(SPACE, "infer", "abc", Silent()) is not None
    assert known_calibration(SPACE, "infer", "another device", Silent()) is None
    with Ledger(f"sqlite:///{tmp_path}/study.db") as ledger:
        bench = FakeWorkbench(folder=tmp_path, ledger=ledger)
        bench.screener = open_screener(SPACE, ("infer",), "abc", seed=0, ledger=ledger, watcher=Silent())
        from nas.budget import parse_budget, resolve_budgets

        pool = random_candidates(SPACE, 50, seed=9)
        median = float(np.median([law_ms(each) for each in pool]))
        bench.budgets = resolve_budgets([parse_budget(f"infer={median:.6f}ms")], ["infer"])
        answers = {each.candidate_id: bench.screen(0, each).answer for each in pool}
        slowest, fastest = max(pool, key=law_ms), min(pool, key=law_ms)
        assert answers[slowest.candidate_id] in ("ruled_out", "audited")
        assert answers[fastest.candidate_id] == "pass"


def test_a_damaged_calibration_is_noted_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Notes(Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    notes: list[str] = []
    monkeypatch.setenv("NAS_CACHE_DIR", str(tmp_path))
    path = key_of(SPACE, "infer", "abc").path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert known_calibration(SPACE, "infer", "abc", Notes()) is None
    assert len(notes) == 1
    assert "the calibration is not used" in notes[0]


# Other costs, and kernels that are known


def everything(candidate: Candidate) -> Script:
    layers = layers_of(candidate)
    weights = sum(each.weight_bytes for each in layers)
    return Script(
        look=law_ms(candidate), model_bytes=60_000 + 3_000 * len(layers) + weights, peak_memory_bytes=2 * weights,
        energy_mj=0.1 + num_macs(candidate) / 1e7,
    )  # fmt: skip


def test_each_cost_that_was_measured_is_predicted_and_tested_on_unseen_candidates(tmp_path: Path) -> None:
    result = run(tmp_path, everything)
    errors = {target: each[0] for target, each in result.other_held_out}
    assert list(errors) == ["model_bytes", "peak_memory_bytes", "energy_mj"]
    assert all(each.predictor == "model" and each.within10 > 0.9 for each in errors.values())
    for each in result.calibration.amounts:
        assert len(each.samples) == 20


def test_energy_that_the_device_cannot_tell_is_not_predicted(tmp_path: Path) -> None:
    result = run(tmp_path, tests=5)
    assert [each.target for each in result.calibration.amounts] == ["model_bytes", "peak_memory_bytes"]
    constant = dict(result.other_held_out)["model_bytes"][0]
    assert constant.mape < 0.02
    assert constant.spearman is None, "sizes that are all equal have no order"


def timed_bench(folder: Path, ledger: Ledger, factor: float = 1.0) -> FakeWorkbench:
    candidates = random_candidates(SPACE, 60, seed=5)
    layers = {each.signature: each for candidate in candidates for each in layers_of(candidate)}
    times = {signature: factor * (1e-6 + each.num_macs / 4e10) for signature, each in layers.items()}
    return FakeWorkbench(
        folder=folder, ledger=ledger, script=lambda each: Script(look=law_ms(each)), kernel_times=times
    )


def test_a_calibration_knows_the_kernels_of_the_candidates_it_was_fitted_to_and_no_others(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/l.db") as ledger:
        bench = timed_bench(tmp_path, ledger)
        result = calibrate(SPACE, bench, "abc", Silent(), num_samples=12, num_tests=15, seed=0)
    times = result.calibration.encoder.kernel_times
    assert times is not None
    fitted = {layer.signature for candidate, _ in result.calibration.samples for layer in layers_of(candidate)}
    assert {each.signature for each in times.kernels} <= fitted
    tested = [layers_of(candidate) for candidate, _ in result.tested]
    assert result.known_share == pytest.approx(np.mean([times.known_share(layers) for layers in tested]))
    assert 0.3 < result.known_share < 1.0


def test_a_calibration_is_fitted_again_only_when_kernels_take_another_time_now(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/l.db") as ledger:
        bench = timed_bench(tmp_path, ledger)
        made = calibrate(SPACE, bench, "abc", Silent(), num_samples=12, num_tests=0, seed=0).calibration
        assert with_times_of_now(made, SPACE, bench.kernel_seconds) is made
        again = with_times_of_now(made, SPACE, timed_bench(tmp_path, ledger, factor=0.5).kernel_seconds)
        gone = with_times_of_now(made, SPACE, FakeWorkbench(folder=tmp_path).kernel_seconds)
    assert made.encoder.kernel_times is not None and again.encoder.kernel_times is not None
    halves = zip(again.encoder.kernel_times.kernels, made.encoder.kernel_times.kernels, strict=True)
    assert all(now.seconds == pytest.approx(before.seconds / 2) for now, before in halves)
    assert again.samples == made.samples
    assert gone.encoder.kernel_times is None
    for each in (again, gone):
        encoded = each.encoder.encode(random_candidates(SPACE, 3, seed=8))
        assert np.isfinite(each.model.predict(encoded).latency_ms).all()
