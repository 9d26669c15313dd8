"""Stand-ins for the tools of a search, so that everything around them is tested without compiler or device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nas.budget import Budget, latency_budget
from nas.compile.tvm import Compiled, CompileFailure
from nas.gates.result import GateResult
from nas.ledger import Ledger
from nas.search.ladder import Ladder, RungPoint, rung_points
from nas.search.pipeline import Proposal
from nas.search.screening import UNKNOWN, Screened, Screener
from nas.search.trained_weights import TrainedWeights
from nas.search.workbench import remembered
from nas.training.checkpoint import remove_checkpoints
from nas.training.recipe import Recipe
from nas.training.result import EpochRecord, Rehearsal, ScoringProbe, Shuffled, TrainFailure, TrainResult
from nas.training.score import HeldOutScore, wilson_interval
from profilers.artifact import Artifact, hash_file
from profilers.device import DeviceSpec
from profilers.errors import ProfileFailure
from profilers.measurement import SEARCH, Block, BudgetVerdict, Measurement, verdict
from profilers.noise import Noise
from profilers.statistics import summarise
from profilers.testing import FAKE_DEVICE
from search_spaces.candidate import Candidate, TensorSpec
from search_spaces.conv_attention import ConvAttentionSpace, StageOptions
from search_spaces.layer import Signature
from search_spaces.layers import layers_of, num_macs

NUM_EXAMPLES = 360
"""Examples behind every made-up score; those of digits' val split."""

EVEN_NOISE = Noise(least_spread=0.0, spread_ratio=0.3, drift_ratio=0.0)
"""Of a device whose blocks lie evenly: intervals are then about half as wide as the blocks are apart."""

TUNE_S, COMPILE_S, PROFILE_S, TRAIN_S = 8.0, 4.0, 2.0, 1.0
"""What each stage claims to have taken: powers of two, so that any sum tells which of them are in it."""


