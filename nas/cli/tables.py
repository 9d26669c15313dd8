"""The table a search ends with."""

from __future__ import annotations

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from nas.cli.terminal import duration
from nas.report.summary import StudySummary
from nas.training.score import HeldOutScore
from profilers.measurement import LatencyEstimate


def print_summary(summary: StudySummary, ended_because: str) -> None:
    """Prints front or least-violating candidates, outcomes, gates and times to stdout."""
    console = Console()
    if summary.budget_note is not None:
        console.print(escape(summary.budget_note), highlight=False)
    budgets = ", ".join(str(budget) for budget in summary.budgets)
    if summary.front:
        console.print(_front_table(summary, budgets))
    else:
        console.print(_infeasible_table(summary, budgets))
    for dropped in summary.dropped:
        text = f"dropped {dropped.candidate_id} (trial {dropped.trial}): {dropped.reason}"
        console.print(escape(text), highlight=False)
    counts = ", ".join(f"{count} {outcome.value}" for outcome, count in summary.counts.items() if count)
    console.print(f"{len(summary.records)} trials: {counts} ({ended_because})", highlight=False)
    if summary.kernel_reuse is not None:
        console.print(f"kernels taken from the tuning database: {summary.kernel_reuse:.0%}", highlight=False)
    stages = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in summary.stage_seconds.items())
    console.print(f"time: {stages}, in all {duration(summary.seconds_total)}", highlight=False)
    for name, gate in summary.gates.items():
        mark, style = ("passed", "green") if gate.passed else ("FAILED", "red")
        console.print(f"gate {name}: [{style}]{mark}[/], {escape(gate.reason)}", highlight=False)


def _front_table(summary: StudySummary, budgets: str) -> Table:
    table = Table(title=f"Pareto front on {summary.device.id}, budget {budgets}", title_justify="left")
    for column in ("candidate", "trial", "latency, ms", "ONNX Runtime, ms", "val", "test", "parameters"):
        table.add_column(column, justify="left" if column == "candidate" else "right", no_wrap=column == "candidate")
    for member in summary.front:
        table.add_row(
            member.candidate_id,
            str(member.record.trial),
            _latency(member.latency),
            "" if member.onnxruntime is None else _latency(member.onnxruntime),
            _score(member.val_score),
            "" if member.test_score is None else _score(member.test_score),
            f"{member.cost.num_params:,}",
        )
    return table


def _infeasible_table(summary: StudySummary, budgets: str) -> Table:
    table = Table(title=f"INFEASIBLE: no network met {budgets}; these came closest", title_justify="left")
    for column in ("candidate", "trial", "latency, ms", "parameters", "why not"):
        justify: JustifyMethod = "left" if column in ("candidate", "why not") else "right"
        table.add_column(column, justify=justify, no_wrap=column == "candidate")
    for record in summary.infeasible:
        assert record.cost is not None
        estimate = record.cost.latency(summary.phase)
        table.add_row(
            record.candidate.candidate_id,
            str(record.trial),
            "" if estimate is None else _latency(estimate),
            f"{record.cost.num_params:,}",
            escape(record.error or "dropped on the second look"),
        )
    return table


def _latency(estimate: LatencyEstimate) -> str:
    return f"{estimate.latency_ms:.3f} [{estimate.lower_ms:.3f}, {estimate.upper_ms:.3f}]"


def _score(score: HeldOutScore) -> str:
    return f"{score.value:.3f} [{score.lower:.3f}, {score.upper:.3f}]"
