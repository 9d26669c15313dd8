"""A made-up table of 60 architectures whose quality and latency both grow with width and depth."""

from __future__ import annotations

from pathlib import Path

from nas.bench.table_problem import TableProblem, make_problem
from nas.bench.tables import load_table


def write_small_table(folder: Path) -> Path:
    """Columns `width`, `depth`, `kind`, `lat_ms_phone` and `test_acc`."""
    lines = ["width,depth,kind,lat_ms_phone,test_acc"]
    for width in (1, 2, 3, 4):
        for depth in (1, 2, 3, 4, 5):
            for at, kind in enumerate(("conv", "pool", "skip")):
                latency_ms = width * depth * (3 - at) / 3 + 0.5
                accuracy = 0.9 - 0.4 / width - 0.2 / depth - 0.05 * at
                lines.append(f"{width},{depth},{kind},{latency_ms:.4f},{accuracy:.4f}")
    path = folder / "small.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def small_problem(folder: Path) -> TableProblem:
    """Within the 40% quantile of the phone's latencies."""
    table = load_table(write_small_table(folder), architecture=["width", "depth", "kind"])
    return make_problem(table, quality="test_acc", device="phone")
