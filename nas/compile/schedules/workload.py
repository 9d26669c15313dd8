"""Reads a kernel: which of its blocks reduces, what comes before and after it, how wide its vectors can be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm

_SPATIAL, _REDUCTION = 0, 2
"""Kinds of block variables (`tvm.tirx.IterVar`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registers:
    """The vector registers of a target.

    Attributes:
        lanes: 32-bit numbers in one.
        count: how many there are.
    """

    lanes: int
    count: int


def registers_of(target: tvm.target.Target) -> Registers:
    """AVX-512 has 32 registers of 16 lanes, AVX 16 of 8, SSE 16 of 4; 64-bit Arm and RISC-V count as 32 of 4.

    From the features, as `llvm_get_vector_width` of TVM 0.27 answers 512 bits for any x86.
    """
    from tvm.target import codegen

    triple = str(target.attrs.get("mtriple", "") or codegen.llvm_get_system_triple())
    if not triple.startswith(("x86", "i686", "amd64")):
        return Registers(lanes=4, count=32)
    if codegen.target_has_features("avx512f", target):
        return Registers(lanes=16, count=32)
    return Registers(lanes=8 if codegen.target_has_features("avx", target) else 4, count=16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """A block's loops, outermost first, by what they run over."""

    spatial: tuple[Any, ...]
    reduction: tuple[Any, ...]


def blocks_of(schedule: tvm.s_tir.Schedule) -> list[Any]:
    """The blocks of a kernel in order of execution."""
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def is_reduction(schedule: tvm.s_tir.Schedule, block: Any) -> bool:
    """Whether a block sums, or takes a maximum, over something."""
    return any(int(variable.iter_type) == _REDUCTION for variable in schedule.get(block).iter_vars)


def loops_of(schedule: tvm.s_tir.Schedule, block: Any) -> Loops:
    """The loops of a block that has one for each of its variables, as before any scheduling."""
    kinds = [int(variable.iter_type) for variable in schedule.get(block).iter_vars]
    pairs = list(zip(schedule.get_loops(block), kinds, strict=True))
    return Loops(
        spatial=tuple(loop for loop, kind in pairs if kind == _SPATIAL),
        reduction=tuple(loop for loop, kind in pairs if kind == _REDUCTION),
    )


def extent(schedule: tvm.s_tir.Schedule, loop: Any) -> int:
    """How often a loop runs."""
    return int(schedule.get(loop).extent)


def moves_with(expression: Any, variable: Any) -> bool:
    """Whether an index grows by one when the variable does.

    That is what vector loads and stores need of the innermost index.
    """
    from tvm import sym

    linear = sym.detect_linear_equation(expression, [variable])
    return len(linear) == 2 and str(linear[0]).removeprefix("T.int64(").removesuffix(")") == "1"


def divisors(number: int, maximum: int) -> list[int]:
    """The divisors up to `maximum`, ascending.

    >>> divisors(12, 5)
    [1, 2, 3, 4]
    """
    return [divisor for divisor in range(1, min(number, maximum) + 1) if number % divisor == 0]


def vector_length(size: int, lanes: int) -> int:
    """Into how long vectors a loop of `size` can be cut without rest: a power of two up to `lanes`,
    or the whole loop where it is short.

    >>> vector_length(48, 16), vector_length(24, 16), vector_length(10, 16)
    (16, 8, 10)
    """
    if size <= lanes:
        return size
    return math.gcd(size, lanes)


def vectorize(schedule: tvm.s_tir.Schedule, loop: Any, lanes: int) -> None:
    """Turns a loop into unrolled vector instructions."""
    size = extent(schedule, loop)
    length = vector_length(size, lanes)
    if length < size:
        outer, loop = schedule.split(loop, [None, length])
        schedule.unroll(outer)
    if length > 1:
        schedule.vectorize(loop)
