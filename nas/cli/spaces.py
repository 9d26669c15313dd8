"""`nas spaces`: which search spaces there are, how large they are, and what their references cost."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from nas.errors import NasError

if TYPE_CHECKING:
    pass


class SpacesError(NasError):
    """Options that do not go together, or that no space has a use for."""


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
        raise SpacesError(f"--candidate and --roofline are for one space: nas spaces NAME; known: {', '.join(SPACES)}")
    sizes = _sizes(size, {"classes": classes, "context": context, "vocabulary": vocabulary})
    shown = list(SPACES) if name is None else [name]
    _refuse_unused(sizes, shown)
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


def parse_image(text: str) -> tuple[int, int, int]:
    """Channels, height and width of `CxHxW`.

    >>> parse_image("3x32x32")
    (3, 32, 32)
    """
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(
        part.isascii() and part.isdigit() and len(part) < 10 and int(part) > 0 for part in parts
    ):
        raise typer.BadParameter(
            f"{text!r}; allowed: CHANNELSxHEIGHTxWIDTH, for instance 3x32x32", param_hint="--input"
        )
    channels, height, width = (int(part) for part in parts)
    return channels, height, width


def _sizes(image: str | None, given: dict[str, int | None]) -> dict[str, int]:
    """The sizes that the user gave, by the name that a space's data has for them."""
    sizes = {name: value for name, value in given.items() if value is not None}
    if image is not None:
        sizes |= dict(zip(("channels", "height", "width"), parse_image(image), strict=True))
    return sizes


def _refuse_unused(sizes: dict[str, int], shown: list[str]) -> None:
    from nas.space_description import sizes_of
    from search_spaces.registry import SPACES

    known = sizes_of(shown)
    unused = sorted(set(sizes) - known)
    if unused and all(name in SPACES for name in shown):
        option = "--input" if unused[0] in ("channels", "height", "width") else f"--{unused[0]}"
        raise SpacesError(f"{option}: the data of space {shown[0]!r} has {', '.join(sorted(known))}; leave it out")
