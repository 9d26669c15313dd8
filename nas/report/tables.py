"""The tables of a results folder: `trials.csv`, one row a trial, and `front.csv`, one row a published network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from nas.gates.budget import budget_verdict, spent
from nas.report.atomic import write_atomic
from nas.report.summary import FrontMember, StudySummary
from nas.trial import Outcome, TrialRecord
from profilers.measurement import LatencyEstimate
from search_spaces.candidate import Candidate

if TYPE_CHECKING:
    import pandas as pd

Row = TypeVar("Row")
Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column: its name, which ends in its unit, the unit and meaning in words, and its value in a row."""

    name: str
    unit: str
    meaning: str
    value: Callable[[StudySummary, Row], Cell]


def blocks_text(candidate: Candidate) -> str:
    """The kinds of a candidate's blocks, runs shortened.

    >>> from search_spaces.candidate import BlockSpec
    >>> kinds = ["conv", "conv", "attention"]
    >>> blocks_text(Candidate(space="s", space_version=1, input=BlockSpec.of("image"),
    ...     blocks=tuple(BlockSpec.of(kind) for kind in kinds), head=BlockSpec.of("classifier")))
    '2 conv, 1 attention'
    """
    runs: list[tuple[str, int]] = []
    for block in candidate.blocks:
        if runs and runs[-1][0] == block.kind:
            runs[-1] = (block.kind, runs[-1][1] + 1)
        else:
            runs.append((block.kind, 1))
    return ", ".join(f"{count} {kind}" for kind, count in runs)


def _latency(bound: str, source: str, phase: str | None = None) -> Callable[[StudySummary, TrialRecord], Cell]:
    """A bound of the latency in a phase, None meaning the primary one, if it is of that source."""

    def value(summary: StudySummary, record: TrialRecord) -> Cell:
        estimate = record.cost.latency(phase or summary.phase) if record.cost else None
        return _bound(estimate, bound) if estimate is not None and estimate.source == source else None

    return value


def _bound(estimate: LatencyEstimate | None, bound: str) -> Cell:
    return None if estimate is None else float(getattr(estimate, bound))


def _cost(name: str) -> Callable[[StudySummary, TrialRecord], Cell]:
    def value(_summary: StudySummary, record: TrialRecord) -> Cell:
        return None if record.cost is None else getattr(record.cost, name)

    return value


def _score(name: str) -> Callable[[StudySummary, TrialRecord], Cell]:
    def value(_summary: StudySummary, record: TrialRecord) -> Cell:
        return None if record.score is None else getattr(record.score, name)

    return value


def _test(name: str) -> Callable[[StudySummary, FrontMember], Cell]:
    def value(_summary: StudySummary, member: FrontMember) -> Cell:
        return None if member.test_score is None else getattr(member.test_score, name)

    return value


def _seeds(name: str) -> Callable[[StudySummary, FrontMember], Cell]:
    def value(_summary: StudySummary, member: FrontMember) -> Cell:
        return None if member.seed_score is None else getattr(member.seed_score, name)

    return value


def _outcome(kind: str) -> Callable[[StudySummary, TrialRecord], Cell]:
    return lambda _summary, record: record.outcome.value if record.outcome.kind == kind else None


def _reason(is_infrastructure: bool) -> Callable[[StudySummary, TrialRecord], Cell]:
    return lambda _summary, record: record.error if record.outcome.is_infrastructure == is_infrastructure else None


def _predicted(metric: str, field: str) -> Callable[[StudySummary, TrialRecord], Cell]:
    def value(_summary: StudySummary, record: TrialRecord) -> Cell:
        guess = None if record.cost is None else record.cost.predicted(metric)
        return None if guess is None else round(getattr(guess, field))

    return value


def _seconds(stage: str) -> Callable[[StudySummary, TrialRecord], Cell]:
    return lambda _summary, record: dict(record.seconds).get(stage)


def _verdict(summary: StudySummary, record: TrialRecord) -> Cell:
    if record.cost is None or not record.cost.is_measured:
        return None
    budgets = summary.budgets
    if record.outcome is Outcome.OVER_BUDGET:
        # Phases after the one that was missed were left out: the verdict is over what was measured.
        budgets = tuple(budget for budget in budgets if spent(budget, record.cost) is not None)
    return budget_verdict(budgets, record.cost)


