"""Search spaces as tables for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from nas.space_description import ReferenceDescription, SpaceDescription
    from profilers.roofline import DevicePeaks
    from search_spaces.candidate import BlockSpec
    from search_spaces.phase_cost import PhaseCost

_UNITS = ("bytes", "KB", "MB", "GB", "TB")


def print_overview(descriptions: Sequence[SpaceDescription]) -> None:
    """Every space in a line, then the references of each in the first phase of each kind."""
    from rich.console import Console

    console = Console()
    console.print(_sizes_table("Search spaces", descriptions))
    for description in descriptions:
        console.print()
        console.print(_references_table(description, None, is_whole=False))
    console.print()
    console.print("All phases of one: nas spaces NAME", highlight=False)


def print_space(description: SpaceDescription, peaks: DevicePeaks | None) -> None:
    """One space, with every phase of its references; and with the floors of a device where its peaks are known."""
    from rich.console import Console

    console = Console()
    console.print(_sizes_table(f"Search space {description.name}", [description]))
    console.print()
    console.print(_references_table(description, peaks, is_whole=True))
    if peaks is None:
        return
    console.print()
    rates = ", ".join(f"{rate / 1e9:.1f} GB/s up to {humanise(footprint)}" for footprint, rate in peaks.bandwidths)
    console.print(f"Measured peaks of this machine: {peaks.flops_per_s / 1e9:.1f} GFLOP/s; {rates}.", highlight=False)
    console.print(
        "A floor is predicted from those peaks, never measured: the larger of operations at the peak rate and bytes"
        " moved at the bandwidth of the memory that holds the weights. Real code is slower.",
        highlight=False,
    )


def to_json(descriptions: Sequence[SpaceDescription], peaks: DevicePeaks | None) -> dict[str, Any]:
    """What the tables say, with every phase of every space."""
    answer: dict[str, Any] = {"spaces": [_space_json(each, peaks) for each in descriptions]}
    if peaks is not None:
        answer["peaks"] = {
            "flops_per_s": peaks.flops_per_s,
            "bandwidths": [{"footprint_bytes": footprint, "bytes_per_s": rate} for footprint, rate in peaks.bandwidths],
        }
    return answer


def humanise(num_bytes: int) -> str:
    """Bytes with three digits and a decimal unit.

    >>> humanise(999), humanise(266_752), humanise(1_317_269_504)
    ('999 bytes', '267 KB', '1.32 GB')
    """
    value, unit = float(num_bytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{num_bytes} bytes" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def grouped(value: float) -> str:
    """A number with four digits, more only before the point, in groups of three.

    >>> grouped(1.76128), grouped(93.7649), grouped(1_279_967.2)
    ('1.761', '93.76', '1,279,967')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def data_line(input: BlockSpec, head: BlockSpec) -> str:
    """The data that a space is described for.

    >>> from search_spaces.registry import EXAMPLES
    >>> data_line(EXAMPLES["hybrid_language"].input, EXAMPLES["hybrid_language"].head)
    'text of context 512, vocabulary 256'
    """
    options = dict((*input.options, *head.options))
    return f"{input.kind} of {', '.join(f'{name} {value}' for name, value in options.items())}"


def _sizes_table(title: str, descriptions: Sequence[SpaceDescription]) -> Table:
    table = _table(title, ("space", "version", "task", "candidates", "heavy kernels"), left=("space", "task"))
    for each in descriptions:
        # The spaces of 16 layers and more have 29 digits of candidates: nobody reads them.
        count = each.num_candidates
        candidates = "unknown" if count is None else f"{count:,}" if count < 10**15 else f"{count:.3g}"
        kernels = "unknown" if each.num_heavy_kernels is None else str(each.num_heavy_kernels)
        table.add_row(each.name, str(each.version), each.task_kind, candidates, kernels)
    return table


def _references_table(description: SpaceDescription, peaks: DevicePeaks | None, *, is_whole: bool) -> Table:
    """A row for each reference, and below it one for each of its phases."""
    from search_spaces.space import first_of_each_kind

    columns = ["network and phase", "parameters", "million MACs", "state", "bytes moved"]
    columns += [] if peaks is None else ["predicted floor, ms", "bound by"]
    title = f"Reference networks of {description.name}, {data_line(description.input, description.head)}"
    table = _table(title, columns, left=("network and phase", "bound by"))
    for reference in description.references:
        table.add_row(reference.name, f"{reference.num_params:,}")
        names = [cost.phase for cost in reference.phases]
        shown = names if is_whole else first_of_each_kind(names)
        for cost in (cost for cost in reference.phases if cost.phase in shown):
            table.add_row(f"  {cost.phase}", "", *_phase_cells(cost, peaks))
    return table


def _phase_cells(cost: PhaseCost, peaks: DevicePeaks | None) -> list[str]:
    from nas.space_description import predicted_floor

    state = "none" if cost.state_bytes is None else humanise(cost.state_bytes)
    cells = [grouped(cost.num_macs / 1e6), state, humanise(cost.moved_bytes)]
    if peaks is not None:
        floor = predicted_floor(cost, peaks)
        cells += [grouped(floor.latency_ms), floor.bound]
    return cells


def _table(title: str, columns: Sequence[str], left: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        is_key = column in (*columns[:1], "parameters")  # cut last in a narrow terminal
        table.add_column(column, justify="left" if column in left else "right", vertical="bottom", no_wrap=is_key)
    return table


def _space_json(description: SpaceDescription, peaks: DevicePeaks | None) -> dict[str, Any]:
    return {
        "space": description.name,
        "version": description.version,
        "task": description.task_kind,
        "input": description.input.to_json(),
        "head": description.head.to_json(),
        "candidates": description.num_candidates,
        "heavy_kernels": description.num_heavy_kernels,
        "references": {each.name: _reference_json(each, peaks) for each in description.references},
    }


def _reference_json(reference: ReferenceDescription, peaks: DevicePeaks | None) -> dict[str, Any]:
    return {
        "candidate_id": reference.candidate.candidate_id,
        "macs": reference.phases[0].num_macs,
        "params": reference.num_params,
        "phases": {cost.phase: _phase_json(cost, peaks) for cost in reference.phases},
    }


def _phase_json(cost: PhaseCost, peaks: DevicePeaks | None) -> dict[str, Any]:
    from nas.space_description import predicted_floor

    found: dict[str, Any] = {
        "macs": cost.num_macs, "state_bytes": cost.state_bytes,
        "weight_bytes": cost.weight_bytes, "moved_bytes": cost.moved_bytes,
    }  # fmt: skip
    if peaks is not None:
        floor = predicted_floor(cost, peaks)
        found["floor_ms"] = {"value": floor.latency_ms, "bound": floor.bound, "source": "predicted"}
    return found
