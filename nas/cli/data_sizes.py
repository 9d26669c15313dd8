"""The options that say how large a space's data is, shared by the commands that have no data at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from nas.errors import NasError

if TYPE_CHECKING:
    from search_spaces.space import SearchSpace


class DataSizesError(NasError):
    """Options that do not go together, or that no space has a use for."""


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


def sizes_given(image: str | None, given: dict[str, int | None]) -> dict[str, int]:
    """The sizes that the user gave, by the name that a space's data has for them."""
    sizes = {name: value for name, value in given.items() if value is not None}
    if image is not None:
        sizes |= dict(zip(("channels", "height", "width"), parse_image(image), strict=True))
    return sizes


def refuse_unused(sizes: dict[str, int], shown: list[str]) -> None:
    """Refuses a size that the data of none of the spaces `shown` has."""
    from nas.space_description import sizes_of
    from search_spaces.registry import SPACES

    known = sizes_of(shown)
    unused = sorted(set(sizes) - known)
    if unused and all(name in SPACES for name in shown):
        option = "--input" if unused[0] in ("channels", "height", "width") else f"--{unused[0]}"
        raise DataSizesError(f"{option}: the data of space {shown[0]!r} has {', '.join(sorted(known))}; leave it out")


def space_for(
    name: str, image: str | None, classes: int | None, context: int | None, vocabulary: int | None
) -> SearchSpace:
    """The space `name` for data of the sizes given, and its own example's sizes otherwise.

    Raises:
        CandidateError: an unknown name, or sizes that it cannot serve.
        DataSizesError: a size that its data does not have.
    """
    from search_spaces.registry import example_space

    sizes = sizes_given(image, {"classes": classes, "context": context, "vocabulary": vocabulary})
    refuse_unused(sizes, [name])
    return example_space(name, sizes)
