"""Public tables of measured architectures: read, checked, and cut into one column a device or quality.

Three kinds are read. NAS-Bench-201 tables have cell strings in a column `arch_str` (Dong and Yang 2020).
Tables of hardware-aware transformers have a column `device` and the shapes of encoder and decoder (Wang et
al. 2020). Anything else is generic: a column that names the architecture, or several that describe it, and
columns of latency whose names start with `lat_ms` or `latency_ms`.

    table = load_table(Path("nasbench201.csv.gz"))
    table.choices[0]                             # {"edge_0_1": "avg_pool_3x3", ...}
    column = table.devices["pixel2"]             # column.rows, column.values (ms), column.num_dropped
    accuracy = table.qualities["cifar10_test_acc"].values   # a fraction
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nas.bench import table_kinds
from nas.errors import NasError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

TableKind = Literal["nasbench201", "transformer", "generic"]
Choice = str | float
LATENCY_PREFIXES = ("lat_ms", "latency_ms")
"""How a column of latencies starts: the unit is part of the name, so that seconds are not taken for ms."""
QUALITY_PATTERN = re.compile(r"(^|_)(acc|accuracy|quality|bleu)($|_)")
MIN_VALUES = 20
"""Values a column must have: fewer cannot be split into a fit and a test."""


class TableError(NasError):
    """A table that cannot be used; the message names file, column and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What was measured of one quantity.

    Attributes:
        name: of the device or the quality.
        rows: positions in `Table.choices`, ascending, of the architectures that have a value.
        values: one for each of `rows`; latencies in ms, accuracies as fractions.
        num_dropped: architectures of this column without a usable value (empty, NaN, infinite,
            and for latencies zero or negative).
    """

    name: str
    rows: np.ndarray
    values: np.ndarray
    num_dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of architectures.

    Attributes:
        name: of the file, without suffixes.
        kind: which encoding of architectures applies.
        choices: what describes each architecture, by the same names in every row.
        devices: latency in ms, by device; a transformer has `<task>/<device>/<encoder|decoder|total>`.
        qualities: by the column's name.
        macs: multiply-accumulates of one inference; None where the table has none.
    """

    name: str
    kind: TableKind
    choices: tuple[Mapping[str, Choice], ...]
    devices: Mapping[str, Column]
    qualities: Mapping[str, Column]
    macs: np.ndarray | None


def load_table(
    path: Path,
    *,
    architecture: Sequence[str] | None = None,
    latencies: Sequence[str] | None = None,
    qualities: Sequence[str] | None = None,
) -> Table:
    """Reads a CSV file, compressed or not.

    Args:
        path: `.csv` or `.csv.gz`.
        architecture: columns that describe an architecture; None: those of the known kinds, or one
            called `arch`, `arch_str` or `architecture`.
        latencies: columns of latencies in ms; None: those that start with `lat_ms` or `latency_ms`.
        qualities: columns of quality; None: those with `acc`, `accuracy`, `quality` or `bleu` as a word.

    Raises:
        TableError: no such file, no such column, text among numbers, or too few values.
    """
    frame = _read(path)
    named = (*(architecture or ()), *(latencies or ()), *(qualities or ()))
    for column in named:
        if column not in frame.columns:
            raise TableError(f"{path}: no column {column!r}; there are: {', '.join(map(str, frame.columns))}")
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    if not named and set(frame.columns) >= table_kinds.TRANSFORMER_COLUMNS:
        return _transformers(name, path, frame)
    return _one_row_each(name, path, frame, architecture, latencies, qualities)


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except FileNotFoundError as error:
        raise TableError(f"{path}: no such file; give a .csv or .csv.gz file with a header line") from error
    except (
        OSError,
        EOFError,
        ValueError,
        zlib.error,
    ) as error:  # pandas' parser errors are ValueErrors, as are bad encodings
        raise TableError(
            f"{path}: not a readable CSV file ({' '.join(str(error).split())}); allowed: .csv or .csv.gz with a header"
        ) from error
    if frame.empty:
        raise TableError(f"{path}: the table has no rows; at least {MIN_VALUES} are needed")
    return frame


def _transformers(name: str, path: Path, frame: pd.DataFrame) -> Table:
    """Each row was measured on one device; encoder and decoder are phases of their own."""
    import numpy as np

    shapes = list(table_kinds.TRANSFORMER_SHAPES)
    numbers = {column: _numbers(path, frame, column, np.arange(len(frame))) for column in shapes}
    if any(not np.isfinite(values).all() for values in numbers.values()):
        broken = next(column for column, values in numbers.items() if not np.isfinite(values).all())
        line = int(np.flatnonzero(~np.isfinite(numbers[broken]))[0]) + 2
        raise TableError(f"{path}: line {line}: {broken} is empty; every shape needs a number")
    devices: dict[str, Column] = {}
    where = (frame["task"] + "/" + frame["device"]).to_numpy()
    for place in dict.fromkeys(where.tolist()):
        rows = np.flatnonzero(where == place)
        phases = {phase: _numbers(path, frame, f"latency_mean_{phase}", rows) for phase in ("encoder", "decoder")}
        phases["total"] = phases["encoder"] + phases["decoder"]
        for phase, values in phases.items():
            column = f"{place}/{phase}"
            devices[column] = _positive(path, column, rows, values)
    return Table(
        name=name, kind="transformer", devices=devices, qualities={}, macs=None,
        choices=tuple({column: float(numbers[column][row]) for column in shapes} for row in range(len(frame))),
    )  # fmt: skip


