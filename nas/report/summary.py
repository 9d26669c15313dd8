"""Everything a report says about a study, as one value, and the JSON of `nas search --json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nas.budget import Budget
from nas.config import StudyConfig
from nas.front import Direction
from nas.gates.result import GateResult
from nas.training.baselines import Baseline
from nas.training.score import HeldOutScore
from nas.trial import CandidateCost, Outcome, TrialRecord
from profilers.device import DeviceSpec
from profilers.measurement import LatencyEstimate

STAGES = ("tune", "compile", "profile", "train")
"""The stages whose seconds are reported, in the order in which a trial goes through them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLatency:
    """A published network's latency in a phase besides the primary one.

    Attributes:
        phase: its name.
        latency, onnxruntime, tuned_coverage: as in `FrontMember`.
        is_plain_look: one look at a phase that the study does not time, for comparison alone: no budget and no
            gate was held against it.
    """

    phase: str
    latency: LatencyEstimate
    onnxruntime: LatencyEstimate | None = None
    tuned_coverage: float | None = None
    is_plain_look: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMember:
    """One published network.

    Attributes:
        record: its trial, which is scored, as the search recorded it.
        measured_again: its costs with trained weights; None takes those of the search.
        latency: of the study's primary phase, measured again in a fresh process.
        onnxruntime: the same network and phase with ONNX Runtime; None when it was not measured.
        tuned_coverage: of that phase's artifact; None takes the cost's, which is the lowest over the timed phases.
        other_phases: the other timed phases, then those that got a plain look.
        test_score: on the split that is opened once; None before that.
        seed_score: val score over several trainings; None when there was one.
        tied_with: id of the fastest member that this one is not better than beyond the intervals.
        notes: what a reader should know about this member.
    """

    record: TrialRecord
    latency: LatencyEstimate
    measured_again: CandidateCost | None = None
    onnxruntime: LatencyEstimate | None = None
    tuned_coverage: float | None = None
    other_phases: tuple[PhaseLatency, ...] = ()
    test_score: HeldOutScore | None = None
    seed_score: HeldOutScore | None = None
    tied_with: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.record.outcome is not Outcome.SCORED:
            raise ValueError(f"trial {self.record.trial} is {self.record.outcome}; only scored trials join the front")
        others = [(each.phase, each.latency) for each in self.other_phases]
        for name, estimate in (("latency", self.latency), ("onnxruntime", self.onnxruntime), *others):
            if estimate is not None and estimate.source != "measured":
                raise ValueError(f"trial {self.record.trial}: {name} is {estimate.source}; a front holds measured ones")
        if self.test_score is not None and self.test_score.split != "test":
            raise ValueError(f"trial {self.record.trial}: test score of split {self.test_score.split!r}")

    @property
    def candidate_id(self) -> str:
        """The network's id, which is also the name of its folder in `winners/`."""
        return self.record.candidate.candidate_id

    @property
    def cost(self) -> CandidateCost:
        """What it costs besides the latency."""
        if self.measured_again is not None:
            return self.measured_again
        assert self.record.cost is not None, "TrialRecord sees to it that a scored trial has a cost"
        return self.record.cost

    def phase(self, name: str) -> PhaseLatency | None:
        """A phase besides the primary one; None when it was not measured."""
        return next((each for each in self.other_phases if each.phase == name), None)

    def latencies(self, primary: str) -> tuple[PhaseLatency, ...]:
        """Every measured phase, the primary one, of that name, first."""
        coverage = self.cost.tuned_coverage if self.tuned_coverage is None else self.tuned_coverage
        first = PhaseLatency(phase=primary, latency=self.latency, onnxruntime=self.onnxruntime, tuned_coverage=coverage)
        return (first, *self.other_phases)

    def search_latency(self, phase: str) -> LatencyEstimate | None:
        """What the search saw, with random weights, before the network was measured again."""
        seen = None if self.record.cost is None else self.record.cost.latency(phase)
        return seen if seen is not None and seen.source == "measured" else None

    @property
    def val_score(self) -> HeldOutScore:
        """The score that the search saw."""
        assert self.record.score is not None, "TrialRecord sees to it that a scored trial has a score"
        return self.record.score


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedWinner:
    """A network that would be on the front, but did not keep what it promised when measured again."""

    candidate_id: str
    trial: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooNetwork:
    """A named network of the space, to compare with.

    Attributes:
        name: in the space.
        candidate_id: its id.
        cost: measured in the timed phases; None when that failed.
        failure: why; None when it did not.
        val_score: where it was trained as one of the trials; None otherwise.
    """

    name: str
    candidate_id: str
    cost: CandidateCost | None
    failure: str | None = None
    val_score: HeldOutScore | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RungCounts:
    """One length of training in a study with a ladder.

    Attributes:
        epochs: of it.
        reached: trials that were trained so far.
        stopped: those of them that went no further.
        seconds: of training, from the rung before.
    """

    epochs: int
    reached: int
    stopped: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySummary:
    """A study as it is reported.

    Attributes:
        study: name.
        out: results folder.
        config: as it ran.
        device: what was measured on.
        phase: the primary phase, whose latency is the objective.
        budgets: resolved: latencies name their phase.
        budget_note: where the budgets come from when not from the user; None otherwise.
        score_metric, score_direction: the quality objective.
        records: every finished trial, by number.
        references: (name, trial) of the space's reference networks that were tried.
        zoo: the space's named networks as far as they were measured.
        front: published networks, fastest first.
        dropped: networks that missed on the second look.
        infeasible: the least-violating trials, best first, when nothing met the budgets.
        baselines: what scores without looking at what matters, on each split that was scored.
        gates: name -> what it said, in the order in which they ran.
        seconds_total: wall clock over all runs of the study.
        seconds_outside_trials: (stage, wall seconds) of work that no trial holds: the reference
            network that a default budget comes from.
        kernel_reuse: share of the heavy kernels that came from the tuning database; None when unknown.
        versions: (name, version) of what decides the numbers.
        seeds: (what, seed).
        command: what to run to go on with the study or repeat it.
        importances: (choice, share of the quality's variance, share of the latency's); empty unless asked for.
        started_at, ended_at: with time zone.
    """

    study: str
    out: Path
    config: StudyConfig
    device: DeviceSpec
    phase: str
    budgets: tuple[Budget, ...]
    budget_note: str | None = None
    score_metric: str
    score_direction: Direction
    records: tuple[TrialRecord, ...]
    references: tuple[tuple[str, int], ...] = ()
    zoo: tuple[ZooNetwork, ...] = ()
    front: tuple[FrontMember, ...]
    dropped: tuple[DroppedWinner, ...] = ()
    infeasible: tuple[TrialRecord, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    gates: Mapping[str, GateResult]
    seconds_total: float
    seconds_outside_trials: tuple[tuple[str, float], ...] = ()
    kernel_reuse: float | None = None
    importances: tuple[tuple[str, float, float], ...] = ()
    versions: tuple[tuple[str, str], ...]
    seeds: tuple[tuple[str, int], ...]
    command: str
    started_at: datetime
    ended_at: datetime

    @property
    def timed_phases(self) -> tuple[str, ...]:
        """What every candidate was timed in: the primary phase, then those that budgets name."""
        named = [budget.phase for budget in self.budgets if budget.metric == "latency_ms" and budget.phase is not None]
        return tuple(dict.fromkeys([self.phase, *named]))

    @property
    def blocked_because(self) -> str | None:
        """Why the front must not be published; None when it may: it is not empty and every gate passed."""
        failed = [f"{name}: {gate.reason}" for name, gate in self.gates.items() if not gate.passed]
        if failed:
            return "; ".join(failed)
        return None if self.front else "no network met the budget"

    @property
    def baselines_text(self) -> str | None:
        """One line for people; None where there is no baseline."""
        if not self.baselines:
            return None
        values = ", ".join(f"{each.value:.3f} on {each.split}" for each in self.baselines)
        return f"baseline ({self.baselines[0].name}): {values}"

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many trials ended how; every outcome is present."""
        counts = dict.fromkeys(Outcome, 0)
        for record in self.records:
            counts[record.outcome] += 1
        return counts

    @property
    def rungs(self) -> tuple[RungCounts, ...]:
        """What became of the trials at each rung, the shortest training first; empty without a ladder."""
        mine = [rung for record in self.records if record.duplicate_of is None for rung in record.rungs]
        return tuple(
            RungCounts(
                epochs=epochs,
                reached=sum(rung.epochs == epochs for rung in mine),
                stopped=sum(rung.epochs == epochs and rung.verdict == "stopped" for rung in mine),
                seconds=sum(rung.seconds for rung in mine if rung.epochs == epochs),
            )
            for epochs in sorted({rung.epochs for rung in mine})
        )

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Wall seconds over all trials for each of `STAGES`, and of any other stage that was recorded."""
        sums = dict.fromkeys(STAGES, 0.0)
        for seconds_of in (self.seconds_outside_trials, *(record.seconds for record in self.records)):
            for stage, seconds in seconds_of:
                sums[stage] = sums.get(stage, 0.0) + seconds
        return sums


def to_json(summary: StudySummary) -> dict[str, Any]:
    """The object that `nas search --json` ends with; its shape is documented in the README."""
    device = summary.device
    return {
        "study": summary.study,
        "out": str(summary.out),
        "space": summary.config.search.space,
        "device": {
            "id": device.id,
            "fingerprint": device.fingerprint,
            "runtime": summary.config.compile.runtime,
            "threads": device.num_threads,
        },
        "budgets": [{"metric": b.metric, "phase": b.phase, "max": b.maximum} for b in summary.budgets],
        "outcomes": {outcome.value: count for outcome, count in summary.counts.items()},
        "front": [_member_json(summary, member) for member in summary.front],
        "baselines": [asdict(baseline) for baseline in summary.baselines],
        "gates": {
            name: {"passed": gate.passed, "reason": gate.reason, **dict(gate.figures)}
            for name, gate in summary.gates.items()
        },
        "rungs": [asdict(rung) for rung in summary.rungs],
        "seconds": {
            **{stage: summary.stage_seconds[stage] for stage in STAGES},
            "gates": summary.stage_seconds.get("gates", 0.0),
            "total": summary.seconds_total,
        },
    }


def _member_json(summary: StudySummary, member: FrontMember) -> dict[str, Any]:
    cost = member.cost
    latencies = member.latencies(summary.phase)
    return {
        "candidate_id": member.candidate_id,
        "trial": member.record.trial,
        "metrics": {
            "latency_ms": _latency_json(latencies[0], cost.runtime),
            "latencies": [
                {**_latency_json(each, cost.runtime), "is_plain_look": each.is_plain_look} for each in latencies
            ],
            "params": cost.num_params,
            "macs": cost.num_macs,
            "peak_memory_bytes": cost.peak_memory_bytes,
            "state_bytes": cost.state_bytes,
        },
        "score": _score_json(member.val_score),
        "test_score": None if member.test_score is None else _score_json(member.test_score),
        "seed_score": None
        if member.seed_score is None
        else {**_score_json(member.seed_score), "seeds": list(member.seed_score.seeds)},
        "tied_with": member.tied_with,
    }


def _latency_json(seen: PhaseLatency, runtime: str) -> dict[str, Any]:
    return {
        "phase": seen.phase,
        "value": seen.latency.latency_ms,
        "lower": seen.latency.lower_ms,
        "upper": seen.latency.upper_ms,
        "source": seen.latency.source,
        "runtime": runtime,
        "tuned_coverage": seen.tuned_coverage,
    }


def _score_json(score: HeldOutScore) -> dict[str, Any]:
    return {
        "metric": score.metric,
        "split": score.split,
        "value": score.value,
        "lower": score.lower,
        "upper": score.upper,
    }