class SmallSpace(ConvAttentionSpace):
    """One stage of one or two layers, 42 candidates: duplicates come up within a few trials."""

    name = "small"
    stages = (StageOptions(widths=(32,), depths=(1, 2)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A measurement that its own checks do not trust."""

    reason: str


Look = float | ProfileFailure | Rejected
"""What one measurement sees: a latency in ms, a failure, or a number that must not be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What becomes of one candidate at each stage.

    Attributes:
        compile_failure: reason why it does not compile; None when it does.
        look: what the search measures.
        looks: (phase, look) of phases that look otherwise.
        failing_phase: the one phase that `compile_failure` and `onnx_failure` are of; None means every phase.
        second_looks: what measuring it as a winner sees in any phase, one look after the other, the last one
            again and again; empty means the same as the search.
        second_looks_of: (phase, looks) of phases whose second looks are otherwise.
        spread: relative half-width of the blocks about the latency.
        tuned_coverage, model_bytes, peak_memory_bytes: of its artifacts.
        energy_mj: of one inference; None on a device that cannot tell.
        tuned_coverages: (phase, coverage) of phases that are tuned otherwise.
        num_right: right answers on val, of `NUM_EXAMPLES`; one less on test.
        num_right_long: after long training; None for five more.
        train_failure: why there is no score; None when there is one.
        onnx_failure: reason why it does not export; None when it does.
    """

    compile_failure: str | None = None
    look: Look = 1.0
    looks: tuple[tuple[str, Look], ...] = ()
    failing_phase: str | None = None
    second_looks: tuple[Look, ...] = ()
    second_looks_of: tuple[tuple[str, tuple[Look, ...]], ...] = ()
    spread: float = 0.01
    tuned_coverage: float = 1.0
    tuned_coverages: tuple[tuple[str, float], ...] = ()
    model_bytes: int = 1 << 20
    peak_memory_bytes: int = 1 << 25
    energy_mj: float | None = None
    num_right: int = 300
    num_right_long: int | None = None
    train_failure: TrainFailure | None = None
    onnx_failure: str | None = None

    def look_of(self, phase: str) -> Look:
        """What the search measures in a phase."""
        return dict(self.looks).get(phase, self.look)

    def second_looks_at(self, phase: str) -> tuple[Look, ...]:
        """What measuring it as a winner sees in a phase, at least one."""
        return dict(self.second_looks_of).get(phase, self.second_looks) or (self.look_of(phase),)

    def fails_in(self, phase: str) -> bool:
        """Whether the scripted failures are of this phase."""
        return self.failing_phase in (None, phase)


def plausible(candidate: Candidate) -> Script:
    """Slower with more work, better with more work and some luck that the candidate's id decides."""
    macs = num_macs(candidate)
    luck = int(candidate.candidate_id[:2], 16) // 16
    return Script(look=macs / 1e6, num_right=min(NUM_EXAMPLES, 250 + int(macs / 1e5) + luck))


@dataclass(slots=True)
class FakeWorkbench:
    """A `Workbench`, and a bench for winners as well, whose every answer is scripted.

    Attributes:
        folder: where artifacts and weights are written; they are small but real files.
        ledger: what `remember` asks; None remembers nothing.
        script: what becomes of a candidate.
        phases: to compile and time, the primary one first.
        recipe, ladder: as in `LocalWorkbench`.
        on_call: called with (stage, candidate id) before a stage does anything; raise there to
            simulate a crash or a kill at that stage.
        calls: (stage, candidate id) of everything it was asked to do.
        phase_calls: (stage, phase) of what was asked of one phase.
        kernel_times: seconds of kernels, by the layers they serve.
    """

    folder: Path
    ledger: Ledger | None = None
    script: Callable[[Candidate], Script] = plausible
    phases: tuple[str, ...] = ("infer",)
    budgets: tuple[Budget, ...] = ()
    recipe: Recipe = field(default_factory=Recipe)
    ladder: Ladder = field(default_factory=Ladder)
    device: DeviceSpec = FAKE_DEVICE
    on_call: Callable[[str, str], None] = lambda stage, candidate_id: None
    calls: list[tuple[str, str]] = field(default_factory=list)
    phase_calls: list[tuple[str, str]] = field(default_factory=list)
    num_kernels: int = 0
    num_known_kernels: int = 0
    is_closed: bool = False
    screener: Screener | None = None
    kernel_times: dict[Signature, float] = field(default_factory=dict)
    _scripts: dict[str, Script] = field(default_factory=dict)
    _num_looks: dict[tuple[str, str], int] = field(default_factory=dict)

    def num_calls(self, stage: str, candidate_id: str | None = None) -> int:
        """How often a stage was run, in all or for one candidate."""
        return sum(name == stage and candidate_id in (None, of) for name, of in self.calls)

    def screen(self, trial: int, candidate: Candidate) -> Screened:
        """As the real bench does; costs nothing and is no call."""
        return UNKNOWN if self.screener is None else self.screener.judge(trial, candidate, self.budgets)

    def compile(self, candidate: Candidate, phase: str, weights: Path | None = None) -> Compiled | CompileFailure:
        """An artifact with one file, or the scripted failure."""
        script = self._called("compile" if weights is None else "compile winner", candidate, phase)
        self.num_kernels, self.num_known_kernels = self.num_kernels + 4, self.num_known_kernels + 3
        if script.compile_failure is not None and script.fails_in(phase):
            return CompileFailure(reason=script.compile_failure, tune_s=TUNE_S, compile_s=COMPILE_S)
        name = "random" if weights is None else hash_file(weights)[:8]
        folder = self.folder / "artifacts" / f"{candidate.candidate_id}-{phase}-{name}"
        artifact = self._artifact(candidate, phase, "tvm", folder, script)
        return Compiled(artifact=artifact, num_kernels=4, num_known=3, tune_s=TUNE_S, compile_s=COMPILE_S)

    def measure(self, artifact: Artifact) -> tuple[Measurement | ProfileFailure, BudgetVerdict]:
        """What the script's `look` says of the artifact's phase."""
        script = self._scripts[artifact.candidate_id]
        self._note("measure", artifact.candidate_id, artifact.phase)
        seen = self._measured(script.look_of(artifact.phase), artifact, script)
        if isinstance(seen, ProfileFailure):
            return seen, "undecided"
        maximum = latency_budget(self.budgets, artifact.phase) or float("inf")
        return seen, verdict(seen.lower_ms, seen.upper_ms, maximum)

    def measure_finalist(self, artifacts: list[Artifact]) -> list[Measurement | ProfileFailure]:
        """The script's next second look at a phase; ONNX Runtime takes half as long again."""
        candidate_id, phase = artifacts[0].candidate_id, artifacts[0].phase
        script = self._scripts[candidate_id]
        self._note("measure winner", candidate_id, phase)
        looks = script.second_looks_at(phase)
        number = self._num_looks.get((candidate_id, phase), 0)
        self._num_looks[candidate_id, phase] = number + 1
        look = looks[min(number, len(looks) - 1)]
        other = look * 1.5 if isinstance(look, float) else look
        return [
            self._measured(each, artifact, script) for each, artifact in zip((look, other), artifacts, strict=False)
        ]

    def train(self, proposal: Proposal, until_epoch: int | None = None) -> TrainResult | TrainFailure:
        """The scripted score with a weights file, a part of it where training pauses, or the scripted failure."""
        script = self._called("train" if until_epoch is None else "pause", proposal.candidate)
        if script.train_failure is not None:
            return script.train_failure
        folder = self.weights_folder(proposal.trial)
        if until_epoch is None:
            trained = self._trained(proposal.candidate, folder, script.num_right)
            remove_checkpoints(folder)
            return trained
        share = until_epoch / self.ladder.epochs[-1]
        paused = self._trained(proposal.candidate, folder, int(script.num_right * (0.5 + 0.5 * share)))
        Path(str(paused.weights_path)).rename(folder / f"checkpoint-{until_epoch:09d}.pt")
        return replace(paused, duration_s=TRAIN_S * share, weights_path=None, weights_sha256=None)

    def rung_points(self, epochs: int, trial: int) -> tuple[RungPoint, ...]:
        """As in `LocalWorkbench`."""
        return () if self.ledger is None else rung_points(self.ledger, epochs, trial)

    def forget_training(self, trial: int) -> None:
        """As in `LocalWorkbench`."""
        self.on_call("forget", str(trial))
        remove_checkpoints(self.weights_folder(trial))

    def compare_path(self, name: str, candidate: Candidate) -> GateResult | TrainFailure:
        """They are equal."""
        self._note("compare path", candidate.candidate_id)
        return GateResult(passed=True, reason=f"{name}: made up")

    @staticmethod
    def _trained(candidate: Candidate, folder: Path, num_right: int) -> TrainResult:
        folder.mkdir(parents=True, exist_ok=True)
        weights = folder / "weights.pt"
        weights.write_text(f"weights of {candidate.candidate_id}")
        return TrainResult(
            candidate_id=candidate.candidate_id,
            seed=0,
            score=made_up_score(min(NUM_EXAMPLES, num_right), "val"),
            untrained_score=made_up_score(NUM_EXAMPLES // 10, "val"),
            history=(EpochRecord(step=10, train_loss=0.5, learning_rate=1e-3, val_value=0.9),),
            num_steps=10,
            resumed_from_step=0,
            duration_s=TRAIN_S,
            task_fingerprint="made up",
            weights_path=str(weights),
            weights_sha256=hash_file(weights),
        )

    def rehearse(self, candidate: Candidate) -> Rehearsal | TrainFailure:
        """Nothing is off; no call of a stage."""
        return made_up_rehearsal()

    def train_apart(self, candidate: Candidate, recipe: Recipe, seed: int, folder: str) -> TrainResult | TrainFailure:
        """As `train`, for an audit."""
        script = self._called("train apart", candidate)
        if script.train_failure is not None:
            return script.train_failure
        num_right = script.num_right + 5 if script.num_right_long is None else script.num_right_long
        trained = self._trained(candidate, self.folder / folder, num_right)
        return replace(trained, seed=seed, score=replace(trained.score, seeds=(seed,)), weights_path=None)

    def score_shuffled(self, candidate: Candidate, weights: TrainedWeights) -> Shuffled | TrainFailure:
        """At chance, both; no call of a stage."""
        chance = made_up_score(NUM_EXAMPLES // 10, "val")
        return Shuffled(labels=chance, inputs=chance)

    def score_test(self, candidate: Candidate, weights: Path, sha256: str) -> HeldOutScore | TrainFailure:
        """One right answer fewer than on val; weights that are not the trained ones are a failure."""
        script = self._called("test", candidate)
        if hash_file(weights) != sha256:
            return TrainFailure(kind="storage", reason=f"{weights}: another SHA-256")
        return made_up_score(script.num_right - 1, "test")

    def export_onnx(self, candidate: Candidate, phase: str, weights: Path, folder: Path) -> Artifact | CompileFailure:
        """An artifact for ONNX Runtime with one file, or the scripted failure."""
        script = self._called("export", candidate, phase)
        if script.onnx_failure is not None and script.fails_in(phase):
            return CompileFailure(reason=script.onnx_failure, tune_s=0.0, compile_s=COMPILE_S)
        return self._artifact(candidate, phase, "onnxruntime", folder, script)

    def kernel_seconds(self, candidates: Sequence[Candidate], phase: str) -> Mapping[Signature, float]:
        """What `kernel_times` knows of the candidates' layers."""
        needed = {layer.signature for candidate in candidates for layer in layers_of(candidate, phase)}
        return {signature: seconds for signature, seconds in self.kernel_times.items() if signature in needed}

    def remember(
        self, trial: int, stage: str, work: Callable[[], tuple[Mapping[str, Any] | None, float]]
    ) -> tuple[Mapping[str, Any] | None, float]:
        """The ledger's answer where there is one, as in `LocalWorkbench`."""
        return work() if self.ledger is None else remembered(self.ledger, trial, stage, work)

    def weights_folder(self, trial: int) -> Path:
        """Where the weights of a trial are."""
        return self.folder / "weights" / f"trial-{trial:05d}"

    def close(self) -> None:
        """Remembers that it was closed."""
        self.is_closed = True

    def _called(self, stage: str, candidate: Candidate, phase: str | None = None) -> Script:
        self._note(stage, candidate.candidate_id, phase)
        self._scripts[candidate.candidate_id] = self.script(candidate)
        return self._scripts[candidate.candidate_id]

    def _note(self, stage: str, candidate_id: str, phase: str | None = None) -> None:
        self.calls.append((stage, candidate_id))
        if phase is not None:
            self.phase_calls.append((stage, phase))
        self.on_call(stage, candidate_id)

    def _artifact(self, candidate: Candidate, phase: str, runtime: str, folder: Path, script: Script) -> Artifact:
        folder.mkdir(parents=True, exist_ok=True)
        name = "model.onnx" if runtime == "onnxruntime" else "library.so"
        (folder / name).write_text(f"{runtime} code of {candidate.candidate_id}, {phase}")
        coverage = dict(script.tuned_coverages).get(phase, script.tuned_coverage)
        artifact = Artifact(
            folder=folder,
            candidate_id=candidate.candidate_id,
            phase=phase,
            runtime=runtime,
            target="any" if runtime == "onnxruntime" else self.device.target,
            precision="float32",
            num_threads=1,
            inputs=(TensorSpec(name="image", shape=(1, 1, 8, 8)),),
            outputs=(TensorSpec(name="logits", shape=(1, 10)),),
            files=((name, hash_file(folder / name)),),
            tuned_coverage=None if runtime == "onnxruntime" else coverage,
            model_bytes=script.model_bytes,
        )
        artifact.save()
        return artifact

    def _measured(self, look: Look, artifact: Artifact, script: Script) -> Measurement | ProfileFailure:
        if isinstance(look, ProfileFailure):
            return look
        latency_ms, reason = (1.0, look.reason) if isinstance(look, Rejected) else (look, None)
        return made_up_measurement(
            latency_ms,
            fingerprint=self.device.fingerprint,
            spread=script.spread,
            artifact_digest=artifact.digest,
            peak_memory_bytes=script.peak_memory_bytes,
            energy_mj=script.energy_mj,
            rejected_because=reason,
        )


def made_up_measurement(
    latency_ms: float,
    *,
    fingerprint: str = FAKE_DEVICE.fingerprint,
    spread: float = 0.01,
    artifact_digest: str = "",
    peak_memory_bytes: int = 1 << 25,
    energy_mj: float | None = None,
    rejected_because: str | None = None,
) -> Measurement:
    """A measurement whose blocks lie evenly within `spread` of the latency: always the same."""
    shifts = [spread * (2 * block / 5 - 1) for block in range(6)]
    blocks = tuple(
        Block(process=process, latencies_ms=(latency_ms * (1 + shift),) * 3, cpu_over_wall=1.0)
        for process in range(2)
        for shift in shifts
    )
    return Measurement(
        artifact_digest=artifact_digest,
        fingerprint=fingerprint,
        protocol=SEARCH,
        blocks=blocks,
        **asdict(summarise(blocks, noise=EVEN_NOISE)),
        first_inference_ms=2 * latency_ms,
        peak_memory_bytes=peak_memory_bytes,
        energy_mj=energy_mj,
        parity_max_abs=1e-6,
        canary_drift=0.0,
        rejected_because=rejected_because,
        duration_s=PROFILE_S,
        noise=EVEN_NOISE,
    )


def made_up_score(num_right: int, split: str) -> HeldOutScore:
    """An accuracy over `NUM_EXAMPLES` with its interval.

    >>> made_up_score(180, "val").value
    0.5
    """
    lower, upper = wilson_interval(num_right, NUM_EXAMPLES)
    return HeldOutScore(
        metric="accuracy",
        split="test" if split == "test" else "val",
        value=num_right / NUM_EXAMPLES,
        lower=lower,
        upper=upper,
        num_examples=NUM_EXAMPLES,
        seeds=(0,),
    )


def made_up_rehearsal() -> Rehearsal:
    """A rehearsal in which nothing is off."""
    return Rehearsal(
        num_parameters=4,
        weights_not_finite=(),
        without_gradient=(),
        gradients_not_finite=(),
        unchanged=(),
        losses=(2.3, 2.0, 1.7, 1.5, 1.3, 1.1),
        grades=(0.1, 0.2, 0.4, 0.5, 0.6, 0.7),
        valid_share=1.0,
        scoring=ScoringProbe(
            split="val", value=0.3, if_right=1.0, if_wrong=0.0, num_examples=NUM_EXAMPLES, num_given=NUM_EXAMPLES
        ),
        scoring_error=None,
        direction="maximize",
        duration_s=0.5,
    )


def pick(candidate: Candidate, shares: int) -> int:
    """A number below `shares` that depends on the candidate alone: for scripts that treat candidates differently."""
    return hashlib.sha256(candidate.candidate_id.encode()).digest()[0] % shares
