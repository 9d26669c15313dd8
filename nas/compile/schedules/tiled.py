"""Reductions along vectors: convolutions (full, pointwise, depthwise), matrix products, pooling, means over the map.

A tile of outputs, a few rows and columns of the map by a few vectors of channels, is summed in
registers over the whole reduction and written once, with what is fused behind it applied on the
way: the micro-kernel of a matrix library (Goto and van de Geijn 2008, "Anatomy of
High-Performance Matrix Multiplication"), where weights are prepacked so that they are read in order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nas.compile.schedules.workload import (
    Registers,
    blocks_of,
    divisors,
    extent,
    is_reduction,
    loops_of,
    moves_with,
    vectorize,
)

if TYPE_CHECKING:
    import tvm

Padding = Literal["inline", "separate"]
Order = Literal["channels", "map"]

MAX_UNROLLED_REDUCTION = 27
"""Steps that are written out: a 5x5 depthwise window, a 3x3 one over three colours. Beyond, code outgrows its use."""
MAX_TILE_SIDE = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One way to schedule such a kernel.

    Attributes:
        rows, columns: of the map that are summed at once.
        channels: of the innermost axis that are summed at once.
        padding: read the map's border through a condition, or copy the padded map first.
        order: which loop over tiles is outermost, the one over channels or those over the map.
        unroll: write out the loops over the window.
    """

    rows: int
    columns: int
    channels: int
    padding: Padding
    order: Order
    unroll: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    rows: int
    columns: int
    channels: int
    window: int
    depth: int
    is_padded: bool


def fits(schedule: tvm.s_tir.Schedule) -> bool:
    """One reduction whose innermost output axis is also innermost where it reads; only element-wise around it."""
    blocks = blocks_of(schedule)
    reductions = [block for block in blocks if is_reduction(schedule, block)]
    if len(reductions) != 1 or len(schedule.mod["main"].params) < 2:
        return False
    block = schedule.get(reductions[0])
    if len(block.writes) != 1:
        return False
    loops = loops_of(schedule, reductions[0])
    variables = [variable.var for variable in block.iter_vars[: len(loops.spatial)]]
    if not loops.spatial or any(int(v.iter_type) != 0 for v in block.iter_vars[: len(loops.spatial)]):
        return False
    last_indices = [region.region[-1].min for region in block.reads]
    is_along = [moves_with(index, variables[-1]) for index in last_indices]
    return moves_with(block.writes[0].region[-1].min, variables[-1]) and any(is_along)


def tiles(schedule: tvm.s_tir.Schedule, registers: Registers) -> list[Tile]:
    """The tiles worth trying, the most promising first."""
    shape = _shape(schedule)
    found = {}
    for tile in _all_tiles(shape, registers):
        found[tile] = _cost(tile, shape, registers)
    return sorted(found, key=lambda tile: (found[tile], tile.channels, tile.rows, tile.columns))


def apply(schedule: tvm.s_tir.Schedule, tile: Tile, registers: Registers, num_cores: int) -> None:
    """Schedules the kernel in place.

    Raises:
        tvm.s_tir.schedule.ScheduleError: what is fused around the reduction does not allow it.
    """
    blocks = blocks_of(schedule)
    position = next(index for index, block in enumerate(blocks) if is_reduction(schedule, block))
    anchor = blocks[position]
    padding = _inline_before(schedule, blocks[:position])
    after = blocks[position + 1 :]
    for block in after[:-1]:
        schedule.compute_inline(block)
    output = after[-1] if after else schedule.cache_write(anchor, 0, "local")
    outer, reduction, inner = _split(schedule, anchor, tile)
    schedule.reorder(*outer, *reduction, *inner)
    if after:
        schedule.set_scope(anchor, 0, "local")
    schedule.reverse_compute_at(output, outer[-1])
    _vectorize_innermost(schedule, schedule.get_loops(output)[len(outer) :], registers.lanes)
    _vectorize_innermost(schedule, inner, registers.lanes)
    if tile.unroll:
        for loop in reduction:
            schedule.unroll(loop)
    if padding is not None:
        if tile.padding == "inline":
            schedule.compute_inline(padding)
        else:
            _copy_padded(schedule, padding, registers.lanes)
    if num_cores > 1:
        schedule.parallel(schedule.fuse(*outer))
    schedule.decompose_reduction(anchor, reduction[0])