def _is_on_front(summary: StudySummary, record: TrialRecord) -> Cell:
    # By network, not by trial: a later trial of the same network is the same result.
    return record.candidate.candidate_id in {member.candidate_id for member in summary.front}


_INTERVAL = "95% interval"

TRIAL_COLUMNS: tuple[Column[TrialRecord], ...] = (
    Column("trial", "number", "Number of the trial in the study, from 0.", lambda _, r: r.trial),
    Column("candidate_id", "text", "Hash of the network's description.", lambda _, r: r.candidate.candidate_id),
    Column("blocks", "text", "Kinds of its blocks, first to last.", lambda _, r: blocks_text(r.candidate)),
    Column(
        "quality_outcome", "text",
        "`scored`, `over_budget`, `stopped_early` or `diverged`: says something about the network.",
        _outcome("quality"),
    ),
    Column(
        "screening_outcome", "text", "`predicted_over_budget`: a cost model kept it from being measured.",
        _outcome("screening"),
    ),
    Column(
        "infrastructure_outcome", "text",
        "`compile_failed`, `parity_failed`, `profile_failed` or `train_failed`: says nothing about the network.",
        _outcome("infrastructure"),
    ),
    Column("quality_reason", "text", "Why a quality or screening outcome is not `scored`.", _reason(False)),
    Column("infrastructure_reason", "text", "What failed.", _reason(True)),
    Column("duplicate_of_trial", "number", "Earlier trial of the same network whose result this is.",
           lambda _, r: r.duplicate_of),
    Column("is_on_front", "true or false", "Whether this trial's network was published.", _is_on_front),
    Column("budget_verdict", "text", "`meets`, `misses` or `undecided`, by the measured interval.", _verdict),
    Column("phase", "text", "Primary phase, which the columns `latency_*` are of.", lambda s, _: s.phase),
    Column("latency_measured_ms", "ms", "Median of block medians, one inference.", _latency("latency_ms", "measured")),
    Column("latency_measured_lower_ms", "ms", f"Lower end of its {_INTERVAL}.", _latency("lower_ms", "measured")),
    Column("latency_measured_upper_ms", "ms", f"Upper end of its {_INTERVAL}.", _latency("upper_ms", "measured")),
    Column("latency_predicted_ms", "ms", "Cost model's estimate; never measured.", _latency("latency_ms", "predicted")),
    Column("latency_predicted_lower_ms", "ms", "Lower end of its interval.", _latency("lower_ms", "predicted")),
    Column("latency_predicted_upper_ms", "ms", "Upper end of its interval.", _latency("upper_ms", "predicted")),
    Column("runtime", "text", "Runtime of these latencies.", _cost("runtime")),
    Column("tuned_coverage_fraction", "fraction of MACs", "MACs in kernels that have a tuning record.",
           _cost("tuned_coverage")),
    Column("parity_max_abs", "network output", "Largest absolute difference to the PyTorch outputs on fixed inputs.",
           _cost("parity_max_abs")),
    Column("num_params", "count", "Parameters.", _cost("num_params")),
    Column("num_macs", "count", "Multiply-accumulates of one inference.", _cost("num_macs")),
    Column("model_bytes", "bytes", "Code and weights on disk.", _cost("model_bytes")),
    Column("peak_memory_bytes", "bytes", "Largest resident size of the process that measured.",
           _cost("peak_memory_bytes")),
    *(
        Column(f"{metric}_predicted{suffix}", "bytes", meaning, _predicted(metric, field))
        for metric in ("model_bytes", "peak_memory_bytes")
        for suffix, field, meaning in (
            ("", "value", "Cost model's estimate, where a budget names it; never measured."),
            ("_lower", "lower", "Lower end of its interval."), ("_upper", "upper", "Upper end of its interval."),
        )
    ),
    Column("state_bytes", "bytes", "What the network keeps from one call to the next, caches for instance.",
           _cost("state_bytes")),
    Column("score_metric", "text",
           "What the score columns hold; `accuracy` is a fraction, of `bits_per_byte` less is better.",
           _score("metric")),
    Column("val_score", "that of score_metric", "On the val split, which steers the search.", _score("value")),
    Column("val_score_lower", "that of score_metric", f"Lower end of its {_INTERVAL}.", _score("lower")),
    Column("val_score_upper", "that of score_metric", f"Upper end of its {_INTERVAL}.", _score("upper")),
    Column("num_val_examples", "count", "Examples behind the score.", _score("num_examples")),
    Column("num_trained_epochs", "count", "Epochs that a study with a ladder trained it for.",
           lambda _, r: r.rungs[-1].epochs if r.rungs else None),
    Column("rungs", "text",
           "Each rung it reached: epochs, score on val there, promoted, stopped or top. Compare within one rung alone.",
           lambda _, r: "; ".join(map(str, r.rungs)) or None),
    Column("rung_times_s", "s", "Wall clock of training from rung to rung, in that order.",
           lambda _, r: "; ".join(f"{rung.seconds:.2f}" for rung in r.rungs) or None),
    Column("tune_s", "s", "Wall clock of tuning new kernels.", _seconds("tune")),
    Column("compile_s", "s", "Wall clock of compiling.", _seconds("compile")),
    Column("profile_s", "s", "Wall clock of measuring.", _seconds("profile")),
    Column("train_s", "s", "Wall clock of training and scoring.", _seconds("train")),
)  # fmt: skip
"""The columns of `trials.csv`, in order."""


