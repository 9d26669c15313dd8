"""How each kind of table writes down an architecture, turned into named choices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

TRANSFORMER_SHAPES = (
    "encoder_embed_dim",
    "encoder_layer_num",
    "encoder_ffn_embed_dim_avg",
    "encoder_self_attention_heads_avg",
    "decoder_embed_dim",
    "decoder_layer_num",
    "decoder_ffn_embed_dim_avg",
    "decoder_self_attention_heads_avg",
    "decoder_ende_attention_heads_avg",
    "decoder_arbitrary_ende_attn_avg",
)
TRANSFORMER_COLUMNS = frozenset({"task", "device", "latency_mean_encoder", "latency_mean_decoder", *TRANSFORMER_SHAPES})
CELL_OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
CELL_EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""(from, to) of the six edges of a NAS-Bench-201 cell, in the order in which a cell string names them."""
_OPERATION = re.compile(r"(\w+)~(\d)")


def choices_of(
    columns: Sequence[Sequence[str]], names: Sequence[str]
) -> tuple[Literal["nasbench201", "generic"], tuple[Mapping[str, str | float], ...]]:
    """The choices of each architecture, from the columns that describe it.

    A single column of cell strings is NAS-Bench-201. A single column of other strings is split at
    punctuation; when every row has the same number of words, each position is a choice, else each
    word is counted. Numbers become numbers.
    """
    if len(columns) == 1:
        cells = [cell_operations(text) for text in columns[0]]
        if all(cell is not None for cell in cells):
            return "nasbench201", tuple(_named_edges(cell) for cell in cells if cell is not None)
        return "generic", _words(columns[0])
    rows = zip(*columns, strict=True)
    return "generic", tuple({name: _number(text) for name, text in zip(names, row, strict=True)} for row in rows)


def cell_operations(text: str) -> tuple[str, ...] | None:
    """The six operations of a NAS-Bench-201 cell, by `CELL_EDGES`; None when it is no such string.

    >>> cell_operations("|none~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|")[4]
    'skip_connect'
    """
    found = _OPERATION.findall(text)
    sources = [int(source) for _, source in found]
    is_cell = sources == [source for source, _ in CELL_EDGES] and text.count("+") == 2
    operations = tuple(operation for operation, _ in found)
    return operations if is_cell and set(operations) <= set(CELL_OPERATIONS) else None


def _named_edges(operations: tuple[str, ...]) -> Mapping[str, str | float]:
    return {f"edge_{a}_{b}": operation for (a, b), operation in zip(CELL_EDGES, operations, strict=True)}


def _words(texts: Sequence[str]) -> tuple[Mapping[str, str | float], ...]:
    words = [re.findall(r"[A-Za-z0-9_.]+", text) for text in texts]
    if len({len(row) for row in words}) == 1:
        return tuple({f"word_{at}": _number(word) for at, word in enumerate(row)} for row in words)
    vocabulary = sorted({word for row in words for word in row})
    return tuple({f"num_{word}": float(row.count(word)) for word in vocabulary} for row in words)


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text.strip()
