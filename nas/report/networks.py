"""The parts of the report that list networks: the front, and the space's named ones beside it."""

from __future__ import annotations

from nas.report.page import Element, bytes_text, element, join, section, table, with_interval
from nas.report.summary import FrontMember, StudySummary, ZooNetwork
from nas.report.tables import blocks_text
from nas.training.score import HeldOutScore
from profilers.measurement import LatencyEstimate


def front_section(summary: StudySummary) -> Element:
    """The published networks, with a pair of columns for each timed phase."""
    phases = summary.timed_phases
    name = "TVM" if summary.config.compile.runtime == "tvm" else "Latency"
    latencies = [
        header
        for phase in phases
        for header in (_header(name, phase, len(phases)), _header("ONNX Runtime", phase, len(phases)))
    ]
    states = ["State"] if _has_state(summary) else []
    headers = ["", "Network", *latencies, "Parameters", "Peak memory", *states, f"Val {summary.score_metric}",
               f"Test {summary.score_metric}"]  # fmt: skip
    rows = [_front_row(number, member, summary) for number, member in enumerate(summary.front, start=1)]
    note = (
        f"Latency of {' and '.join(phases)}, measured again in fresh processes; smaller numbers are 95% intervals."
        " Each network is in winners/, under its name."
    )
    if summary.baselines_text is not None:
        note += f" For comparison, the {summary.baselines_text}."
    return section("The front", table(headers, rows, numeric=range(2, len(headers))), element("p", note, class_="note"))


def zoo_section(summary: StudySummary) -> Element:
    """The space's named networks: latency in each timed phase, and a score where one was a trial."""
    phases = summary.timed_phases
    states = ["State"] if _has_state(summary) else []
    headers = ["Zoo", *(f"{phase}, ms" for phase in phases), "Parameters", *states, f"Val {summary.score_metric}"]
    rows = [_zoo_row(network, summary) for network in summary.zoo]
    note = (
        "Networks that the space knows by name, measured as the search measures, to compare with. One has a score"
        " where it was tried; for the others nothing was trained."
    )
    return section("Zoo", table(headers, rows, numeric=range(1, len(headers))), element("p", note, class_="note"))


def _header(name: str, phase: str, num_phases: int) -> str:
    return f"{name}, ms" if num_phases == 1 else f"{name} {phase}, ms"


def _has_state(summary: StudySummary) -> bool:
    costs = [member.cost for member in summary.front]
    costs += [network.cost for network in summary.zoo if network.cost is not None]
    return any(cost.state_bytes is not None for cost in costs)


def _front_row(number: int, member: FrontMember, summary: StudySummary) -> list[object]:
    lines = [element("span", blocks_text(member.record.candidate), class_="sub")]
    lines += [element("span", note, class_="sub") for note in member.notes]
    seen = {each.phase: each for each in member.latencies(summary.phase)}
    latencies = []
    for phase in summary.timed_phases:
        known = seen.get(phase)
        latencies += [_latency(known.latency if known else None), _latency(known.onnxruntime if known else None)]
    return [
        element("b", number),
        join(element("code", member.candidate_id), *lines),
        *latencies,
        f"{member.cost.num_params:,}",
        _bytes(member.cost.peak_memory_bytes),
        *([_bytes(member.cost.state_bytes)] if _has_state(summary) else []),
        _score(member.val_score),
        _score(member.test_score),
    ]


def _zoo_row(network: ZooNetwork, summary: StudySummary) -> list[object]:
    cost = network.cost
    lines = [element("code", network.candidate_id, class_="sub")]
    lines += [] if network.failure is None else [element("span", network.failure, class_="sub")]
    return [
        join(element("span", network.name), *lines),
        *(_latency(None if cost is None else cost.latency(phase)) for phase in summary.timed_phases),
        "" if cost is None else f"{cost.num_params:,}",
        *([_bytes(None if cost is None else cost.state_bytes)] if _has_state(summary) else []),
        element("span", "not trained", class_="interval") if network.val_score is None else _score(network.val_score),
    ]


def _bytes(size_bytes: int | None) -> str:
    return "not measured" if size_bytes is None else bytes_text(size_bytes)


def _latency(estimate: LatencyEstimate | None) -> Element:
    if estimate is None:
        return element("span", "not measured", class_="interval")
    return with_interval(*(f"{ms:#.3g}" for ms in (estimate.latency_ms, estimate.lower_ms, estimate.upper_ms)))


def _score(score: HeldOutScore | None) -> Element:
    if score is None:
        return element("span", "not opened", class_="interval")
    return with_interval(f"{score.value:.3f}", f"{score.lower:.3f}", f"{score.upper:.3f}")
