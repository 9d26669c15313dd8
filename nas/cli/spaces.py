"""`nas spaces`: which search spaces there are, and how large they are."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def spaces(
    size: Annotated[str, typer.Option("--input", help="Image as CHANNELSxHEIGHTxWIDTH.")] = "1x8x8",
    classes: Annotated[int, typer.Option(help="Classes of the task.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List the search spaces with their numbers of candidates and of distinct heavy kernels."""
    from search_spaces.candidate import BlockSpec
    from search_spaces.kernels import CountedSpace
    from search_spaces.layers import num_macs, num_params
    from search_spaces.registry import SPACES, make_space
    from search_spaces.space import replay

    channels, height, width = parse_image(size)
    image = BlockSpec.of("image", channels=channels, height=height, width=width)
    rows: list[dict[str, Any]] = []
    for name in SPACES:
        space = make_space(name, image, BlockSpec.of("classifier", classes=classes))
        references = {key: replay(space, choices) for key, choices in space.references().items()}
        rows.append(
            {
                "space": name,
                "version": space.version,
                "task": space.task_kind,
                "candidates": space.num_candidates() if isinstance(space, CountedSpace) else None,
                "heavy_kernels": len(space.kernels()) if isinstance(space, CountedSpace) else None,
                "references": {
                    key: {"macs": num_macs(candidate), "params": num_params(candidate)}
                    for key, candidate in references.items()
                },
            }
        )
    if as_json:
        print(json.dumps({"input": size, "classes": classes, "spaces": rows}, indent=1))
        return
    _print_table(rows, size)


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


def _print_table(rows: list[dict[str, Any]], size: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"Search spaces for a {size} image", title_justify="left")
    for column in ("space", "version", "task", "candidates", "heavy kernels"):
        table.add_column(column, justify="right" if column in ("candidates", "heavy kernels") else "left", no_wrap=True)
    for row in rows:
        candidates = "unknown" if row["candidates"] is None else f"{row['candidates']:,}"
        kernels = "unknown" if row["heavy_kernels"] is None else str(row["heavy_kernels"])
        table.add_row(row["space"], str(row["version"]), row["task"], candidates, kernels)
    console.print(table)
    for row in rows:
        references = Table(title=f"Reference networks of {row['space']}", title_justify="left")
        for column in ("name", "million MACs", "parameters"):
            references.add_column(column, justify="left" if column == "name" else "right")
        for name, cost in row["references"].items():
            references.add_row(name, f"{cost['macs'] / 1e6:.2f}", f"{cost['params']:,}")
        console.print(references)
