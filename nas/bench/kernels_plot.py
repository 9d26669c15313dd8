"""The pictures of `nas bench kernels`: latency beside ONNX Runtime, and where each kernel's time goes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from nas.bench.result import Cell

_CONTENDERS = (
    ("tvm_ms", "TVM tuned", "#0072B2"),
    ("tvm_start_ms", "TVM, first schedules", "#9CCBE6"),
    ("torch_ms", "torch eager", "#E69F00"),
    ("torch_compile_ms", "torch.compile", "#CC79A7"),
)
_BOUNDS = {"operations": "#D55E00", "bytes": "#009E73"}
_SIZE_INCHES, _DPI = (11.0, 4.8), 150
_NUM_KERNELS = 12


def draw_kernels(rows: Sequence[Mapping[str, Cell]]) -> bytes:
    """A PNG: on the left each contender over ONNX Runtime, on the right the kernels that take most time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    networks = [row for row in rows if row["row"] == "network"]
    width = 0.8 / len(_CONTENDERS)
    for place, (column, label, color) in enumerate(_CONTENDERS):
        ratios = over_onnxruntime(networks, column)
        if any(ratios):
            left.bar([x + place * width for x in range(len(ratios))], ratios, width, label=label, color=color)
    left.axhline(1.0, color="black", linewidth=1)
    left.set_xticks([x + 0.3 for x in range(len(networks))], [str(row["network"]) for row in networks], rotation=60)
    left.set_yscale("log")
    left.set_ylabel("latency over ONNX Runtime's (below 1: faster)")
    left.legend(frameon=False, fontsize=8)
    kernels = costliest(rows)
    labels = [f"{str(name)[:44]}" for name, _, _, _ in kernels]
    right.barh(range(len(kernels)), [share for _, share, _, _ in kernels], color="#D0D0D0", label="share of the time")
    for bound, color in _BOUNDS.items():
        places = [place for place, kernel in enumerate(kernels) if kernel[3] == bound]
        needed = [kernels[place][1] * min(1.0, kernels[place][2]) for place in places]
        right.barh(places, needed, height=0.4, color=color, label=f"least possible, by {bound}")
    right.set_yticks(range(len(kernels)), labels, fontsize=6)
    right.invert_yaxis()
    right.set_xlabel("share of the kernels' time, mean over networks")
    right.legend(frameon=False, fontsize=8)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    return image.getvalue()


def over_onnxruntime(networks: Sequence[Mapping[str, Cell]], column: str) -> list[float]:
    """A contender's latency over ONNX Runtime's for each network; 0 where it was not measured.

    >>> over_onnxruntime([{"tvm_ms": 3.0, "onnxruntime_ms": 2.0}, {"tvm_ms": None, "onnxruntime_ms": 2.0}], "tvm_ms")
    [1.5, 0.0]
    """
    return [_number(row.get(column)) / _number(row["onnxruntime_ms"]) for row in networks]


def costliest(rows: Sequence[Mapping[str, Cell]], count: int = _NUM_KERNELS) -> list[tuple[str, float, float, str]]:
    """Name, mean share of a network's time, distance to the roofline and bound of the costliest kernels."""
    num_networks = sum(row["row"] == "network" for row in rows)
    totals: dict[str, float] = {}
    facts: dict[str, tuple[str, float, str]] = {}
    for row in rows:
        if row["row"] == "kernel":
            key = str(row["key"])
            totals[key] = totals.get(key, 0.0) + _number(row["share"]) / num_networks
            facts[key] = (str(row["kernel"]), _number(row["roofline_share"]), str(row["bound"]))
    keys = sorted(totals, key=lambda key: (-totals[key], key))[:count]
    return [(facts[key][0], totals[key], facts[key][1], facts[key][2]) for key in keys]


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0
