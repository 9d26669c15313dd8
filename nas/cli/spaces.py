"""`nas spaces`: which search spaces there are, how large they are, and what their references cost."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from nas.cli.data_sizes import DataSizesError, refuse_unused, sizes_given


def spaces(
    name: Annotated[str | None, typer.Argument(help="One space in detail: every phase of its references.")] = None,
    size: Annotated[
        str | None, typer.Option("--input", metavar="CxHxW", help="Images as CHANNELSxHEIGHTxWIDTH.")
    ] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="Classes of the task.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Longest text, in tokens.")] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1, help="Number of distinct tokens.")] = None,
    candidate: Annotated[
        str | None, typer.Option(metavar="REFERENCE", help="Print that reference's candidate as JSON, and stop.")
    ] = None,
    roofline: Annotated[
        bool, typer.Option("--roofline", help="Measure this machine's peaks and predict the floor of each phase.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, max=256, help="Threads of one inference, for --roofline.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List the search spaces with their numbers of candidates and heavy kernels, and what their references cost.

    Each is described for small data of its own kind; the options change what its data has.
    """
    from nas.cli.space_tables import print_overview, print_space, to_json
    from nas.device_peaks import peaks_of_this_machine
    from nas.space_description import describe, reference_candidate
    from search_spaces.registry import SPACES

    if name is None and (candidate is not None or roofline):
        raise DataSizesError(
            f"--candidate and --roofline are for one space: nas spaces NAME; known: {', '.join(SPACES)}"
        )
    sizes = sizes_given(size, {"classes": classes, "context": context, "vocabulary": vocabulary})
    shown = list(SPACES) if name is None else [name]
    refuse_unused(sizes, shown)
    if candidate is not None:
        assert name is not None
        print(json.dumps(reference_candidate(name, candidate, sizes).to_json(), indent=1))
        return
    descriptions = [describe(each, sizes) for each in shown]
    peaks = peaks_of_this_machine(threads, lambda text: print(text, file=sys.stderr)) if roofline else None
    if as_json:
        print(json.dumps(to_json(descriptions, peaks), indent=1))
    elif name is None:
        print_overview(descriptions)
    else:
        print_space(descriptions[0], peaks)
