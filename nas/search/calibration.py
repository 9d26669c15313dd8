"""Calibrates a cost model on this device: chooses candidates, measures them, fits, and tests on others."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nas.config import StudyConfig
from nas.errors import NasError
from nas.ledger import Ledger
from nas.search.pipeline import Proposal, Stopped, Workbench, compile_phase, measure_phase
from nas.search.progress import Watcher
from nas.search.screener import encoder_of, key_of, random_candidates, timed_encoder
from nas.search.screening import at_least_a_page
from nas.search.workbench import LocalWorkbench
from profilers.cost_model import baselines
from profilers.cost_model.baselines import BASELINES
from profilers.cost_model.candidate_terms import AMOUNTS, Target
from profilers.cost_model.selection import choose
from profilers.cost_model.store import Calibration
from search_spaces.candidate import Candidate
from search_spaces.layers import layers_of
from search_spaces.space import SearchSpace

POOL = 2000
"""Random candidates that the informative ones are chosen from."""
MAX_FAILED_SHARE = 0.2

Sample = tuple[Candidate, float]
Costs = Mapping[Target, float]
"""What one candidate was measured to cost."""


class CalibrationError(NasError):
    """A calibration that cannot go on; the message says what failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """How well one predictor did on candidates that it never saw.

    Attributes:
        predictor: `model`, `macs` or `counts`.
        mape: mean absolute relative error.
        within5, within10: share of predictions within 5 and 10% of the measurement.
        spearman, kendall: rank correlations; None where all values are equal.
        coverage90: share of measurements inside the 90% intervals; None for a baseline, which has none.
    """

    predictor: str
    mape: float
    within5: float
    within10: float
    spearman: float | None
    kendall: float | None
    coverage90: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    """A calibration with its test.

    Attributes:
        calibration: what was fitted.
        tested: candidates that the fit never saw, with their latencies in ms.
        held_out: the model's errors on them, and the baselines'.
        num_failed: candidates without a latency: not compiled, wrong outputs, disturbed.
        seconds: wall clock of measuring everything.
        other_held_out: (target, errors of its model and the baselines) of each other cost that was measured.
        known_share: mean share of the tested candidates' work in kernels whose times the model knows; None without
            known times, or without tests.
    """

    calibration: Calibration
    tested: tuple[Sample, ...]
    held_out: tuple[HeldOut, ...]
    num_failed: int
    seconds: float
    other_held_out: tuple[tuple[Target, tuple[HeldOut, ...]], ...] = ()
    known_share: float | None = None


