"""`nas bench device-time`: finished studies beside each other, by what they spent on compiling and measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def device_time(
    studies: Annotated[list[Path], typer.Argument(help="Results folders; the first is what is compared with.")],
    out: Annotated[Path | None, typer.Option(help="Folder for device-time.csv.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Compile-and-measure seconds and hypervolume of finished searches, for instance with --measure all and unsure."""
    from nas.bench.device_time import bench_device_time
    from nas.cli.bench import deliver

    deliver(bench_device_time(studies), as_json=as_json, out=out)
