"""`nas devices`: this machine, and every device something is stored about."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def devices(
    threads: Annotated[int, typer.Option(help="Threads of one inference.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List this machine and the devices that were measured on, with what is known about each."""
    from nas.doctor.devices import device_lines, devices_json
    from profilers.device import local_device
    from profilers.enrolment import EnrolmentStore, default_store

    here = local_device(threads)
    store: EnrolmentStore = default_store()
    if as_json:
        print(json.dumps(devices_json(here, store)))
        return
    print("\n".join(device_lines(here, store)))