def _one_row_each(
    name: str,
    path: Path,
    frame: pd.DataFrame,
    architecture: Sequence[str] | None,
    latencies: Sequence[str] | None,
    qualities: Sequence[str] | None,
) -> Table:
    """Each row is an architecture with a column for each device."""
    import numpy as np

    architecture = _architecture_columns(path, frame, architecture)
    latencies = latencies or [column for column in frame.columns if column.startswith(LATENCY_PREFIXES)]
    if not latencies:
        raise TableError(
            f"{path}: no column of latencies; names must start with {' or '.join(LATENCY_PREFIXES)}"
            f" (or name them yourself), there are: {', '.join(frame.columns)}"
        )
    if qualities is None:
        qualities = [column for column in frame.columns if QUALITY_PATTERN.search(column) and column not in latencies]
    every_row = np.arange(len(frame))
    kind, choices = table_kinds.choices_of([frame[column].tolist() for column in architecture], list(architecture))
    devices = {
        _device_name(column): _positive(path, column, every_row, _numbers(path, frame, column, every_row))
        for column in latencies
    }
    scale = 0.01 if kind == "nasbench201" else 1.0  # NAS-Bench-201 gives percent
    found = {
        column: _finite(path, column, every_row, _numbers(path, frame, column, every_row) * scale)
        for column in qualities
    }
    macs_column = next((column for column in frame.columns if column.lower().startswith("macs")), None)
    macs = None if macs_column is None else _numbers(path, frame, macs_column, every_row)
    is_usable = macs is not None and bool(np.isfinite(macs).all()) and bool((macs > 0).all())
    return Table(
        name=name, kind=kind, choices=choices, devices=devices, qualities=found, macs=macs if is_usable else None
    )


def _architecture_columns(path: Path, frame: pd.DataFrame, named: Sequence[str] | None) -> Sequence[str]:
    if named:
        return named
    found = [column for column in frame.columns if column in ("arch_str", "arch", "architecture")][:1]
    if not found:
        raise TableError(
            f"{path}: no column of architectures; allowed names: arch_str, arch, architecture"
            f" (or name the columns that describe one), there are: {', '.join(frame.columns)}"
        )
    return found


def _device_name(column: str) -> str:
    """The device's name in a column's.

    >>> _device_name("lat_ms_pixel2"), _device_name("latency_ms")
    ('pixel2', 'latency_ms')
    """
    for prefix in LATENCY_PREFIXES:
        if column.startswith(f"{prefix}_"):
            return column.removeprefix(f"{prefix}_")
    return column


def _numbers(path: Path, frame: pd.DataFrame, column: str, rows: np.ndarray) -> np.ndarray:
    """The column as numbers, NaN where it is empty.

    Raises:
        TableError: no such column, or text in it.
    """
    import numpy as np
    import pandas as pd

    if column not in frame.columns:
        raise TableError(f"{path}: no column {column!r}; there are: {', '.join(frame.columns)}")
    texts = frame[column].iloc[rows].str.strip()
    values = pd.to_numeric(texts, errors="coerce").to_numpy(float)
    is_text = np.isnan(values) & ~texts.str.lower().isin(["", "nan", "na", "none", "null"]).to_numpy()
    if is_text.any():
        first = int(np.flatnonzero(is_text)[0])
        raise TableError(
            f"{path}: line {int(rows[first]) + 2}: {column} is {texts.iloc[first]!r}, which is no number"
            f" ({int(is_text.sum())} such values); allowed: numbers, or nothing where there is no value"
        )
    return values


def _positive(path: Path, name: str, rows: np.ndarray, values: np.ndarray) -> Column:
    """A column of latencies: zeros and negatives are no latencies."""
    import numpy as np

    return _kept(path, name, rows, values, np.isfinite(values) & (values > 0), "positive numbers of milliseconds")


def _finite(path: Path, name: str, rows: np.ndarray, values: np.ndarray) -> Column:
    import numpy as np

    return _kept(path, name, rows, values, np.isfinite(values), "numbers")


def _kept(path: Path, name: str, rows: np.ndarray, values: np.ndarray, is_good: np.ndarray, allowed: str) -> Column:
    num_dropped = int((~is_good).sum())
    if int(is_good.sum()) < MIN_VALUES:
        raise TableError(
            f"{path}: {name} has {int(is_good.sum())} usable values of {len(values)};"
            f" at least {MIN_VALUES} {allowed} are needed"
        )
    return Column(name=_device_name(name), rows=rows[is_good], values=values[is_good], num_dropped=num_dropped)
