"""From rows to the figures that the README quotes: pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from nas.bench.measurement.parts import Row, is_quiet
from nas.bench.result import Figure

CAUSES = {"same core": "CPU over wall", "memory": "bandwidth canary"}
"""What a rejection must name, for each disturbance."""

_INTERVALS = ("blocks_t", "processes_t", "bootstrap")


def figures_of(rows: Sequence[Row], floor: float, num_later: int) -> dict[str, Figure]:
    """Every figure that the rows allow; None where a part was not run.

    Args:
        rows: of any parts.
        floor: the device's noise floor, relative.
        num_later: runs whose median an interval should contain.
    """
    by_part: dict[str, list[Row]] = {}
    for row in rows:
        by_part.setdefault(str(row["part"]), []).append(row)
    aa, apart = by_part.get("aa", []), by_part.get("apart", [])
    hogs, quiet = by_part.get("hogs", []), [row for row in by_part.get("quiet", []) if is_quiet(row)]
    speed, covered = by_part.get("speed", []), by_part.get("coverage", [])
    valid = [row for row in aa if row["rejected_because"] is None]
    figures: dict[str, Figure] = {
        "false_alarm": _share(valid, excludes_one),
        "false_alarm_with_floor": _share(valid, lambda row: excludes_one(row) and gap(row) > floor),
        "false_alarm_naive": _share(valid, lambda row: bool(row["naive_differs"])),
        "aa_pairs": float(len(valid)) if aa else None,
        "aa_gap95": _quantile([gap(row) for row in valid], 0.95),
        "aa_rejected": _share(aa, is_rejected),
        "hog_detected": _share(hogs, is_detected),
        "hog_detected_same_core": _share([row for row in hogs if row["condition"] == "same core"], is_detected),
        "hog_detected_memory": _share([row for row in hogs if row["condition"] == "memory"], is_detected),
        "quiet_rejected": _share(quiet, is_rejected),
        "coverage95": coverage(covered, "", num_later),
        "told_apart_3pct": _share(
            [row for row in apart if not is_rejected(row)], lambda row: row["verdict"] == "faster"
        ),
        "apart_rejected": _share(apart, is_rejected),
        "child_start_s": _median(speed, "child_start_s"),
        "first_look_s": _median(speed, "first_look_s"),
        "finalist_s": _median(speed, "finalist_s"),
    }
    figures |= {f"coverage95_{name}": coverage(covered, f"{name}_", num_later) for name in _INTERVALS}
    return figures


def excludes_one(row: Row) -> bool:
    """Whether a comparison claims a difference, before any floor."""
    return not float(row["lower"] or 0) <= 1 <= float(row["upper"] or math.inf)


def gap(row: Row) -> float:
    """Relative gap that a comparison saw."""
    return abs(float(row["ratio"] or math.nan) - 1)


def is_rejected(row: Row) -> bool:
    """Whether the measurement was refused."""
    return row["rejected_because"] is not None


def is_detected(row: Row) -> bool:
    """Whether a hog led to a rejection that names what it did."""
    return is_rejected(row) and CAUSES[str(row["condition"])] in str(row["rejected_because"])


def coverage(rows: Sequence[Row], prefix: str, num_later: int) -> float | None:
    """How often a run's interval contains the median of the `num_later` runs after it, over all models."""
    hits: list[bool] = []
    for model in sorted({str(row["model"]) for row in rows}):
        runs = [row for row in rows if row["model"] == model and not is_rejected(row)]
        for place in range(len(runs) - num_later):
            later = statistics.median(float(row["latency_ms"] or 0) for row in runs[place + 1 : place + 1 + num_later])
            lower, upper = runs[place][f"{prefix}lower"], runs[place][f"{prefix}upper"]
            hits.append(float(lower or 0) <= later <= float(upper or 0))
    return sum(hits) / len(hits) if hits else None


def _share(rows: Sequence[Row], holds: Callable[[Row], bool]) -> float | None:
    return sum(holds(row) for row in rows) / len(rows) if rows else None


def _median(rows: Sequence[Row], name: str) -> float | None:
    return statistics.median(float(row[name] or 0) for row in rows) if rows else None


def _quantile(values: Sequence[float], share: float) -> float | None:
    import numpy as np

    return float(np.quantile(values, share)) if values else None
