"""Architectures of public tables as terms of a latency: cells, transformers, and anything with choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nas.bench.table_kinds import CELL_EDGES, CELL_OPERATIONS
from profilers.cost_model.terms import Encoded, Term, TermKind, Variant

if TYPE_CHECKING:
    from nas.bench.tables import Table

CONV_1X1, CONV_3X3, POOL = (CELL_OPERATIONS.index(name) for name in ("nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"))
_CELL_TERMS = (
    ("network without cells", "constant", 0.3, 0.3),
    *((name, "detail", 0.0, 0.1) for name in CELL_OPERATIONS[1:]),
    ("operations", "cost", 0.3, 0.3),
    ("calls", "cost", 0.2, 0.3),
    ("bytes", "cost", 0.2, 0.3),
)
_CELL_MACS, _CELL_CALLS, _CELL_BYTES = (np.array(each, float) for each in ([0, 1, 9, 0], [0, 1, 1, 1], [1, 2, 2, 2]))
"""Of a skip, a 1x1, a 3x3 convolution and a pooling, relative to each other; all have the same widths."""
_TRANSFORMER_TERMS = (
    ("network without layers", "constant", 0.1, 0.1),
    ("decoder layers", "cost", 0.4, 0.4),
    ("decoder feed-forward", "cost", 0.1, 0.1),
    ("decoder attention", "cost", 0.1, 0.1),
    ("output projection", "cost", 0.1, 0.1),
    ("attended encoder layers", "cost", 0.05, 0.05),
    ("encoder width", "cost", 0.05, 0.05),
    ("encoder feed-forward", "cost", 0.05, 0.05),
)


def encode(table: Table) -> Encoded:
    """The architectures of a table, in its order."""
    if table.kind == "nasbench201":
        return encode_cells(table.choices, table.macs)
    if table.kind == "transformer":
        return encode_transformers(table.choices)
    return encode_choices(table.choices, table.macs)


def encode_cells(choices: Sequence[Mapping[str, str | float]], macs: np.ndarray | None) -> Encoded:
    """NAS-Bench-201 cells, run in two ways: every operation, or only those that the output needs.

    An eager framework runs all operations of a cell. A compiler drops those whose output nobody
    reads; when no path joins input and output, the whole network is a constant and nothing runs.
    (The 284 "impossible" latencies that the Raspberry Pi column of HELP's table holds are such networks.)
    """
    index = {name: at for at, name in enumerate(CELL_OPERATIONS)}
    operations = np.array([[index[str(choice[f"edge_{a}_{b}"])] for a, b in CELL_EDGES] for choice in choices])
    needed = _needed_edges(operations)
    everything = np.stack([(operations == kind).sum(1) for kind in range(1, 5)], 1).astype(float)
    only_needed = np.stack([((operations == kind) & needed).sum(1) for kind in range(1, 5)], 1).astype(float)
    if macs is None:
        macs = 1 + everything @ _CELL_MACS
    return Encoded(
        encoding="nasbench201-v1",
        variants=(_cell_variant("all operations run", everything), _cell_variant("needed operations run", only_needed)),
        macs=macs / macs.mean(),
        counts=everything,
    )


def _needed_edges(operations: np.ndarray) -> np.ndarray:
    """(num_cells, 6): the edge leads to the output, and some path joins input and output."""
    is_there = operations != 0
    edge = {pair: at for at, pair in enumerate(CELL_EDGES)}
    reached = {0: np.ones(len(operations), bool)}
    for node in (1, 2, 3):
        reached[node] = np.any([is_there[:, edge[a, node]] & reached[a] for a in range(node)], axis=0)
    wanted = {3: np.ones(len(operations), bool)}
    for node in (2, 1, 0):
        wanted[node] = np.any([is_there[:, edge[node, b]] & wanted[b] for b in range(node + 1, 4)], axis=0)
    needed = np.stack([is_there[:, at] & wanted[b] for at, (_, b) in enumerate(CELL_EDGES)], 1)
    result: np.ndarray = needed & reached[3][:, None]
    return result


def _cell_variant(name: str, counts: np.ndarray) -> Variant:
    totals = [counts @ _CELL_MACS, counts @ _CELL_CALLS, counts @ _CELL_BYTES]
    return _variant(name, _CELL_TERMS, np.column_stack([np.ones(len(counts)), counts, *totals]))


def encode_transformers(choices: Sequence[Mapping[str, str | float]]) -> Encoded:
    """Encoder-decoder transformers: layers and products of widths; the decoder runs once a token."""

    def of(name: str) -> np.ndarray:
        return np.array([float(choice[name]) for choice in choices])

    layers, width = of("decoder_layer_num"), of("decoder_embed_dim")
    feed_forward = layers * width * of("decoder_ffn_embed_dim_avg")
    attention = layers * width
    encoder_width = of("encoder_embed_dim")
    encoder = encoder_width * of("encoder_ffn_embed_dim_avg")
    attended = layers * of("decoder_arbitrary_ende_attn_avg")
    columns = [np.ones(len(layers)), layers, feed_forward, attention, width, attended, encoder_width, encoder]
    shapes = np.array([[float(value) for value in choice.values()] for choice in choices])
    macs = 2 * feed_forward + 4 * layers * width**2 + 6 * (2 * encoder + 4 * encoder_width**2)
    return Encoded(
        encoding="transformer-v1",
        variants=(_variant("all layers run", _TRANSFORMER_TERMS, np.column_stack(columns)),),
        macs=macs / macs.mean(),
        counts=np.column_stack([shapes, feed_forward, attention, encoder]),
    )


def encode_choices(choices: Sequence[Mapping[str, str | float]], macs: np.ndarray | None) -> Encoded:
    """Anything else: numbers as they are, a column for each option of a category."""
    columns, names = [], []
    for name in choices[0]:
        seen = [choice[name] for choice in choices]
        if all(isinstance(value, float) for value in seen):
            numbers = np.array(seen, float)
            columns.append(numbers - min(0.0, numbers.min()))
            names.append(name)
            continue
        for option in sorted({str(value) for value in seen})[1:]:
            columns.append(np.array([str(value) == option for value in seen], float))
            names.append(f"{name}={option}")
    has_macs = macs is not None
    macs = np.ones(len(choices)) if macs is None else macs
    totals: list[tuple[str, TermKind, float, float]] = [("operations", "cost", 0.4, 0.4)] if has_macs else []
    details: list[tuple[str, TermKind, float, float]] = [(name, "detail", 0.0, 0.2) for name in names]
    values = np.column_stack([np.ones(len(choices)), *([macs] if has_macs else []), *columns])
    terms = (("rest of the network", "constant", 0.6 if has_macs else 1.0, 0.5), *totals, *details)
    return Encoded(
        encoding=f"choices-v1: {', '.join(names)}",
        variants=(_variant("sum of choices", terms, values),),
        macs=macs / macs.mean(),
        counts=np.column_stack(columns),
    )


def _variant(name: str, terms: Sequence[tuple[str, str, float, float]], values: np.ndarray) -> Variant:
    """Values are divided by their mean: 1 is what a typical architecture of the table has."""
    kinds: dict[str, TermKind] = {"constant": "constant", "cost": "cost", "detail": "detail"}
    typical = values.mean(0)
    return Variant(
        name=name,
        terms=tuple(
            Term(name=term, kind=kinds[kind], share=share, spread=spread) for term, kind, share, spread in terms
        ),
        values=values / np.where(typical > 0, typical, 1.0),
    )
