"""The real tools of a study's stages: compiler, profiler and training processes of one device."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nas.budget import Budget, latency_budget
from nas.compile import workers
from nas.compile.compile_worker import BuiltFiles, CompileRequest
from nas.compile.known_kernels import layer_seconds
from nas.compile.onnx import export_onnx, onnx_artifact
from nas.compile.tvm import Compiled, CompileFailure, CompileLimits, TvmCompiler
from nas.compile.workers import WorkerFailure, WorkerPool
from nas.config import StudyConfig
from nas.gates.parity import RELATIVE_TOLERANCE
from nas.gates.result import GateResult
from nas.ledger import Ledger
from nas.search.ladder import Ladder, RungPoint, rung_points
from nas.search.pipeline import Proposal
from nas.search.progress import Watcher
from nas.search.quiet import QuietPatience
from nas.search.screening import UNKNOWN, Screened, Screener
from nas.search.trained_weights import TrainedWeights
from nas.training.checkpoint import remove_checkpoints
from nas.training.job import compare_path_job, controls_job, read_progress, rehearse_job, score_test_job, train_job
from nas.training.recipe import Recipe
from nas.training.result import Rehearsal, Shuffled, TrainFailure, TrainResult
from nas.training.score import HeldOutScore
from profilers.artifact import Artifact
from profilers.cache import CachingProfiler
from profilers.device import DeviceSpec
from profilers.errors import ProfileFailure
from profilers.local import LocalProfiler
from profilers.lock import state_folder
from profilers.looks import LOOKS, decide
from profilers.measurement import FINALIST, BudgetVerdict, Measurement
from search_spaces.candidate import Candidate
from search_spaces.layer import Signature
from search_spaces.layers import layers_of

POLL_S = 0.1
REHEARSAL_TIMEOUT_S = 120.0
"""A few steps on one batch that take longer than this are themselves a fault."""

NUM_COMPARED = 6
"""Trainings of the gate for a fast path: two ways, three seeds."""


class LocalWorkbench:
    """Compiles, measures and trains on this machine. Processes start when first needed."""

    def __init__(
        self, config: StudyConfig, folder: Path, ledger: Ledger, phases: tuple[str, ...], watcher: Watcher
    ) -> None:
        """`phases`: to compile and time, the primary one first."""
        self.phases = phases
        self.budgets: tuple[Budget, ...] = ()
        self.screener: Screener | None = None
        self.recipe = config.training
        self.ladder = Ladder()
        self._config = config
        self._weights = folder / "weights"
        self._ledger = ledger
        self._watcher = watcher
        self._patience = QuietPatience(watcher)
        cache = state_folder()
        self.profiler = LocalProfiler(
            num_threads=config.device.threads,
            parity_tolerance=RELATIVE_TOLERANCE,
            device_id=config.device.id,
            on_wait=watcher.note,
        )
        self.device: DeviceSpec = self.profiler.device()
        self._cached_profiler = CachingProfiler(self.profiler, cache / "measurements", self.profiler.change_since)
        limits = CompileLimits(
            tuning_trials=config.compile.tuning_trials,
            timeout_s=config.compile.timeout_s,
            num_workers=config.compile.workers,
        )
        self._compiler = TvmCompiler(self.device, limits, cache)
        self._trainers: WorkerPool[Any] = WorkerPool(1, initializer=workers.prepare_worker)
        self.num_kernels = 0
        self.num_known_kernels = 0

    def screen(self, trial: int, candidate: Candidate) -> Screened:
        """What the cost model says; nothing without a screener."""
        return UNKNOWN if self.screener is None else self.screener.judge(trial, candidate, self.budgets)

    def kernel_seconds(self, candidates: Sequence[Candidate], phase: str) -> Mapping[Signature, float]:
        """From the tuning database, by the plans of those candidates that were compiled before."""
        networks = []
        for candidate in candidates:
            # `nas calibrate` compiles with the default seed, and the random weights are part of a plan's identity.
            plans = (
                self._compiler.known_plan(candidate, phase, seed=seed)
                for seed in dict.fromkeys((self._config.search.seed, 0))
            )
            plan = next((plan for plan in plans if plan is not None), None)
            if plan is not None:
                networks.append((layers_of(candidate, phase), plan))
        records = self._compiler.database.get(task.key for _, tasks in networks for task in tasks)
        return layer_seconds(networks, {key: record.latency_s for key, record in records.items()})

    def compile(self, candidate: Candidate, phase: str, weights: Path | None = None) -> Compiled | CompileFailure:
        """Compiles one phase with random weights, or with those of a checkpoint."""
        compiled = self._compiler.compile(
            candidate, phase, weights=weights, seed=self._config.search.seed, on_progress=self._watcher.stage
        )
        if isinstance(compiled, Compiled):
            self.num_kernels += compiled.num_kernels
            self.num_known_kernels += compiled.num_known
        return compiled

    def measure(self, artifact: Artifact) -> tuple[Measurement | ProfileFailure, BudgetVerdict]:
        """Looks at most three times while the latency budget of the artifact's phase leaves it open.

        A run that the profiler rejected because the machine was disturbed is made again after a pause, see
        `QuietPatience`. The measurement's duration is all of it: pauses, and looks that were rejected.
        """
        started = time.monotonic()
        maximum_ms = latency_budget(self.budgets, artifact.phase)
        for attempt in itertools.count(1):
            self._watcher.stage("measure")
            measurement, answer = self._look(artifact, maximum_ms)
            if not self._patience.wait(artifact.candidate_id, [measurement], attempt):
                break
        if isinstance(measurement, Measurement):
            # One from the cache keeps what it took when it was made.
            measurement = replace(measurement, duration_s=max(measurement.duration_s, time.monotonic() - started))
        return measurement, answer

    def _look(self, artifact: Artifact, maximum_ms: float | None) -> tuple[Measurement | ProfileFailure, BudgetVerdict]:
        if maximum_ms is None:
            return self._cached_profiler.measure(artifact, LOOKS[0]), "meets"
        return decide(self._cached_profiler, artifact, maximum_ms)

    def measure_finalist(self, artifacts: list[Artifact]) -> list[Measurement | ProfileFailure]:
        """Measures a winner again in fresh processes, in turn with its other runtimes; never cached."""
        for attempt in itertools.count(1):
            self._watcher.stage("measure again")
            results = self.profiler.measure_interleaved(artifacts, FINALIST)
            if not self._patience.wait(artifacts[0].candidate_id, results, attempt):
                break
        return results

    def train(self, proposal: Proposal, until_epoch: int | None = None) -> TrainResult | TrainFailure:
        """Trains one candidate in a child; goes on from its last checkpoint where there is one."""
        folder = self.weights_folder(proposal.trial)
        return self._train(proposal.candidate, self.recipe, self._config.search.seed, folder, until_epoch)

    def rung_points(self, epochs: int, trial: int) -> tuple[RungPoint, ...]:
        """From the ledger."""
        return rung_points(self._ledger, epochs, trial)

    def forget_training(self, trial: int) -> None:
        """Removes the checkpoints of a trial that a rung stopped."""
        remove_checkpoints(self.weights_folder(trial))

    def train_apart(self, candidate: Candidate, recipe: Recipe, seed: int, folder: str) -> TrainResult | TrainFailure:
        """Trains a candidate in a folder of its own, beside those of the trials; its weights are not kept."""
        path = self._weights / folder
        try:
            return self._train(candidate, recipe, seed, path)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _train(
        self, candidate: Candidate, recipe: Recipe, seed: int, folder: Path, until_epoch: int | None = None
    ) -> TrainResult | TrainFailure:
        progress_path = folder / "progress.json"
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        self._watcher.stage("train")
        job = self._trainers.submit(
            train_job,
            candidate.canonical_json(),
            self._config.task,
            recipe,
            seed,
            str(folder),
            str(progress_path),
            None,
            until_epoch,
            timeout_s=recipe.timeout_s,
        )
        while not job.is_done():
            time.sleep(POLL_S)
            progress = read_progress(progress_path)
            if progress is not None:
                self._watcher.stage("train", progress.step, progress.num_steps)
        result = job.result()
        progress_path.unlink(missing_ok=True)
        if isinstance(result, WorkerFailure):
            return TrainFailure(kind="crashed", reason=result.reason, duration_s=time.monotonic() - started)
        assert isinstance(result, TrainResult | TrainFailure)
        return result

    def rehearse(self, candidate: Candidate) -> Rehearsal | TrainFailure:
        """A few training steps and one scoring in a child, for the smoke gate."""
        self._watcher.stage("rehearse")
        config = self._config
        result = self._trainers.run(
            rehearse_job,
            candidate.canonical_json(),
            config.task,
            self.recipe,
            config.search.seed,
            timeout_s=REHEARSAL_TIMEOUT_S,
        )
        if isinstance(result, WorkerFailure):
            return TrainFailure(kind="crashed", reason=result.reason)
        assert isinstance(result, Rehearsal | TrainFailure)
        return result

    def compare_path(self, name: str, candidate: Candidate) -> GateResult | TrainFailure:
        """Puts a fast path through its gate in a child."""
        self._watcher.stage(f"compare {name}")
        config = self._config
        result = self._trainers.run(
            compare_path_job,
            name,
            candidate.canonical_json(),
            config.task,
            config.training,
            config.search.seed,
            timeout_s=NUM_COMPARED * config.training.timeout_s,
        )
        if isinstance(result, WorkerFailure):
            return TrainFailure(kind="crashed", reason=result.reason)
        assert isinstance(result, GateResult | TrainFailure)
        return result

    def score_shuffled(self, candidate: Candidate, weights: TrainedWeights) -> Shuffled | TrainFailure:
        """The controls of one trained network, in a child."""
        config = self._config
        result = self._trainers.run(
            controls_job,
            candidate.canonical_json(),
            config.task,
            self.recipe,
            config.search.seed,
            str(weights.path),
            weights.sha256,
            timeout_s=self.recipe.timeout_s,
        )
        if isinstance(result, WorkerFailure):
            return TrainFailure(kind="crashed", reason=result.reason)
        assert isinstance(result, Shuffled | TrainFailure)
        return result

    def score_test(self, candidate: Candidate, weights: Path, sha256: str) -> HeldOutScore | TrainFailure:
        """Opens the test split for one finished network."""
        self._watcher.stage("test")
        result = self._trainers.run(
            score_test_job,
            candidate.canonical_json(),
            self._config.task,
            self._config.search.seed,
            str(weights),
            sha256,
            self.recipe.num_threads,
            timeout_s=self.recipe.timeout_s,
        )
        if isinstance(result, WorkerFailure):
            return TrainFailure(kind="crashed", reason=result.reason)
        assert isinstance(result, HeldOutScore | TrainFailure)
        return result

    def export_onnx(self, candidate: Candidate, phase: str, weights: Path, folder: Path) -> Artifact | CompileFailure:
        """A phase of the trained network as an ONNX artifact in `folder`, for ONNX Runtime."""
        self._watcher.stage("export")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        request = CompileRequest(
            candidate_json=candidate.canonical_json(),
            phase=phase,
            weights=str(weights),
            seed=self._config.search.seed,
            target="any",
        )
        started = time.monotonic()
        built = self._compiler.run(export_onnx, request, str(folder))
        if isinstance(built, WorkerFailure):
            return CompileFailure(reason=built.reason, tune_s=0.0, compile_s=time.monotonic() - started)
        assert isinstance(built, BuiltFiles)
        return onnx_artifact(candidate, phase, folder, built, self.device.num_threads)

    def remember(
        self, trial: int, stage: str, work: Callable[[], tuple[Mapping[str, Any] | None, float]]
    ) -> tuple[Mapping[str, Any] | None, float]:
        """The ledger's answer where there is one; a stage without payload is not kept."""
        return remembered(self._ledger, trial, stage, work)

    def weights_folder(self, trial: int) -> Path:
        """Where the weights of a trial are."""
        return self._weights / f"trial-{trial:05d}"

    def close(self) -> None:
        """Ends every process."""
        self._compiler.close()
        self._trainers.close()


def remembered(
    ledger: Ledger, trial: int, stage: str, work: Callable[[], tuple[Mapping[str, Any] | None, float]]
) -> tuple[Mapping[str, Any] | None, float]:
    """Payload and seconds of a finished stage of a trial; does the work when the ledger has none.

    A stage without payload failed: it is not kept, and done again when it is asked for again.
    """
    for known in ledger.stages(trial):
        if known.stage == stage:
            return known.payload, known.seconds
    payload, seconds = work()
    if payload is not None:
        ledger.record_stage(trial, stage, payload, seconds)
    return payload, seconds
