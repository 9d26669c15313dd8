"""`nas bench kernels`: TVM's tuned code beside ONNX Runtime's and torch's, for a fixed set of candidates.

Everything that can be kept is kept in a folder of the bench's own, one for each number of trials, so that a run
that was stopped goes on and a second run only measures.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nas.bench import decode_model, kernel_costs
from nas.bench.contenders import TRIES, BenchError, compile_tvm, export_for_onnxruntime, time_in_turn
from nas.bench.kernel_costs import KernelCost
from nas.bench.kernel_figures import ORT, START, TVM, NetworkResult, figures, rows
from nas.bench.result import BenchResult
from nas.bench.torch_timing import COMPILED, EAGER, TorchTimes, time_torch
from nas.compile import workers
from nas.compile.compile_worker import CompileRequest
from nas.compile.lowering import PIPELINE_VERSION
from nas.compile.tvm import CompileLimits, TvmCompiler
from nas.compile.workers import WorkerFailure, WorkerPool
from nas.report.atomic import write_atomic
from profilers.errors import ProfileFailure
from profilers.local import LocalProfiler
from profilers.lock import device_lock
from profilers.measurement import FINALIST, MeasureProtocol
from profilers.roofline import DevicePeaks, measure_peaks
from search_spaces.candidate import BlockSpec, Candidate
from search_spaces.registry import make_space
from search_spaces.space import RandomSuggest

SEED = 3
"""Of the candidates."""
NUM_FIRST = 10
"""Networks after which the reuse of kernels is counted."""
QUICK_PROTOCOL = MeasureProtocol(num_processes=2, blocks_per_process=3, max_blocks_per_process=3)
_TORCH_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBench:
    """What is compared and how hard it is looked at.

    Attributes:
        model: `vision`, candidates of conv_attention; or `decode`, the one of `nas.bench.decode_model`.
        image: channels, height, width; of vision.
        num_candidates, num_reuse: the first of the seeded candidates that are timed, and whose kernels are
            listed for their reuse; 0 leaves that out.
        num_trials: schedules tried for each heavy kernel.
        num_threads: of one inference.
        has_torch, has_torch_compile, has_start: which of the costly comparisons to make.
        is_quick: see `BenchResult`.
    """

    model: Literal["vision", "decode"] = "vision"
    image: tuple[int, int, int] = (1, 8, 8)
    num_candidates: int = 8
    num_reuse: int = 40
    num_trials: int = 64
    num_threads: int = 1
    has_torch: bool = True
    has_torch_compile: bool = True
    has_start: bool = True
    is_quick: bool = False

    @property
    def phase(self) -> str:
        """Entry point that is compiled and timed."""
        return "infer" if self.model == "vision" else decode_model.PHASE

    @property
    def protocol(self) -> MeasureProtocol:
        """How contenders are measured."""
        return QUICK_PROTOCOL if self.is_quick else FINALIST


@dataclass(slots=True)
class TuningSpent:
    """Trials and seconds that went into the bench's database, over all runs; kept in `path`."""

    path: Path
    trials: int = 0
    seconds: float = 0.0

    @classmethod
    def load(cls, path: Path) -> TuningSpent:
        """What earlier runs spent; nothing when there is no such file or it is damaged."""
        try:
            content = json.loads(path.read_text())
            return cls(path, int(content["trials"]), float(content["seconds"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls(path)

    def add(self, trials: int, seconds: float) -> None:
        """Adds and keeps."""
        self.trials += trials
        self.seconds += seconds
        write_atomic(self.path, json.dumps({"trials": self.trials, "seconds": self.seconds}).encode())


def candidates(image: tuple[int, int, int], count: int) -> list[Candidate]:
    """The first `count` distinct candidates of the seeded sequence: the same in every run."""
    channels, height, width = image
    space = make_space(
        "conv_attention",
        BlockSpec.of("image", channels=channels, height=height, width=width),
        BlockSpec.of("classifier", classes=10),
    )
    generator, found = random.Random(SEED), dict[str, Candidate]()
    while len(found) < count:
        candidate = space.sample(RandomSuggest(generator))
        found.setdefault(candidate.candidate_id, candidate)
    return list(found.values())


@dataclass(slots=True)
class _Run:
    """What a run holds open."""

    bench: KernelBench
    folder: Path
    profiler: LocalProfiler
    compiler: TvmCompiler
    starter: TvmCompiler | None
    torch_pool: WorkerPool[Any]
    spent: TuningSpent
    note: Callable[[str], None]
    peaks: DevicePeaks | None = None
    results: list[NetworkResult] = field(default_factory=list)

    def close(self) -> None:
        self.compiler.close()
        self.torch_pool.close()
        if self.starter is not None:
            self.starter.close()


def run_kernels(
    bench: KernelBench, folder: Path, *, is_fresh: bool = False, note: Callable[[str], None] = lambda line: None
) -> BenchResult:
    """Runs the bench.

    Args:
        bench: what to compare.
        folder: where its databases and artifacts are kept.
        is_fresh: whether to throw those away first.
        note: told in one line what goes on.

    Raises:
        BenchError: a candidate does not compile or does not run.
    """
    own = folder / f"kernels-{bench.model}-trials-{bench.num_trials}-threads-{bench.num_threads}"
    start = folder / f"kernels-{bench.model}-start-threads-{bench.num_threads}"
    for each in (own, start) if is_fresh else ():
        shutil.rmtree(each, ignore_errors=True)
    own.mkdir(parents=True, exist_ok=True)
    profiler = LocalProfiler(num_threads=bench.num_threads, on_wait=note)
    device = profiler.device()
    run = _Run(
        bench=bench,
        folder=own,
        profiler=profiler,
        compiler=TvmCompiler(device, CompileLimits(tuning_trials=bench.num_trials), own),
        starter=TvmCompiler(device, CompileLimits(tuning_trials=1), start) if bench.has_start else None,
        torch_pool=WorkerPool(1, initializer=workers.prepare_worker),
        spent=TuningSpent.load(own / f"tuning-seconds-p{PIPELINE_VERSION}.json"),
        note=note,
    )
    try:
        chosen = _chosen(run)
        networks = _tune(run, chosen[: bench.num_candidates])
        networks += [_kernels(run, candidate) for candidate in chosen[bench.num_candidates : bench.num_reuse]]
        reuse = kernel_costs.reuse(networks, NUM_FIRST)
        run.peaks = _peaks(run)
        for number, candidate in enumerate(chosen[: bench.num_candidates]):
            note(f"measuring candidate {number + 1} of {bench.num_candidates}")
            run.results.append(_network(run, candidate, networks[number], is_first=number == 0))
    finally:
        run.close()
    return BenchResult(
        bench="kernels",
        device=device.id,
        figures=figures(run.results, num_trials=run.spent.trials, tuning_s=run.spent.seconds, reuse=reuse),
        rows=rows(run.results),
        is_quick=bench.is_quick,
    )


def _chosen(run: _Run) -> list[Candidate]:
    """The candidates; workers learn to build the decode step first."""
    if run.bench.model == "vision":
        return candidates(run.bench.image, max(run.bench.num_candidates, run.bench.num_reuse))
    for compiler in (run.compiler, run.starter):
        if compiler is not None:
            compiler.run(decode_model.install)
    run.torch_pool.run(decode_model.install, timeout_s=_TORCH_TIMEOUT_S)
    return [decode_model.candidate()]


def _tune(run: _Run, chosen: Sequence[Candidate]) -> list[tuple[KernelCost, ...]]:
    """Tunes what the candidates need, and lists their kernels."""
    networks = []
    for number, candidate in enumerate(chosen, start=1):
        before = run.compiler.database.num_trials()
        compiled = compile_tvm(run.compiler, candidate, run.bench.phase)
        num_trials = run.compiler.database.num_trials() - before
        if num_trials:
            run.spent.add(num_trials, compiled.tune_s)
        run.note(
            f"candidate {number} of {len(chosen)} {candidate.candidate_id}: {compiled.num_known} of"
            f" {compiled.num_kernels} kernels known, {num_trials} trials in {compiled.tune_s:.0f} s"
        )
        networks.append(_kernels(run, candidate))
    return networks


def _kernels(run: _Run, candidate: Candidate) -> tuple[KernelCost, ...]:
    """A candidate's kernels, from the file of an earlier run where there is one."""
    path = run.folder / "kernels" / f"{candidate.candidate_id}-p{PIPELINE_VERSION}.json"
    try:
        return kernel_costs.from_json(path.read_text())
    except (OSError, ValueError, TypeError):
        pass
    run.note(f"listing the kernels of {candidate.candidate_id}")
    request = _request(run, candidate)
    costs = run.compiler.run(kernel_costs.kernel_costs, request)
    if isinstance(costs, WorkerFailure):
        raise BenchError(f"candidate {candidate.candidate_id}: {costs.reason}")
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, kernel_costs.to_json(costs).encode())
    return tuple(costs)


def _request(run: _Run, candidate: Candidate) -> CompileRequest:
    return CompileRequest(
        candidate_json=candidate.canonical_json(),
        phase=run.bench.phase,
        weights=None,
        seed=0,
        target=run.profiler.device().target,
    )


def _peaks(run: _Run) -> DevicePeaks:
    device = run.profiler.device()
    with device_lock(device.id, on_wait=run.note):
        peaks = measure_peaks(device)
    if isinstance(peaks, ProfileFailure):
        raise BenchError(f"peaks of the device: {peaks.kind}: {peaks.reason}")
    return peaks


def _network(run: _Run, candidate: Candidate, costs: Sequence[KernelCost], *, is_first: bool) -> NetworkResult:
    compiled = compile_tvm(run.compiler, candidate, run.bench.phase)
    folder = run.folder / "onnx" / candidate.candidate_id
    artifacts = {
        TVM: compiled.artifact,
        ORT: export_for_onnxruntime(run.compiler, candidate, run.bench.phase, run.bench.num_threads, folder),
    }
    if run.starter is not None:
        artifacts[START] = compile_tvm(run.starter, candidate, run.bench.phase).artifact
    if is_first and not run.bench.is_quick:
        _compile_known_s(run, candidate)  # the worker's first one imports torch and TVM
    compile_known_s = _compile_known_s(run, candidate)
    tries = 1 if run.bench.is_quick else TRIES
    timed = time_in_turn(run.profiler, artifacts, run.bench.protocol, run.note, tries)
    assert run.peaks is not None
    return NetworkResult(
        name=candidate.candidate_id,
        timed=timed,
        torch=_torch(run, candidate) if run.bench.has_torch else None,
        compile_known_s=compile_known_s,
        tuned_coverage=compiled.artifact.tuned_coverage or 0.0,
        bandwidth_share=_bandwidth_share(run, timed[TVM].latency_ms),
        kernels=kernel_costs.shares(costs, run.compiler.database.get(cost.key for cost in costs), run.peaks),
    )


def _bandwidth_share(run: _Run, latency_ms: float) -> float | None:
    """Share of the memory's bandwidth: a decode step reads every weight once, and that is its floor."""
    assert run.peaks is not None
    if run.bench.model != "decode":
        return None
    num_bytes = decode_model.num_weight_bytes()
    return num_bytes / (latency_ms / 1e3) / run.peaks.bandwidth(num_bytes)


def _compile_known_s(run: _Run, candidate: Candidate) -> float:
    """Seconds to compile other weights of the candidate: all kernels are known, nothing else is."""
    compiled = compile_tvm(run.compiler, candidate, run.bench.phase, seed=1)
    if compiled.artifact.folder.is_dir():
        shutil.rmtree(compiled.artifact.folder)  # so that the next run compiles it again
    return compiled.compile_s


def _torch(run: _Run, candidate: Candidate) -> TorchTimes:
    times = run.torch_pool.run(
        time_torch, _request(run, candidate), run.bench.protocol, run.profiler.device(), run.bench.has_torch_compile,
        timeout_s=_TORCH_TIMEOUT_S,
    )  # fmt: skip
    if isinstance(times, WorkerFailure):
        return TorchTimes(latency_ms={}, missing_because={EAGER: times.reason, COMPILED: times.reason})
    for reason in times.missing_because.values():
        run.note(reason)
    assert isinstance(times, TorchTimes)
    return times