def _shape(schedule: tvm.s_tir.Schedule) -> _Shape:
    blocks = blocks_of(schedule)
    anchor = next(block for block in blocks if is_reduction(schedule, block))
    loops = loops_of(schedule, anchor)
    spatial = [extent(schedule, loop) for loop in loops.spatial]
    reduction = [extent(schedule, loop) for loop in loops.reduction]
    return _Shape(
        rows=spatial[-3] if len(spatial) > 3 else 1,
        columns=spatial[-2] if len(spatial) > 1 else 1,
        channels=spatial[-1],
        window=math.prod(reduction[:-1]),
        depth=reduction[-1],
        is_padded=any(_is_conditional(schedule, block) for block in blocks),
    )


def _all_tiles(shape: _Shape, registers: Registers) -> Iterator[Tile]:
    lanes = registers.lanes
    channels = [count for count in divisors(shape.channels, 8 * lanes) if count % lanes == 0]
    if not channels:  # a number of classes, say: the longest vectors there are
        channels = divisors(shape.channels, 4 * lanes)[-2:]
    paddings: tuple[Padding, ...] = ("inline", "separate") if shape.is_padded else ("inline",)
    unrolls = (True, False) if 1 < shape.window * shape.depth <= MAX_UNROLLED_REDUCTION else (False,)
    orders: tuple[Order, ...] = ("channels", "map")
    sides = divisors(shape.rows, MAX_TILE_SIDE), divisors(shape.columns, MAX_TILE_SIDE)
    for rows, columns, width, padding, order, unroll in itertools.product(*sides, channels, paddings, orders, unrolls):
        vectors = -(-width // lanes)
        if rows * columns * vectors + (vectors if vectors > 1 else 1) + 1 <= registers.count:
            yield Tile(rows=rows, columns=columns, channels=width, padding=padding, order=order, unroll=unroll)


def _cost(tile: Tile, shape: _Shape, registers: Registers) -> float:
    """Rough cycles for each output: arithmetic, loads and latency of one step, then the traffic of weights.

    Two loads and one or two fused multiply-adds a cycle, each of which takes 4 cycles: the figures
    of most vector units of the last ten years. Only the order of tiles depends on it.
    """
    points, vectors = tile.rows * tile.columns, -(-tile.channels // registers.lanes)
    sums = points * vectors
    step = max(sums, (points + vectors) / 2, 4.0)
    waste = vectors * registers.lanes / tile.channels
    cost = step * waste / sums
    num_steps = shape.window * shape.depth
    cost += 4.0 / num_steps  # beginning and ending a tile
    panel_bytes = 4 * num_steps * tile.channels
    if panel_bytes > 16_384:  # does not stay in the first-level cache from one tile to the next
        cost += 0.5 / points
    if tile.padding == "separate":
        cost += 0.05
    if tile.order == "map":
        cost += 0.01
    if tile.unroll:
        cost -= 0.01
    return cost


def _inline_before(schedule: tvm.s_tir.Schedule, blocks: list[Any]) -> Any | None:
    """Inlines plain copies; the block that pads, if there is one, is the caller's to place."""
    padding = None
    for block in blocks:
        if _is_conditional(schedule, block):
            padding = block
        else:
            schedule.compute_inline(block)
    return padding


def _is_conditional(schedule: tvm.s_tir.Schedule, block: Any) -> bool:
    return not is_reduction(schedule, block) and "if_then_else" in str(schedule.get(block).body)


def _split(schedule: tvm.s_tir.Schedule, anchor: Any, tile: Tile) -> tuple[list[Any], list[Any], list[Any]]:
    """Loops over tiles, over the reduction, and within a tile."""
    loops = loops_of(schedule, anchor)
    *others, channels = loops.spatial
    over_channels, in_channels = schedule.split(channels, [None, tile.channels])
    sizes = [tile.rows, tile.columns] if len(others) > 2 else [tile.columns]
    mapped = others[-len(sizes) :] if others else []
    others = others[: len(others) - len(mapped)]
    over_map, in_map = [], []
    for loop, size in zip(mapped, sizes[-len(mapped) :], strict=True) if mapped else ():
        over, within = schedule.split(loop, [None, size])
        over_map.append(over)
        in_map.append(within)
    over_tiles = [over_channels, *over_map] if tile.order == "channels" else [*over_map, over_channels]
    return [*others, *over_tiles], list(loops.reduction), [*in_map, in_channels]


def _vectorize_innermost(schedule: tvm.s_tir.Schedule, loops: list[Any], lanes: int) -> None:
    for loop in loops[:-1]:
        schedule.unroll(loop)
    vectorize(schedule, loops[-1], lanes)


def _copy_padded(schedule: tvm.s_tir.Schedule, padding: Any, lanes: int) -> None:
    loop = schedule.get_loops(padding)[-1]
    size = extent(schedule, loop)
    length = max(count for count in divisors(size, 4 * lanes))
    if length < size:
        _, loop = schedule.split(loop, [None, length])
    if length > 1:
        schedule.vectorize(loop)
