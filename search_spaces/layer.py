"""One layer of a network as what it costs, from shapes alone: MACs, parameters, bytes, kernel signature; no torch.

One layer is one kernel after compilation: what is folded into it or fused behind it (batch norm, activation,
residual addition) is part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]
"""Shape of one sample without the batch: (channels, height, width) for images."""

Signature = tuple[str | int, ...]
"""What makes a compiled kernel distinct: operator, sizes and fused epilogue."""

BYTES_PER_ELEMENT = 4
"""float32, the only precision that is compiled so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One kernel of a compiled network, for one sample.

    Attributes:
        name: path of the torch module that it stands for, for instance `blocks.2.expand`; products and
            softmax inside attention have no module of their own.
        kind: conv, depthwise_conv, linear, matmul, softmax or pool.
        num_macs: multiply-accumulates, padding included, as torch counts them.
        num_params: parameters as torch counts them, the affine pair of a folded batch norm included.
        input_bytes: activations read, a residual added in the epilogue included.
        output_bytes: activations written.
        weight_bytes: weights and biases read, after batch norm is folded.
        signature: equal for two layers exactly when one compiled kernel serves both.
    """

    name: str
    kind: str
    num_macs: int
    num_params: int
    input_bytes: int
    output_bytes: int
    weight_bytes: int
    signature: Signature


BlockLayers = tuple[tuple[Layer, ...], Shape]
"""The layers of one block, and the shape that leaves it."""


Route = tuple[Shape, range]
"""Blocks that run one after the other (the head counts as one after the last), and the shape that enters the first."""


def matrix_product(name: str, *, batch: int, rows: int, inner: int, columns: int) -> Layer:
    """A batch of products (rows, inner) x (inner, columns) of two activations.

    >>> matrix_product("scores", batch=2, rows=16, inner=32, columns=16).num_macs
    16384
    """
    return Layer(
        name=name,
        kind="matmul",
        num_macs=batch * rows * inner * columns,
        num_params=0,
        input_bytes=batch * inner * (rows + columns) * BYTES_PER_ELEMENT,
        output_bytes=batch * rows * columns * BYTES_PER_ELEMENT,
        weight_bytes=0,
        signature=("matmul", batch, rows, inner, columns),
    )