@contextmanager
def open_bench(config: StudyConfig, phase: str, watcher: Watcher) -> Iterator[LocalWorkbench]:
    """The tools of a search for one phase without a study: what is measured is kept in the user's cache alone."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger(f"sqlite:///{folder}/calibration.db") as ledger,
    ):
        bench = LocalWorkbench(config, Path(folder), ledger, (phase,), watcher)
        try:
            yield bench
        finally:
            bench.close()


def calibrate(
    space: SearchSpace,
    bench: Workbench,
    fingerprint: str,
    watcher: Watcher,
    *,
    num_samples: int,
    num_tests: int,
    seed: int,
) -> CalibrationResult:
    """Measures, fits and tests, for the first of the bench's phases.

    Candidates to test on are random and drawn first; the fit uses others, half of them chosen.

    Raises:
        CalibrationError: more than a fifth of the candidates gave no latency, or the space has too few.
        CostModelError: too few samples.
    """
    started = time.monotonic()
    pool = _distinct(random_candidates(space, POOL, seed=seed))
    if len(pool) < num_samples + num_tests:
        raise CalibrationError(
            f"{num_samples} samples and {num_tests} tests, but only {len(pool)} distinct candidates among {POOL};"
            " ask for fewer"
        )
    phase = bench.phases[0]
    encoder = encoder_of(space, phase)
    tests, rest = pool[:num_tests], pool[num_tests:]
    chosen = choose(encoder.encode(rest), num_samples, np.random.default_rng(seed))
    wanted = [*(rest[int(at)] for at in chosen), *tests]
    measured = _measure_all(wanted, bench, watcher)
    test_ids = {candidate.candidate_id for candidate in tests}
    fitted = [(each, costs) for each, costs in measured if each.candidate_id not in test_ids]
    seen = [(each, costs) for each, costs in measured if each.candidate_id in test_ids]
    calibration = Calibration.fit(
        fingerprint=fingerprint,
        phase=phase,
        # Kernels of the fitted candidates alone: those of the others shall be as unknown as in a search.
        encoder=timed_encoder(encoder, [candidate for candidate, _ in fitted], space, bench.kernel_seconds),
        samples=_samples(fitted, "latency_ms"),
        amounts={target: _samples(fitted, target) for target in AMOUNTS},
    )
    tested = _samples(seen, "latency_ms")
    others = [(each.target, _samples(seen, each.target)) for each in calibration.amounts]
    return CalibrationResult(
        calibration=calibration,
        tested=tested,
        held_out=held_out(calibration, tested) if len(tested) > 1 else (),
        num_failed=len(wanted) - len(measured),
        seconds=time.monotonic() - started,
        other_held_out=tuple(
            (target, held_out(calibration, samples, target)) for target, samples in others if len(samples) > 1
        ),
        known_share=_known_share(calibration, tested),
    )


def _samples(measured: Sequence[tuple[Candidate, Costs]], target: Target) -> tuple[Sample, ...]:
    return tuple((candidate, costs[target]) for candidate, costs in measured if target in costs)


def _known_share(calibration: Calibration, tested: Sequence[Sample]) -> float | None:
    times = calibration.encoder.kernel_times
    if times is None or not tested:
        return None
    shares = [times.known_share(layers_of(candidate, calibration.phase)) for candidate, _ in tested]
    return float(np.mean(shares))


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    return list({candidate.candidate_id: candidate for candidate in candidates}.values())


def _measure_all(candidates: Sequence[Candidate], bench: Workbench, watcher: Watcher) -> list[tuple[Candidate, Costs]]:
    """Those that gave a latency, with what they cost."""
    measured: list[tuple[Candidate, Costs]] = []
    for number, candidate in enumerate(candidates):
        watcher.stage("calibrate", number, len(candidates))
        costs = _measure(Proposal(trial=number, candidate=candidate), bench)
        if isinstance(costs, Stopped):
            watcher.note(f"{candidate.candidate_id}: {costs.outcome.value}: {costs.reason}")
        else:
            measured.append((candidate, costs))
        num_failed = number + 1 - len(measured)
        if num_failed > 5 and num_failed > MAX_FAILED_SHARE * (number + 1):
            raise CalibrationError(
                f"{num_failed} of {number + 1} candidates gave no latency, at last {candidate.candidate_id};"
                f" allowed: {MAX_FAILED_SHARE:.0%}; mend the cause above, then run the same command again"
            )
    return measured


def _measure(proposal: Proposal, bench: Workbench) -> Costs | Stopped:
    runnable = compile_phase(proposal, bench.phases[0], bench)
    timed = runnable if isinstance(runnable, Stopped) else measure_phase(runnable, bench)
    if isinstance(timed, Stopped):
        return timed
    costs: dict[Target, float] = {
        "latency_ms": timed.estimate.latency_ms,
        "model_bytes": at_least_a_page(timed.artifact.model_bytes),
        "peak_memory_bytes": at_least_a_page(timed.measurement.peak_memory_bytes),
    }
    energy_mj = timed.measurement.energy_mj
    # A counter that did not move measured nothing.
    return costs if energy_mj is None or energy_mj <= 0 else {**costs, "energy_mj": energy_mj}


def held_out(calibration: Calibration, tested: Sequence[Sample], target: Target = "latency_ms") -> tuple[HeldOut, ...]:
    """Errors of the model of a cost, and of both baselines, on candidates that no fit saw."""
    other = calibration.amount(target)
    samples, model = (calibration.samples, calibration.model) if other is None else (other.samples, other.model)
    encoded = calibration.encoder.encode([candidate for candidate, _ in tested], target)
    truth = np.array([amount for _, amount in tested])
    seen = model.predict(encoded)
    fitted = calibration.encoder.encode([candidate for candidate, _ in samples], target)
    measured = np.array([amount for _, amount in samples])
    typical = np.median(measured)
    results = [
        _errors("model", seen.latency_ms, truth, float(((seen.lower_ms <= truth) & (truth <= seen.upper_ms)).mean()))
    ]
    for name in BASELINES:
        values = baselines.baseline_values(fitted, name)
        coefficients = baselines.fit_baseline(values, measured / typical, name)
        results.append(_errors(name, typical * baselines.predict_baseline(encoded, coefficients, name), truth, None))
    return tuple(results)


def _errors(predictor: str, predicted: np.ndarray, truth: np.ndarray, coverage90: float | None) -> HeldOut:
    from scipy.stats import kendalltau, spearmanr

    wrong = np.abs(predicted / truth - 1)
    has_order = len(set(predicted.tolist())) > 1 and len(set(truth.tolist())) > 1
    return HeldOut(
        predictor=predictor,
        mape=float(wrong.mean()),
        within5=float((wrong <= 0.05).mean()),
        within10=float((wrong <= 0.1).mean()),
        spearman=float(spearmanr(predicted, truth).statistic) if has_order else None,
        kendall=float(kendalltau(predicted, truth).statistic) if has_order else None,
        coverage90=coverage90,
    )


def save_plot(result: CalibrationResult, path: Path) -> None:
    """Predicted against measured with 90% intervals: candidates of the fit grey, unseen ones in colour.

    Raises:
        OSError: the picture cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    calibration = result.calibration
    picture = Figure(figsize=(5.5, 5), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots()
    for samples, colour, label in (
        (calibration.samples, "0.6", "used for the fit"), (result.tested, "tab:blue", "never seen by the fit"),
    ):  # fmt: skip
        if not samples:
            continue
        seen = calibration.model.predict(calibration.encoder.encode([candidate for candidate, _ in samples]))
        truth = [latency for _, latency in samples]
        spread = np.stack([seen.latency_ms - seen.lower_ms, seen.upper_ms - seen.latency_ms])
        axes.errorbar(truth, seen.latency_ms, yerr=spread, fmt="o", ms=3, lw=0.8, color=colour, label=label)
    limits = [min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])]
    axes.plot(limits, limits, color="black", lw=0.8)
    axes.set_xlabel("measured, ms")
    axes.set_ylabel("predicted with 90% interval, ms")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)


def config_for(space: str, *, device: str, threads: int, tuning_trials: int, folder: Path) -> StudyConfig:
    """The settings that a bench for calibration needs."""
    from nas.config import load_config

    return load_config(
        overrides={
            "search.space": space, "device.id": device, "device.threads": threads,
            "compile.tuning_trials": tuning_trials, "output.out": folder,
        }
    )  # fmt: skip


__all__ = [
    "CalibrationError", "CalibrationResult", "HeldOut", "calibrate", "config_for", "held_out", "key_of", "open_bench",
    "save_plot",
]  # fmt: skip
