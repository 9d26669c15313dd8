"""`nas doctor`: whether this machine can do what the product promises, and what to do where not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from nas.errors import NasError

_MARKS = {"good": "ok  ", "warning": "WARN", "bad": "BAD ", "unknown": "-   "}


class DoctorError(NasError):
    """Options that cannot be."""


def doctor(
    aa: Annotated[
        int | None, typer.Option("--aa", metavar="PAIRS", help="Run an A/A gate of so many pairs and store its result.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of one inference.")] = 1,
    study: Annotated[Path | None, typer.Option(help="Results folder whose database is checked as well.")] = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for a busy device.")] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Check versions, tuning, lock, sandbox, noise, canaries, data sets and databases."""
    from rich.console import Console

    from nas.doctor.checks import run_checks
    from nas.doctor.finding import Finding

    if aa is not None and aa < 2:
        raise DoctorError(f"--aa {aa}: an A/A gate needs at least 2 pairs, and 40 to store a noise floor")
    if wait < 0:
        raise DoctorError("--wait must be 0 or more")
    console = Console(stderr=True)

    def show(finding: Finding) -> None:
        if not as_json:
            print(f"{_MARKS[finding.state]} {finding.name}: {finding.text}", flush=True)

    def note(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    findings = run_checks(num_threads=threads, num_pairs=aa, study=study, lock_timeout_s=wait, show=show, note=note)
    if as_json:
        rows = [{"name": each.name, "state": each.state, "text": each.text, **each.figures} for each in findings]
        print(json.dumps({"checks": rows}))
    if bad := [each for each in findings if each.state == "bad"]:
        print(f"nas: {len(bad)} of {len(findings)} checks failed, the first: {bad[0].name}", file=sys.stderr)
        raise typer.Exit(1)
