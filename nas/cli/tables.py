"""The table a search ends with."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
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
    if summary.baselines_text is not None:
        console.print(escape(summary.baselines_text), highlight=False)
    if summary.zoo:
        console.print(_zoo_table(summary))
    for dropped in summary.dropped:
        text = f"dropped {dropped.candidate_id} (trial {dropped.trial}): {dropped.reason}"
        console.print(escape(text), highlight=False)
    counts = ", ".join(f"{count} {outcome.value}" for outcome, count in summary.counts.items() if count)
    console.print(f"{len(summary.records)} trials: {counts} ({ended_because})", highlight=False)
    for rung in summary.rungs:
        console.print(
            f"rung of {rung.epochs} epochs: {rung.reached} networks, {rung.stopped} stopped,"
            f" {duration(rung.seconds)} of training", highlight=False,
        )  # fmt: skip
    if summary.kernel_reuse is not None:
        console.print(f"kernels taken from the tuning database: {summary.kernel_reuse:.0%}", highlight=False)
    stages = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in summary.stage_seconds.items())
    console.print(f"time: {stages}, in all {duration(summary.seconds_total)}", highlight=False)
    for name, gate in summary.gates.items():
        mark, style = ("passed", "green") if gate.passed else ("FAILED", "red")
        console.print(f"gate {name}: [{style}]{mark}[/], {escape(gate.reason)}", highlight=False)


def _front_table(summary: StudySummary, budgets: str) -> Table:
    phases = summary.timed_phases
    unit = "" if len(phases) == 1 else " latencies in ms;"  # in each column's head it would not fit either
    title = f"Pareto front on {summary.device.id}, budget {budgets};{unit} ± is half of the 95% interval"
    # Without lines between columns it fits into 80 characters.
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False
    )
    # Several phases have no room for a second runtime each; the report shows it.
    latencies = ("TVM, ms", "ORT, ms") if len(phases) == 1 else phases
    for column in ("candidate", *latencies, "val", "test", "params"):
        table.add_column(column, justify="left" if column == "candidate" else "right", no_wrap=True)
    for member in summary.front:
        seen = {each.phase: each.latency for each in member.latencies(summary.phase)}
        second = [_latency(member.onnxruntime)] if len(phases) == 1 else [_latency(seen.get(p)) for p in phases[1:]]
        table.add_row(
            member.candidate_id,
            _latency(member.latency),
            *second,
            _score(member.val_score),
            "" if member.test_score is None else _score(member.test_score),
            f"{member.cost.num_params / 1e6:.2f} M",
        )
    return table


def _zoo_table(summary: StudySummary) -> Table:
    table = Table(
        title="Zoo: networks of the space, to compare with", title_justify="left", box=SIMPLE_HEAD, show_edge=False,
        padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    for column in ("network", *(f"{phase}, ms" for phase in summary.timed_phases), "val", "params"):
        table.add_column(column, justify="left" if column == "network" else "right", no_wrap=column != "network")
    for network in summary.zoo:
        cost = network.cost
        table.add_row(
            escape(network.name if network.failure is None else f"{network.name}: {network.failure}"),
            *(_latency(None if cost is None else cost.latency(phase)) for phase in summary.timed_phases),
            "" if network.val_score is None else _score(network.val_score),
            "" if cost is None else f"{cost.num_params / 1e6:.2f} M",
        )
    return table


def _infeasible_table(summary: StudySummary, budgets: str) -> Table:
    table = Table(title=f"INFEASIBLE: no network met {budgets}; these came closest", title_justify="left")
    phases = summary.timed_phases
    latencies = ("latency, ms",) if len(phases) == 1 else tuple(f"{phase}, ms" for phase in phases)
    for column in ("candidate", "trial", *latencies, "parameters", "why not"):
        justify: JustifyMethod = "left" if column in ("candidate", "why not") else "right"
        table.add_column(column, justify=justify, no_wrap=column == "candidate")
    for record in summary.infeasible:
        assert record.cost is not None
        table.add_row(
            record.candidate.candidate_id,
            str(record.trial),
            *(_latency(record.cost.latency(phase)) for phase in phases),
            f"{record.cost.num_params:,}",
            escape(record.error or "dropped on the second look"),
        )
    return table


def _latency(estimate: LatencyEstimate | None) -> str:
    if estimate is None:
        return ""
    return _with_spread(estimate.latency_ms, estimate.lower_ms, estimate.upper_ms)


def _score(score: HeldOutScore) -> str:
    return _with_spread(score.value, score.lower, score.upper)


def _with_spread(value: float, lower: float, upper: float) -> str:
    """A value with half the width of its interval; the exact ends are in the report.

    >>> _with_spread(0.4271, 0.425, 0.431)
    '0.427 ±0.003'
    """
    return f"{value:.3f} ±{(upper - lower) / 2:.3f}"
