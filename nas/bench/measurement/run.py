"""Runs the bench, part by part; rows that are there already are not measured again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from nas.bench.measurement.figures import figures_of
from nas.bench.measurement.parts import PARTS, QUICK, Counts, Row, rejected_example
from nas.bench.measurement.plots import write_plots
from nas.bench.measurement.rig import Rig
from nas.bench.result import BenchResult
from nas.errors import NasError
from profilers.device import local_device

ROWS_NAME = "measurement-rows.jsonl"
NUM_LATER, NUM_LATER_QUICK = 20, 3
"""Runs whose median an interval should contain."""


class RowsError(NasError):
    """A file of rows that cannot be gone on with."""


def run_bench(
    parts: Sequence[str], *, is_quick: bool, out: Path | None, plots: Path | None, note: Callable[[str], None]
) -> BenchResult:
    """Runs the parts, and computes every figure from all rows there are.

    Args:
        parts: names in `PARTS`.
        is_quick: few observations of each.
        out: folder whose rows are gone on with; None keeps nothing.
        plots: folder for pictures; None draws none.
        note: told about the progress.

    Raises:
        RowsError: rows of another kind are in `out`.
        RigError: a reference network cannot be measured here.
    """
    counts = QUICK if is_quick else Counts()
    rows = _read(out, local_device(1).fingerprint)
    with tempfile.TemporaryDirectory(prefix="nas-bench-") as scratch:
        Path(scratch).chmod(0o755)
        rig = Rig.build(Path(scratch), Path(scratch) / "state")
        for part in parts:
            _run_part(part, rig, counts, rows, out, note)
        if plots is not None:
            for path in write_plots(rows, rejected_example(rig), plots):
                note(f"picture: {path}")
    num_later = NUM_LATER_QUICK if is_quick else NUM_LATER
    figures = figures_of(rows, rig.noise.floor_or_default, num_later)
    return BenchResult(
        bench="measurement", device=rig.device.fingerprint, figures=figures, rows=rows, is_quick=is_quick
    )


def _run_part(
    part: str, rig: Rig, counts: Counts, rows: list[Row], out: Path | None, note: Callable[[str], None]
) -> None:
    known = [row for row in rows if row["part"] == part]
    note(f"{part}: {len(known)} observations are there")
    for row in PARTS[part](rig, counts, known):
        rows.append({"part": part, "device": rig.device.fingerprint, **row})
        if out is not None:
            with (out / ROWS_NAME).open("a") as stream:
                stream.write(json.dumps(rows[-1]) + "\n")
        if int(str(row["number"])) % 10 == 9:
            note(f"{part}: {row['number']} done")


def _read(out: Path | None, fingerprint: str) -> list[Row]:
    if out is None:
        return []
    out.mkdir(parents=True, exist_ok=True)
    path = out / ROWS_NAME
    if not path.exists():
        return []
    try:
        rows: list[Row] = [json.loads(line) for line in path.read_text().splitlines()]
        devices = {row["device"] for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise RowsError(f"{path}: not rows of this bench ({error}); give another --out") from error
    if devices - {fingerprint}:
        raise RowsError(
            f"{path}: rows of device {sorted(map(str, devices))}, this is {fingerprint}; give another --out"
        )
    return rows