def _of_record(column: Column[TrialRecord]) -> Column[FrontMember]:
    def value(summary: StudySummary, member: FrontMember) -> Cell:
        return column.value(summary, member.record)

    return Column(column.name, column.unit, column.meaning, value)


_BY_NAME = {column.name: _of_record(column) for column in TRIAL_COLUMNS}

FRONT_COLUMNS: tuple[Column[FrontMember], ...] = (
    *(_BY_NAME[name] for name in ("candidate_id", "trial", "blocks", "phase", "runtime")),
    Column("latency_ms", "ms", "Measured again in a fresh process, before publication.",
           lambda _, m: m.latency.latency_ms),
    Column("latency_lower_ms", "ms", f"Lower end of its {_INTERVAL}.", lambda _, m: m.latency.lower_ms),
    Column("latency_upper_ms", "ms", f"Upper end of its {_INTERVAL}; within the budget.",
           lambda _, m: m.latency.upper_ms),
    Column("search_latency_ms", "ms", "As measured during the search, for comparison.",
           lambda s, m: _bound(m.search_latency(s.phase), "latency_ms")),
    Column("onnxruntime_latency_ms", "ms", "The same network with ONNX Runtime, for comparison.",
           lambda _, m: _bound(m.onnxruntime, "latency_ms")),
    Column("onnxruntime_latency_lower_ms", "ms", f"Lower end of its {_INTERVAL}.",
           lambda _, m: _bound(m.onnxruntime, "lower_ms")),
    Column("onnxruntime_latency_upper_ms", "ms", f"Upper end of its {_INTERVAL}.",
           lambda _, m: _bound(m.onnxruntime, "upper_ms")),
    *(
        _BY_NAME[name]
        for name in (
            "tuned_coverage_fraction", "parity_max_abs", "num_params", "num_macs", "model_bytes", "peak_memory_bytes",
            "state_bytes", "score_metric", "val_score", "val_score_lower", "val_score_upper", "num_val_examples",
        )
    ),
    Column("test_score", "that of score_metric", "On the test split, opened once, for front members only.",
           _test("value")),
    Column("test_score_lower", "that of score_metric", f"Lower end of its {_INTERVAL}.", _test("lower")),
    Column("test_score_upper", "that of score_metric", f"Upper end of its {_INTERVAL}.", _test("upper")),
    Column("num_test_examples", "count", "Examples behind the test score.", _test("num_examples")),
    Column("num_seeds", "count", "Trainings behind the score over seeds.",
           lambda _, m: None if m.seed_score is None else len(m.seed_score.seeds)),
    Column("seed_score", "that of score_metric", "Mean on val over several training seeds.", _seeds("value")),
    Column("seed_score_lower", "that of score_metric", f"Lower end of its {_INTERVAL}, over seeds and examples.",
           _seeds("lower")),
    Column("seed_score_upper", "that of score_metric", f"Upper end of its {_INTERVAL}, over seeds and examples.",
           _seeds("upper")),
    Column("tied_with", "text", "Faster network that this one is not better than beyond the intervals.",
           lambda _, m: m.tied_with),
    Column("notes", "text", "What to know about this network.", lambda _, m: "; ".join(m.notes) or None),
)  # fmt: skip
"""The columns of `front.csv`, in order."""


