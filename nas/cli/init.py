"""`nas init`: a commented configuration to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.errors import NasError


class InitError(NasError):
    """The file cannot be written."""


def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("nas.toml"),
    stdout: Annotated[bool, typer.Option("--stdout", help="Print instead of writing a file.")] = False,
    space: Annotated[
        str | None, typer.Option(help="Search space whose defaults to show; `nas spaces` lists them.")
    ] = None,
) -> None:
    """Write a TOML file with every key, its meaning and its default."""
    from nas.config import commented_toml
    from nas.config_errors import unknown_value
    from search_spaces.registry import SPACES

    if space is not None and space not in SPACES:
        raise InitError(unknown_value("--space", space, list(SPACES)))
    text = commented_toml(space)
    if stdout:
        print(text, end="")
        return
    try:
        with path.open("x") as stream:
            stream.write(text)
    except FileExistsError:
        raise InitError(f"{path}: is already there; give another name, or use --stdout") from None
    except OSError as error:
        raise InitError(f"{path}: cannot be written ({error.strerror})") from error
    print(f"wrote {path}; run: nas search {path}")
