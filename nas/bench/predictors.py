"""Replays tables of measured latencies: what a cost model from few samples gets right about all the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from nas.bench.result import BenchResult, Figure
from nas.bench.table_encoding import encode
from nas.bench.tables import Column, Table, TableError
from profilers.cost_model import baselines
from profilers.cost_model.baselines import BaselineName
from profilers.cost_model.model import MIN_SAMPLES, CostModel
from profilers.cost_model.selection import choose
from profilers.cost_model.terms import Encoded, with_other_device

TUNED_ON = frozenset({"titan_rtx_1", "1080ti_1", "pixel3", "iwslt14deen/gpu_titanxp/total"})
"""Columns set aside for tuning; means are taken over the others, which were looked at too (docs/cost_model.md)."""
TRANSFER_SAMPLES = 100
"""Samples of the other device's model in a few-shot transfer."""
MAX_TESTED = 5000
"""Architectures that a fit is tested on, at most: more change no figure in its third digit."""

Selection = Literal["random", "informative"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What to replay.

    Attributes:
        devices: columns of the table; empty: all, but of a transformer only the whole network.
        num_samples: sizes of the fits.
        num_seeds: fits of each size and device, each with other samples.
        selection: how samples are chosen.
        transfer_from: a column whose model helps the others; None: from scratch only.
    """

    devices: tuple[str, ...] = ()
    num_samples: tuple[int, ...] = (10, 20, 50, 100)
    num_seeds: int = 10
    selection: Selection = "random"
    transfer_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fit of one predictor, tested on architectures that it never saw.

    Attributes:
        device, num_samples, seed, predictor: which fit; predictor is `model`, `transfer`, `macs` or `counts`.
        used: what the model used: its terms, or a baseline that did better on held-out samples.
        spearman, kendall: rank correlations.
        within5, within10: share of predictions within 5 and 10% of the measurement.
        mape: mean absolute relative error.
        coverage90: share of measurements inside the 90% intervals.
        violations: of those admitted at the median as budget (upper 90% bound within it; a baseline has
            no bound: predictions within it), the share whose measurement exceeds it; None when none was.
        admitted: share of those that truly meet it that were admitted.
    """

    device: str
    num_samples: int
    seed: int
    predictor: str
    used: str
    spearman: float
    kendall: float
    within5: float
    within10: float
    mape: float
    coverage90: float | None
    violations: float | None
    admitted: float


def replay(
    table: Table, what: Replay, *, is_quick: bool = False, on_progress: Callable[[str], None] = lambda text: None
) -> BenchResult:
    """Fits and tests everything that `what` asks for.

    Raises:
        TableError: a device that the table lacks, or too few rows for a fit of that size.
    """
    devices = what.devices or tuple(name for name in table.devices if table.kind != "transformer" or "/total" in name)
    _check(table, (*devices, *([what.transfer_from] if what.transfer_from else [])), what)
    encoded = encode(table)
    rows: list[Row] = []
    for device in devices:
        on_progress(device)
        rows += _replay_device(table, encoded, device, what)
    return BenchResult(
        bench="predictors", device=None, is_quick=is_quick,
        figures=figures(rows, {name: table.devices[name].num_dropped for name in devices}),
        rows=[dataclasses.asdict(row) for row in rows],
    )  # fmt: skip


def _check(table: Table, devices: Sequence[str], what: Replay) -> None:
    for device in devices:
        if device not in table.devices:
            raise TableError(f"table {table.name}: no device {device!r}; there are: {', '.join(table.devices)}")
    least = min(len(table.devices[device].rows) for device in devices)
    for num in what.num_samples:
        if not MIN_SAMPLES <= num <= least - MIN_SAMPLES:
            raise TableError(
                f"table {table.name}: {num} samples; allowed: {MIN_SAMPLES} to {least - MIN_SAMPLES}"
                f" (some device has {least} measured architectures, and some must be left to test on)"
            )


def _replay_device(table: Table, encoded: Encoded, device: str, what: Replay) -> Iterator[Row]:
    column = table.devices[device]
    mine = encoded.take(column.rows)
    helped = None
    if what.transfer_from not in (None, device):
        helped = with_other_device(
            mine, _other_device(encoded, table.devices[str(what.transfer_from)]).predict(mine).latency_ms
        )
    for num in what.num_samples:
        for seed in range(what.num_seeds):
            generator = np.random.default_rng([num, seed])
            order = generator.permutation(len(column.values))
            if what.selection == "informative":
                first = choose(mine, num, generator)
                order = np.concatenate([first, np.setdiff1d(order, first, assume_unique=True)])
                order[num:] = generator.permutation(order[num:])
            fit, test = order[:num], order[num : num + MAX_TESTED]
            for predictor in ("model", "macs", "counts", *(["transfer"] if helped else [])):
                source = helped if predictor == "transfer" and helped else mine
                yield _row(device, num, seed, predictor, source, column.values, fit, test)


def _other_device(encoded: Encoded, column: Column) -> CostModel:
    """The other device's model; its samples are the first of a fixed shuffle."""
    at = np.random.default_rng(0).permutation(len(column.rows))[:TRANSFER_SAMPLES]
    return CostModel.fit(encoded.take(column.rows[at]), column.values[at])


def _row(
    device: str,
    num: int,
    seed: int,
    predictor: str,
    encoded: Encoded,
    measured: np.ndarray,
    fit: np.ndarray,
    test: np.ndarray,
) -> Row:
    from scipy.stats import kendalltau, spearmanr

    budget, truth, tested = float(np.median(measured)), measured[test], encoded.take(test)
    lower = upper = None
    if predictor in ("macs", "counts"):
        predicted = _baseline(encoded.take(fit), measured[fit], tested, "macs" if predictor == "macs" else "counts")
        bound, used = predicted, predictor
    else:
        model = CostModel.fit(encoded.take(fit), measured[fit])
        seen = model.predict(tested)
        predicted, lower, upper = seen.latency_ms, seen.lower_ms, seen.upper_ms
        bound, used = model.upper_ms(tested), model.predictor
    wrong = np.abs(predicted / truth - 1)
    is_in = bound <= budget
    return Row(
        device=device, num_samples=num, seed=seed, predictor=predictor, used=used,
        spearman=float(spearmanr(predicted, truth).statistic) if np.ptp(predicted) > 0 else 0.0,
        kendall=float(kendalltau(predicted, truth).statistic) if np.ptp(predicted) > 0 else 0.0,
        within5=float((wrong <= 0.05).mean()), within10=float((wrong <= 0.1).mean()), mape=float(wrong.mean()),
        coverage90=None if lower is None or upper is None else float(((lower <= truth) & (truth <= upper)).mean()),
        violations=float((truth[is_in] > budget).mean()) if is_in.any() else None,
        admitted=float(is_in[truth <= budget].mean()),
    )  # fmt: skip


def _baseline(fit: Encoded, measured: np.ndarray, tested: Encoded, name: BaselineName) -> np.ndarray:
    coefficients = baselines.fit_baseline(baselines.baseline_values(fit, name), measured / np.median(measured), name)
    predicted: np.ndarray = np.median(measured) * baselines.predict_baseline(tested, coefficients, name)
    return predicted


FIGURES = ("spearman", "kendall", "within5", "within10", "mape", "coverage90", "violations", "admitted")


def figures(rows: Sequence[Row], num_dropped: dict[str, int]) -> dict[str, Figure]:
    """Means over seeds: of the model over the devices it was not tuned on, of each predictor, of each device."""
    devices = list(dict.fromkeys(row.device for row in rows))
    reported = [device for device in devices if device not in TUNED_ON] or devices
    sizes = sorted({row.num_samples for row in rows})
    predictors = list(dict.fromkeys(row.predictor for row in rows))
    result: dict[str, Figure] = {}
    for num in sizes:
        for name in FIGURES:
            result[f"{name}_n{num}"] = _mean_of_devices(rows, reported, num, name, "model")
    result["by_device"] = {
        device: {f"{name}_n{num}": _mean(rows, device, num, name, "model") for num in sizes for name in FIGURES}
        for device in devices
    }
    result["by_predictor"] = {
        predictor: {
            f"{name}_n{num}": _mean_of_devices(rows, reported, num, name, predictor)
            for num in sizes
            for name in FIGURES
        }
        for predictor in predictors
    }
    result["dropped_values"] = {device: float(num_dropped[device]) for device in devices}
    return result


def _mean_of_devices(rows: Sequence[Row], devices: Sequence[str], num: int, name: str, predictor: str) -> float | None:
    means = [_mean(rows, device, num, name, predictor) for device in devices]
    known = [mean for mean in means if mean is not None]
    return float(np.mean(known)) if known else None


def _mean(rows: Sequence[Row], device: str, num: int, name: str, predictor: str) -> float | None:
    values = [
        getattr(row, name) for row in rows if (row.device, row.num_samples, row.predictor) == (device, num, predictor)
    ]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def save_plot(result: BenchResult, path: Path) -> None:
    """Rank correlation and share within 10% against the number of samples, a line a predictor.

    Raises:
        OSError: the picture cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    rows = result.rows
    devices = list(dict.fromkeys(str(row["device"]) for row in rows))
    picture = Picture(figsize=(3.2 * len(devices), 6), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots(2, len(devices), squeeze=False, sharex=True)
    for at, device in enumerate(devices):
        for line, (name, label) in enumerate((("spearman", "Spearman"), ("within10", "share within 10%"))):
            axis = axes[line, at]
            for predictor in dict.fromkeys(str(row["predictor"]) for row in rows):
                mine = [row for row in rows if row["device"] == device and row["predictor"] == predictor]
                sizes = sorted({int(str(row["num_samples"])) for row in mine})
                means = [
                    float(np.mean([float(str(row[name])) for row in mine if row["num_samples"] == size]))
                    for size in sizes
                ]
                axis.plot(sizes, means, marker="o", label=predictor)
            axis.set_xscale("log")
            axis.set_xticks(sizes, [str(size) for size in sizes])
            axis.minorticks_off()
            axis.set_title(device, fontsize=9)
            axis.set_ylabel(label)
    for axis in axes[1]:
        axis.set_xlabel("measured samples")
    axes[0, 0].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)
