"""The page a person reads after a search: one self-contained `report.html`."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from nas.budget import Budget, format_amount
from nas.config import to_toml, without_secrets
from nas.gates.budget import spent
from nas.report.networks import front_section, zoo_section
from nas.report.page import Element, duration_text, element, join, page, section, table
from nas.report.summary import StudySummary
from nas.trial import Outcome, TrialRecord

_MEANINGS = {
    Outcome.SCORED: "met the budget, trained and scored",
    Outcome.OVER_BUDGET: "measured, and slower or bigger than the budget",
    Outcome.STOPPED_EARLY: "met the budget; a rung of the ladder stopped its training, so it has no score",
    Outcome.DIVERGED: "training did not converge",
    Outcome.PREDICTED_OVER_BUDGET: "a cost model ruled it out; never measured",
    Outcome.COMPILE_FAILED: "the compiler failed, crashed or ran out of time",
    Outcome.PARITY_FAILED: "compiled outputs differ from PyTorch",
    Outcome.PROFILE_FAILED: "no trustworthy measurement",
    Outcome.TRAIN_FAILED: "the training process failed",
}
_METRIC_NAMES = {
    "num_params": "parameters", "model_bytes": "model size", "peak_memory_bytes": "peak memory",
    "state_bytes": "state between calls",
}  # fmt: skip

PROVES = (
    "Each latency on the front was measured on the device named here, in a fresh process, after the outputs were"
    " checked against PyTorch. Its upper bound is within the budget.",
    "Each score is on examples that training never saw. The test split was opened once, for front members only.",
)
DOES_NOT_PROVE = (
    "Other devices, other versions of the runtime, or a busy device: a latency belongs to its fingerprint.",
    "Which of two members is better where their intervals overlap.",
    "Quality after full training. Proxy training is short; it ranks candidates, and the ranking may change.",
    "That a score on val is unbiased: the search chose by it. The test score is the one to quote.",
    "That these are the best networks of the space: a few trials out of millions were tried.",
    "Intervals of scores cover the choice of examples, not the choice of training seed.",
)


def report_html(summary: StudySummary, picture_png: bytes, context_png: bytes | None = None) -> str:
    """The page as text; every string of the study is escaped, nothing is loaded from elsewhere.

    Args:
        summary: what it tells.
        picture_png: quality against latency.
        context_png: latency against the length of the context; None where phases have no length.
    """
    parts = [_headline(summary), _facts(summary), _picture(summary, picture_png)]
    if summary.front:
        parts.append(front_section(summary))
    if context_png is not None:
        parts.append(_context(context_png))
    if summary.zoo:
        parts.append(zoo_section(summary))
    if summary.dropped:
        parts.append(_dropped(summary))
    if summary.infeasible:
        parts.append(_infeasible(summary))
    if summary.importances:
        parts.append(_importances(summary))
    parts.append(_outcomes(summary))
    if summary.rungs:
        parts.append(_ladder(summary))
    parts += [_gates(summary), _time(summary), _again(summary), _limits(), _provenance(summary)]
    return page(f"{summary.study}: nas report", *parts)


def budget_text(budget: Budget) -> str:
    """A budget in words.

    >>> budget_text(Budget(metric="latency_ms", phase="infer", maximum=5.0))
    'latency of infer ≤ 5 ms'
    """
    if budget.metric == "latency_ms":
        return f"latency of {budget.phase or 'the first phase'} ≤ {budget.maximum:g} ms"
    return f"{_METRIC_NAMES[budget.metric]} ≤ {format_amount(budget.metric, budget.maximum)}"


def _headline(summary: StudySummary) -> Element:
    blocked = summary.blocked_because
    count = len(summary.front)
    limits = " and ".join(budget_text(budget) for budget in summary.budgets)
    if blocked is None:
        title = f"{count} network{'s meet' if count > 1 else ' meets'} {limits or 'every gate'}"
        status = element("span", "Published", class_="pill good")
        best = summary.front[-1]
        score = best.test_score or best.val_score
        lead = (
            f"The best on val scores {score.value:.3f} {score.split} {summary.score_metric}"
            f" ({score.lower:.3f} to {score.upper:.3f}) at {best.latency.latency_ms:.3g} ms"
            f" ({best.latency.lower_ms:.3g} to {best.latency.upper_ms:.3g}), measured on {summary.device.id}."
        )
    else:
        title = "Not published" + (f": nothing met {limits}" if limits and not count else "")
        status = element("span", "Blocked", class_="pill bad")
        lead = f"Why: {blocked}."
    note = [element("p", f"Budget: {summary.budget_note}.", class_="note")] if summary.budget_note else []
    kicker = f"{summary.study} · {summary.config.search.space} on {summary.config.task.name} "
    return element(
        "header", element("p", kicker, status, class_="kicker"), element("h1", title),
        element("p", lead, class_="lead"), *note,
    )  # fmt: skip


def _facts(summary: StudySummary) -> Element:
    counts = summary.counts
    failed = sum(count for outcome, count in counts.items() if outcome.is_infrastructure)
    device = summary.device
    facts = [
        ("Budget", "; ".join(budget_text(budget) for budget in summary.budgets) or "none"),
        ("Device", f"{device.id}, {device.num_threads} thread{'s' if device.num_threads > 1 else ''}"),
        ("Trials", f"{len(summary.records)}, {counts[Outcome.SCORED]} scored"),
        ("Infrastructure failures", str(failed)),
        ("Time", duration_text(summary.seconds_total)),
        ("Kernels already tuned", "unknown" if summary.kernel_reuse is None else f"{summary.kernel_reuse:.0%}"),
    ]
    return element("dl", *(element("div", element("dt", k), element("dd", v)) for k, v in facts), class_="facts")


def _picture(summary: StudySummary, png: bytes) -> Element:
    words = f"Val {summary.score_metric} against latency of every measured candidate, the front and the budget."
    caption = (
        "Every scored candidate with its 95% intervals. The light line is the best score within each latency;"
        " numbers are rows of the table. Candidates over the budget were not trained and have no score."
    )
    return _figure_of(png, words, caption)


def _context(png: bytes) -> Element:
    words = "Latency of each network on the front against the length of its context, with intervals and budgets."
    caption = (
        "Filled marks were measured again in fresh processes. Hollow ones are one look at a phase that the study does"
        " not time: no budget and no gate was held against them."
    )
    return section("Latency and context", _figure_of(png, words, caption))


def _figure_of(png: bytes, words: str, caption: str) -> Element:
    source = "data:image/png;base64," + base64.b64encode(png).decode()
    image = Element(element("img", src=source, alt=words).removesuffix("</img>"))
    return element("figure", image, element("figcaption", caption))


def _dropped(summary: StudySummary) -> Element:
    rows = [[element("code", d.candidate_id), d.trial, d.reason] for d in summary.dropped]
    words = "These would be on the front, but did not keep their promise when measured again."
    return section("Dropped winners", element("p", words), table(["Network", "Trial", "Reason"], rows, [1]))


def _infeasible(summary: StudySummary) -> Element:
    rows = [
        [element("code", r.candidate.candidate_id), r.trial, *(_share_of(budget, r) for budget in summary.budgets)]
        for r in summary.infeasible
    ]
    headers = ["Network (infeasible)", "Trial", *(budget_text(budget) for budget in summary.budgets)]
    words = "Nothing met the budget. These came closest; none of them may be used as if it did."
    return section("Closest, but infeasible", element("p", words), table(headers, rows, range(1, len(headers))))


def _share_of(budget: Budget, record: TrialRecord) -> Element:
    amount = spent(budget, record.cost) if record.cost else None
    if amount is None:
        return element("span", "not measured", class_="interval")
    lower, upper = (f"{value / budget.maximum:.2f}" for value in amount)
    return element("span", f"{lower} × the budget" if lower == upper else f"{lower} to {upper} × the budget")


def _outcomes(summary: StudySummary) -> Element:
    tables = []
    for title, kinds in (("Says something about the network", ("quality", "screening")),
                         ("Infrastructure failures", ("infrastructure",))):  # fmt: skip
        outcomes = [outcome for outcome in Outcome if outcome.kind in kinds]
        rows = [
            [join(element("code", outcome.value), element("span", _MEANINGS[outcome], class_="sub")),
             summary.counts[outcome]]
            for outcome in outcomes
        ]  # fmt: skip
        reasons = [[r.trial, element("code", r.outcome.value), r.error] for r in summary.records
                   if r.outcome in outcomes and r.error]  # fmt: skip
        parts = [element("h3", title), table(["Outcome", "Trials"], rows, [1])]
        if reasons:
            listed = table(["Trial", "Outcome", "Reason"], reasons)
            parts.append(element("details", element("summary", f"Reasons of {len(reasons)} trials"), listed))
        tables.append(element("div", *parts))
    words = "Infrastructure failures say nothing about a network and were never told to the sampler as results."
    return section("What became of the trials", element("div", *tables, class_="columns"),
                   element("p", words, class_="note"))  # fmt: skip


def _ladder(summary: StudySummary) -> Element:
    rows = [[rung.epochs, rung.reached, rung.stopped, duration_text(rung.seconds)] for rung in summary.rungs]
    words = (
        f"The best 1/{summary.config.training.ladder} on val of those that had come to a rung, and whoever no faster"
        " one beat there, trained on. Only networks that came to the top have a score and can be on the front; scores"
        " of lower rungs are of trainings that are not over, and compared within their rung alone. The sampler learns"
        " qualities from the lowest rung, which every trained network has."
    )
    headers = ["Epochs", "Networks that came so far", "Stopped there", "Training"]
    return section("Ladder of training lengths", table(headers, rows, range(4)), element("p", words, class_="note"))


def _importances(summary: StudySummary) -> Element:
    rows = [[choice, f"{quality:.0%}", f"{latency:.0%}"] for choice, quality, latency in summary.importances]
    words = (
        "Shares of the variance over the scored trials that one choice explains (fANOVA); only choices that every"
        " network has. A search soon stops trying poor options, which then seem to matter less."
    )
    name = summary.score_metric
    return section(
        "What mattered", table(["Choice", name, "Latency"], rows, [1, 2]), element("p", words, class_="note")
    )


def _gates(summary: StudySummary) -> Element:
    rows = []
    for name, gate in summary.gates.items():
        state = element("span", "passed" if gate.passed else "failed", class_="good" if gate.passed else "bad")
        figures = ", ".join(f"{key} {_figure(value)}" for key, value in gate.figures)
        rows.append([name, state, join(element("span", gate.reason), element("span", figures, class_="sub"))])
    return section("Gates", table(["Gate", "", "Reason"], rows))


def _figure(value: float | int | str | None) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "none" if value is None else str(value)


def _time(summary: StudySummary) -> Element:
    seconds = summary.stage_seconds
    longest = max(seconds.values(), default=0.0) or 1.0
    rows = [
        [stage, duration_text(spent_s), element("span", class_="bar", style=f"width:{100 * spent_s / longest:.1f}%")]
        for stage, spent_s in seconds.items()
    ]
    words = (
        f"Wall clock of the whole study: {duration_text(summary.seconds_total)}. Stages may run at the same time,"
        " so they need not add up to it."
    )
    return section("Where the time went", table(["Stage", "Time", ""], rows, [1]), element("p", words, class_="note"))


def _again(summary: StudySummary) -> Element:
    return section(
        "Go on, or repeat it",
        element("p", "The same command goes on with this study; finished trials are kept:"),
        element("pre", element("code", summary.command)),
        element("p", "To repeat it from the start, save the configuration below as study.toml and run:"),
        element("pre", element("code", "nas search study.toml --fresh")),
        element("details", element("summary", "Configuration"),
                element("pre", element("code", to_toml(without_secrets(summary.config))))),
    )  # fmt: skip


def _limits() -> Element:
    def items(lines: Sequence[str]) -> Element:
        return element("ul", *(element("li", line) for line in lines))

    return section(
        "What these numbers prove, and what not",
        items(PROVES), element("p", "They do not prove:"), items(DOES_NOT_PROVE),
    )  # fmt: skip


def _provenance(summary: StudySummary) -> Element:
    device = summary.device
    facts = [
        ("fingerprint", device.fingerprint), ("target", device.target),
        ("cores", ", ".join(str(core) for core in device.cores)), ("threads", device.num_threads),
        *device.runtimes, *device.facts,
    ]  # fmt: skip
    run = [
        ("started", f"{summary.started_at:%Y-%m-%d %H:%M:%S %Z}"),
        ("ended", f"{summary.ended_at:%Y-%m-%d %H:%M:%S %Z}"),
        *((f"seed of {name}", seed) for name, seed in summary.seeds), *summary.versions,
    ]  # fmt: skip
    return section(
        "Where these numbers come from",
        element(
            "div",
            element("div", element("h3", f"Device {device.id}"), table(["Fact", "Value"], facts)),
            element("div", element("h3", "Run"), table(["Fact", "Value"], run)),
            class_="columns",
        ),
    )