def trial_columns(summary: StudySummary) -> tuple[Column[TrialRecord], ...]:
    """`TRIAL_COLUMNS`, and for each further timed phase its latencies, the phase in the columns' names."""
    return (*TRIAL_COLUMNS, *(column for phase in summary.timed_phases[1:] for column in _trial_columns_of(phase)))


def _trial_columns_of(phase: str) -> tuple[Column[TrialRecord], ...]:
    return tuple(
        Column(f"{phase}_latency_{source}{bound}_ms", "ms", f"As `latency_{source}{bound}_ms`, of {phase}.",
               _latency(f"{bound.removeprefix('_') or 'latency'}_ms", source, phase))
        for source in ("measured", "predicted")
        for bound in ("", "_lower", "_upper")
    )  # fmt: skip


def front_columns(summary: StudySummary) -> tuple[Column[FrontMember], ...]:
    """`FRONT_COLUMNS`, and for each further phase its latencies.

    A phase that the study does not time has `plain_look` in the names of its columns: nothing was held against it.
    """
    timed = summary.timed_phases[1:]
    plain = dict.fromkeys(each.phase for member in summary.front for each in member.other_phases if each.is_plain_look)
    runtimes = [(phase, "latency", "latency") for phase in timed]
    runtimes += [(phase, "onnxruntime", "onnxruntime_latency") for phase in timed]
    runtimes += [(phase, "latency", "plain_look_latency") for phase in plain]
    further = [
        Column(f"{phase}_{name}{bound}_ms", "ms", f"As `{name.removeprefix('plain_look_')}{bound}_ms`, of {phase}.",
               _phase_bound(phase, attribute, f"{bound.removeprefix('_') or 'latency'}_ms"))
        for phase, attribute, name in runtimes
        for bound in ("", "_lower", "_upper")
    ]  # fmt: skip
    return (*FRONT_COLUMNS, *further)


def _phase_bound(phase: str, attribute: str, bound: str) -> Callable[[StudySummary, FrontMember], Cell]:
    def value(_summary: StudySummary, member: FrontMember) -> Cell:
        seen = member.phase(phase)
        return None if seen is None else _bound(getattr(seen, attribute), bound)

    return value


def trials_table(summary: StudySummary) -> pd.DataFrame:
    """One row a finished trial, columns as in `trial_columns`; what is missing is empty."""
    return _table(trial_columns(summary), summary, summary.records)


def front_table(summary: StudySummary) -> pd.DataFrame:
    """One row a published network, columns as in `front_columns`, in the order of the front."""
    return _table(front_columns(summary), summary, summary.front)


def _table(columns: Sequence[Column[Row]], summary: StudySummary, rows: Sequence[Row]) -> pd.DataFrame:
    import pandas as pd

    # Object columns: a column of whole numbers with a gap must not become floats.
    cells = {column.name: [column.value(summary, row) for row in rows] for column in columns}
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in cells.items()})


def write_tables(summary: StudySummary, folder: Path) -> tuple[Path, Path]:
    """Writes `trials.csv` and `front.csv`, each as a whole or not at all, and returns their paths.

    Raises:
        ReportError: the folder cannot be written.
    """
    paths = (folder / "trials.csv", folder / "front.csv")
    for path, table in zip(paths, (trials_table(summary), front_table(summary)), strict=True):
        write_atomic(path, table.to_csv(index=False, lineterminator="\n").encode())
    return paths


def columns_markdown(columns: Sequence[Column[Row]]) -> str:
    """The columns as a table for `results/README.md`."""
    rows = [f"| `{column.name}` | {column.unit} | {column.meaning} |" for column in columns]
    return "\n".join(["| column | unit | meaning |", "|---|---|---|", *rows])
