"""The replay of latency tables, on tables whose laws are known."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from nas.bench.predictors import Replay, replay, save_plot
from nas.bench.table_encoding import encode
from nas.bench.table_kinds import CELL_EDGES, CELL_OPERATIONS, TRANSFORMER_SHAPES
from nas.bench.tables import Column, Table, TableError

COSTS = {"none": 0.0, "skip_connect": 0.1, "nor_conv_1x1": 0.8, "nor_conv_3x3": 3.0, "avg_pool_3x3": 0.6}


def cells_table(num: int = 400, *, drops_unneeded: bool = False) -> Table:
    """Random cells on a device with additive latencies, which may not run what the output does not need."""
    generator = np.random.default_rng(0)
    names = [f"edge_{a}_{b}" for a, b in CELL_EDGES]
    choices = [dict(zip(names, generator.choice(CELL_OPERATIONS, 6).tolist(), strict=True)) for _ in range(num)]
    clean = np.array([2 + sum(COSTS[choice[name]] for name in names) for choice in choices])
    if drops_unneeded:
        clean = np.array([2 + needed_cost(choice) for choice in choices])
    noisy = clean * np.exp(0.02 * generator.normal(size=num))
    column = Column(name="phone", rows=np.arange(num), values=noisy, num_dropped=3)
    return Table(
        name="t", kind="nasbench201", choices=tuple(choices), devices={"phone": column}, qualities={}, macs=None
    )


def needed_cost(choice: dict[str, str]) -> float:
    """By walking paths backwards from the output; slow and obvious."""

    def leads(node: int, end: int) -> bool:
        return node == end or any(
            choice[f"edge_{a}_{b}"] != "none" and leads(b, end) for a, b in CELL_EDGES if a == node
        )

    if not leads(0, 3):
        return 0.0
    return sum(COSTS[choice[f"edge_{a}_{b}"]] for a, b in CELL_EDGES if leads(b, 3))


def test_figures_are_given_for_every_size_device_and_predictor() -> None:
    result = replay(cells_table(), Replay(num_samples=(10, 20), num_seeds=2))
    assert {(row["num_samples"], row["predictor"]) for row in result.rows} == set(
        itertools.product((10, 20), ("model", "macs", "counts"))
    )
    by_device, by_predictor = result.figures["by_device"], result.figures["by_predictor"]
    assert isinstance(by_device, dict)
    assert isinstance(by_predictor, dict)
    assert by_device["phone"]["spearman_n20"] == result.figures["spearman_n20"]
    assert by_predictor["model"] == {key: result.figures[key] for key in by_predictor["model"]}
    assert result.figures["dropped_values"] == {"phone": 3.0}


@pytest.mark.parametrize("drops_unneeded", [False, True])
def test_the_model_learns_how_a_device_runs_cells(drops_unneeded: bool) -> None:
    result = replay(cells_table(drops_unneeded=drops_unneeded), Replay(num_samples=(20,), num_seeds=3))
    within = result.figures["within10_n20"]
    by_predictor = result.figures["by_predictor"]
    assert isinstance(within, float)
    assert isinstance(by_predictor, dict)
    assert within > 0.9
    if drops_unneeded:
        assert within > by_predictor["counts"]["within10_n20"] + 0.2


def test_rows_of_the_fit_are_never_tested_on() -> None:
    table = cells_table(60)
    column = table.devices["phone"]
    generator = np.random.default_rng([20, 0])
    fit = generator.permutation(60)[:20]
    values = column.values.copy()
    values[np.setdiff1d(np.arange(60), fit)] *= 100.0  # were a fitted row tested, some error would be small
    broken = dataclasses.replace(table, devices={"phone": dataclasses.replace(column, values=values)})
    (row,) = [r for r in replay(broken, Replay(num_samples=(20,), num_seeds=1)).rows if r["predictor"] == "model"]
    assert row["within10"] == 0.0


def test_informative_samples_and_transfer_are_told_apart_from_plain_ones() -> None:
    table = cells_table()
    other = dataclasses.replace(table.devices["phone"], name="board", values=table.devices["phone"].values * 9)
    table = dataclasses.replace(table, devices={**table.devices, "board": other})
    what = Replay(devices=("phone",), num_samples=(10,), num_seeds=2, selection="informative", transfer_from="board")
    result = replay(table, what)
    assert {row["predictor"] for row in result.rows} == {"model", "macs", "counts", "transfer"}


def test_transformers_are_replayed_on_their_whole_latency() -> None:
    generator = np.random.default_rng(0)
    num = 200
    choices = tuple({name: float(generator.integers(1, 7)) for name in TRANSFORMER_SHAPES} for _ in range(num))
    layers = np.array([choice["decoder_layer_num"] for choice in choices])
    columns = {
        f"wmt/pi/{phase}": Column(name=phase, rows=np.arange(num), values=values, num_dropped=0)
        for phase, values in (("encoder", np.full(num, 5.0)), ("total", 10 + 20 * layers))
    }
    table = Table(name="t", kind="transformer", choices=choices, devices=columns, qualities={}, macs=None)
    result = replay(table, Replay(num_samples=(20,), num_seeds=2))
    assert {row["device"] for row in result.rows} == {"wmt/pi/total"}
    within = result.figures["within10_n20"]
    assert isinstance(within, float)
    assert within > 0.8


def test_a_table_of_anything_is_replayed() -> None:
    generator = np.random.default_rng(0)
    choices = tuple(
        {"width": float(generator.integers(1, 9)), "kind": str(generator.choice(["a", "b"]))} for _ in range(90)
    )
    values = np.array([1 + float(choice["width"]) + 2 * (choice["kind"] == "b") for choice in choices])
    column = Column(name="d", rows=np.arange(90), values=values, num_dropped=0)
    table = Table(name="t", kind="generic", choices=choices, devices={"d": column}, qualities={}, macs=None)
    spearman = replay(table, Replay(num_samples=(20,), num_seeds=2)).figures["spearman_n20"]
    assert isinstance(spearman, float)
    assert spearman > 0.95


def test_encodings_keep_the_order_and_number_of_architectures() -> None:
    table = cells_table(50)
    encoded = encode(table)
    assert len(encoded) == 50
    assert np.allclose(encoded.variants[0].values.mean(0), 1.0)
    assert encoded.counts[7].sum() == sum(choice != "none" for choice in table.choices[7].values())


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (Replay(devices=("tablet",)), "no device 'tablet'; there are: phone"),
        (Replay(num_samples=(5,)), "5 samples; allowed: 8 to 392"),
        (Replay(num_samples=(400,)), "400 samples; allowed: 8 to 392"),
    ],
)
def test_a_replay_that_cannot_be_is_refused(what: Replay, message: str) -> None:
    with pytest.raises(TableError, match=message):
        replay(cells_table(), what)


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    result = replay(cells_table(60), Replay(num_samples=(10, 20), num_seeds=1))
    save_plot(result, tmp_path / "deep" / "p.png")
    assert (tmp_path / "deep" / "p.png").read_bytes().startswith(b"\x89PNG")
