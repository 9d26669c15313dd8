"""Language networks of equal training budget side by side: bits per byte on test text, decode and prefill latency.

The question of the bench: at equal or better quality on text that no search has seen, how much faster than attention
alone is the best mix? The mix is chosen on val; test is read once, for the answer.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.bench.contenders import BenchError, compile_tvm
from nas.bench.result import BenchResult, Cell, Figure
from nas.compile import workers
from nas.compile.tvm import CompileLimits, TvmCompiler
from nas.compile.workers import WorkerFailure, WorkerPool
from nas.config import StudyConfig
from nas.gates.parity import RELATIVE_TOLERANCE
from nas.training.job import read_progress, score_test_job, train_job
from nas.training.result import TrainFailure
from profilers.errors import ProfileFailure
from profilers.json_file import write_json
from profilers.local import LocalProfiler
from profilers.measurement import FINALIST, Measurement, MeasureProtocol
from profilers.statistics import compare
from search_spaces.candidate import Candidate
from search_spaces.layers import num_params, state_bytes

BASELINE = "attention_only"
"""The reference that speed-ups are relative to."""

TRIES = 4
PAUSE_S = 10.0
POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageBench:
    """What to compare.

    Attributes:
        config: the study whose task, recipe and compiler settings all share.
        candidates: name to network; `BASELINE` is one of them.
        phases: (decode, prefill) as the space names them.
        seeds: trainings of each network.
        protocol: how latencies are measured.
        is_quick: whether the figures are coarse.
    """

    config: StudyConfig
    candidates: Mapping[str, Candidate]
    phases: tuple[str, str]
    seeds: tuple[int, ...]
    protocol: MeasureProtocol = FINALIST
    is_quick: bool = False

    def __post_init__(self) -> None:
        if BASELINE not in self.candidates:
            raise BenchError(f"no candidate {BASELINE!r} to compare with; there are {sorted(self.candidates)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One training: bits per byte on both held-out splits."""

    val: float
    test: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One network in one phase, beside the baseline.

    Attributes:
        latency_ms, lower_ms, upper_ms: its own latency.
        speedup, speedup_lower, speedup_upper: baseline's latency over its own, of runs in turn; 1 for the baseline.
        rejected_because: why the number must not be used.
    """

    latency_ms: float
    lower_ms: float
    upper_ms: float
    speedup: float
    speedup_lower: float
    speedup_upper: float
    rejected_because: str | None


def run_language(bench: LanguageBench, folder: Path, *, note: Callable[[str], None]) -> BenchResult:
    """Trains and measures; what is finished is kept in `folder`, and the same call goes on from there.

    Raises:
        BenchError: a network that does not train, compile or measure.
    """
    trained = {name: _train_all(bench, name, folder, note) for name in bench.candidates}
    profiler = LocalProfiler(num_threads=bench.config.device.threads, parity_tolerance=RELATIVE_TOLERANCE, on_wait=note)
    speeds = _measure_all(bench, profiler, folder, note)
    return BenchResult(
        bench="language",
        device=profiler.device().fingerprint,
        figures=figures_of(trained, speeds),
        rows=[_row(bench, name, trained[name], speeds) for name in bench.candidates],
        is_quick=bench.is_quick,
    )


def best_mix(trained: Mapping[str, Sequence[Trained]], speeds: Mapping[str, tuple[Speed, Speed]]) -> str | None:
    """The fastest network that is at least as good as the baseline on val; None where there is none.

    Fastest: the smaller of its two speed-ups is the largest. Test takes no part in the choice.

    >>> def speed(s): return Speed(latency_ms=1, lower_ms=1, upper_ms=1, speedup=s, speedup_lower=s, speedup_upper=s,
    ...                            rejected_because=None)
    >>> val = {"attention_only": 2.0, "good": 1.9, "fast": 2.2, "slow": 1.5}
    >>> trained = {name: [Trained(val=value, test=9.0)] for name, value in val.items()}
    >>> pairs = {"attention_only": (1.0, 1.0), "good": (3.0, 2.0), "fast": (9.0, 9.0), "slow": (5.0, 1.1)}
    >>> best_mix(trained, {name: (speed(d), speed(p)) for name, (d, p) in pairs.items()})
    'good'
    """
    limit = _mean([each.val for each in trained[BASELINE]])
    fitting = [
        name for name, runs in trained.items() if name != BASELINE and _mean([each.val for each in runs]) <= limit
    ]
    return max(fitting, key=lambda name: min(speed.speedup for speed in speeds[name]), default=None)


def figures_of(
    trained: Mapping[str, Sequence[Trained]], speeds: Mapping[str, tuple[Speed, Speed]]
) -> dict[str, Figure]:
    """The numbers of the bench; those of the best mix are None where no network is as good as the baseline."""
    best = best_mix(trained, speeds)
    test = {name: _mean([each.test for each in runs]) for name, runs in trained.items()}
    figures: dict[str, Figure] = {"test_bits_per_byte": test}
    for place, phase in enumerate(("decode", "prefill")):
        figures[f"{phase}_speedup"] = {name: pair[place].speedup for name, pair in speeds.items()}
        chosen = None if best is None else speeds[best][place]
        figures[f"best_{phase}_speedup"] = None if chosen is None else chosen.speedup
        figures[f"best_{phase}_speedup_lower"] = None if chosen is None else chosen.speedup_lower
        figures[f"best_{phase}_speedup_upper"] = None if chosen is None else chosen.speedup_upper
    figures["best_test_bits_per_byte"] = None if best is None else test[best]
    figures["baseline_test_bits_per_byte"] = test[BASELINE]
    # Best minus baseline, over seeds in pairs: one seed draws the same order of examples for both.
    margins = [] if best is None else [a.test - b.test for a, b in zip(trained[best], trained[BASELINE], strict=True)]
    figures["test_margin"] = _mean(margins) if margins else None
    figures["test_margin_half_width"] = _half_width(margins) if len(margins) > 1 else None
    return figures


def _train_all(bench: LanguageBench, name: str, folder: Path, note: Callable[[str], None]) -> list[Trained]:
    return [_train(bench, name, seed, folder, note) for seed in bench.seeds]


def _train(bench: LanguageBench, name: str, seed: int, folder: Path, note: Callable[[str], None]) -> Trained:
    candidate, config = bench.candidates[name], bench.config
    place = folder / f"{candidate.candidate_id}-{seed}"
    finished = place / "scores.json"
    asked = {"task": config.task.model_dump(mode="json"), "training": config.training.model_dump(mode="json")}
    if finished.is_file():
        known = json.loads(finished.read_text())
        if known["asked"] == asked:
            return Trained(val=known["val"], test=known["test"])
    place.mkdir(parents=True, exist_ok=True)
    with WorkerPool[Any](1, initializer=workers.prepare_worker) as pool:
        progress = place / "progress.json"
        job = pool.submit(
            train_job, candidate.canonical_json(), config.task, config.training, seed, str(place), str(progress),
            timeout_s=config.training.timeout_s,
        )  # fmt: skip
        told = time.monotonic()
        while not job.is_done():
            time.sleep(POLL_S)
            seen = read_progress(progress)
            if seen is not None and time.monotonic() - told > 10:
                note(f"{name}, seed {seed}: step {seen.step} of {seen.num_steps}")
                told = time.monotonic()
        result = _value(job.result(), f"{name}, seed {seed}")
        test = pool.run(
            score_test_job, candidate.canonical_json(), config.task, seed, result.weights_path, result.weights_sha256,
            config.training.num_threads, timeout_s=config.training.timeout_s,
        )  # fmt: skip
        test = _value(test, f"{name}, seed {seed}, test")
    note(f"{name}, seed {seed}: {result.score.value:.3f} on val, {test.value:.3f} on test, {result.duration_s:.0f} s")
    write_json(finished, {"asked": asked, "val": result.score.value, "test": test.value})
    return Trained(val=result.score.value, test=test.value)


def _value(result: Any, what: str) -> Any:
    if isinstance(result, WorkerFailure | TrainFailure):
        raise BenchError(f"{what}: {result.reason}")
    return result


def _measure_all(
    bench: LanguageBench, profiler: LocalProfiler, folder: Path, note: Callable[[str], None]
) -> dict[str, tuple[Speed, Speed]]:
    from profilers.lock import state_folder

    compiling = bench.config.compile
    limits = CompileLimits(
        tuning_trials=compiling.tuning_trials, timeout_s=compiling.timeout_s, num_workers=compiling.workers
    )
    compiler = TvmCompiler(profiler.device(), limits, state_folder())
    try:
        by_phase = [_measure_phase(bench, phase, compiler, profiler, note) for phase in bench.phases]
    finally:
        compiler.close()
    decode, prefill = by_phase
    return {name: (decode[name], prefill[name]) for name in bench.candidates}


def _measure_phase(
    bench: LanguageBench, phase: str, compiler: TvmCompiler, profiler: LocalProfiler, note: Callable[[str], None]
) -> dict[str, Speed]:
    """Each network in turn with the baseline, so that the ratio is of runs side by side."""
    note(f"compiling {len(bench.candidates)} networks for {phase}")
    artifacts = {name: compile_tvm(compiler, each, phase).artifact for name, each in bench.candidates.items()}
    speeds: dict[str, Speed] = {}
    for name in bench.candidates:
        if name == BASELINE:
            continue
        note(f"measuring {name} and {BASELINE}, {phase}")
        for attempt in range(1, TRIES + 1):
            own, base = (
                _measurement(each, name)
                for each in profiler.measure_interleaved([artifacts[name], artifacts[BASELINE]], bench.protocol)
            )
            reason = own.rejected_because or base.rejected_because
            if reason is None or attempt == TRIES:
                break
            note(f"the machine was disturbed: {reason}; again in {PAUSE_S:g} s")
            time.sleep(PAUSE_S)
        ratio = compare(base.blocks, own.blocks, noise=own.noise)
        speeds[name] = Speed(
            latency_ms=own.latency_ms, lower_ms=own.lower_ms, upper_ms=own.upper_ms, speedup=ratio.ratio,
            speedup_lower=ratio.lower, speedup_upper=ratio.upper, rejected_because=reason,
        )  # fmt: skip
        if BASELINE not in speeds or speeds[BASELINE].rejected_because is not None:
            speeds[BASELINE] = Speed(
                latency_ms=base.latency_ms, lower_ms=base.lower_ms, upper_ms=base.upper_ms, speedup=1.0,
                speedup_lower=1.0, speedup_upper=1.0, rejected_because=base.rejected_because,
            )  # fmt: skip
    return speeds


def _measurement(result: Measurement | ProfileFailure, name: str) -> Measurement:
    if isinstance(result, ProfileFailure):
        raise BenchError(f"{name}: {result.kind}: {result.reason}")
    return result


def _row(
    bench: LanguageBench, name: str, runs: Sequence[Trained], speeds: Mapping[str, tuple[Speed, Speed]]
) -> dict[str, Cell]:
    candidate = bench.candidates[name]
    row: dict[str, Cell] = {
        "name": name,
        "candidate_id": candidate.candidate_id,
        "params": num_params(candidate),
        "state_bytes": state_bytes(candidate, bench.phases[0]),
        "mixers": " ".join(block.kind for block in candidate.blocks[1::2]),
        "seeds": len(runs),
    }
    for split in ("val", "test"):
        values = [getattr(run, split) for run in runs]
        row[f"{split}_bits_per_byte"] = _mean(values)
        row[f"{split}_half_width"] = _half_width(values) if len(values) > 1 else None
    for phase, speed in zip(("decode", "prefill"), speeds[name], strict=True):
        row |= {
            f"{phase}_ms": speed.latency_ms,
            f"{phase}_lower_ms": speed.lower_ms,
            f"{phase}_upper_ms": speed.upper_ms,
            f"{phase}_speedup": speed.speedup,
            f"{phase}_speedup_lower": speed.speedup_lower,
            f"{phase}_speedup_upper": speed.speedup_upper,
            f"{phase}_rejected_because": speed.rejected_because,
        }
    return row


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _half_width(values: Sequence[float]) -> float:
    """Half of the 95% t interval of a mean over trainings.

    >>> round(_half_width([1.0, 1.0, 1.3]), 3)
    0.43
    """
    from scipy import stats

    return float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
