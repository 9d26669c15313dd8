"""Writes names beside the points of a plot, each where it covers no marker and no other name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""

_MARKER_POINTS, _LETTER_POINTS, _LINE_POINTS = 5.0, 6.6, 11.0
"""Half a marker, the width of a letter and the height of a line at 10 points, in typographic points."""

_DIRECTIONS = ((-7, 8), (7, -9), (7, 9), (-7, -9), (-9, 0), (9, 0))
_OFFSETS = tuple((reach, dx * reach, dy * reach) for reach in (1, 2, 3, 4, 6) for dx, dy in _DIRECTIONS)
"""How far out, and places for a name around its point in typographic points, in the order in which they are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A name for the point at `x`, `y` in data coordinates."""

    text: str
    x: float
    y: float
    is_bold: bool = False


def choose_offset(
    point: tuple[float, float], text: str, taken: Sequence[Box], area: Box, scale: float, lines: Sequence[Box] = ()
) -> tuple[Box, tuple[int, int]]:
    """The first free place around a point, else the one that covers the fewest things; always within `area` if any is.

    Args:
        point, area: in pixels.
        taken: what must stay readable, markers and names, in pixels.
        lines: what a name may cross: thin lines do not hide it, and a step further out is as bad as one more of them.
        text: what is written; its width is estimated.
        scale: pixels a typographic point.

    Returns:
        The box that the name covers, and its offset from the point in typographic points.

    >>> choose_offset((50, 50), "1", [], (0, 0, 100, 100), 1.0)[1]
    (-7, 8)
    >>> choose_offset((50, 50), "1", [(30, 50, 49, 70)], (0, 0, 100, 100), 1.0)[1]
    (7, -9)
    >>> everywhere = [(0, 0, 100, 100)]
    >>> choose_offset((50, 50), "1", [(30, 50, 49, 70)], (0, 0, 100, 100), 1.0, lines=everywhere)[1]
    (7, -9)
    """
    width, height = (_LETTER_POINTS * len(text) + 2) * scale, _LINE_POINTS * scale
    x, y = point
    places = []
    for rank, (reach, dx, dy) in enumerate(_OFFSETS):
        left = x + dx * scale - (width if dx < 0 else 0)
        box = (left, y + dy * scale - height / 2, left + width, y + dy * scale + height / 2)
        is_outside = box[0] < area[0] or box[1] < area[1] or box[2] > area[2] or box[3] > area[3]
        covered, crossed = (sum(overlap(box, other) for other in others) for others in (taken, lines))
        places.append((is_outside, covered, crossed + reach, rank, box, (dx, dy)))
    *_, box, offset = min(places)
    return box, offset


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes share some area."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def draw_labels(
    axes: Axes,
    labels: Sequence[Label],
    markers: Sequence[tuple[float, float]],
    bars: Sequence[tuple[float, float, float]],
    colour: str,
) -> None:
    """Draws the labels, the first ones with the best choice of places.

    The layout of the figure must be final: places are found in pixels.

    Args:
        markers: (x, y) of every marker that must stay visible, in data coordinates.
        bars: (x, lower, upper) of vertical intervals to keep clear of where possible.
    """
    from matplotlib.patheffects import withStroke

    figure = axes.get_figure(root=True)
    assert figure is not None
    scale = figure.dpi / 72
    half = _MARKER_POINTS * scale
    taken: list[Box] = []
    for x, y in markers:
        left, bottom = axes.transData.transform((x, y))
        taken.append((left - half, bottom - half, left + half, bottom + half))
    lines: list[Box] = []
    for x, lower, upper in bars:
        (left, bottom), (_, top) = axes.transData.transform([(x, lower), (x, upper)])
        lines.append((left - scale, bottom, left + scale, top))
    area = (axes.bbox.x0, axes.bbox.y0, axes.bbox.x1, axes.bbox.y1)
    for label in labels:
        at = axes.transData.transform((label.x, label.y))
        box, (dx, dy) = choose_offset((float(at[0]), float(at[1])), label.text, taken, area, scale, lines)
        taken.append(box)
        is_near = (dx, dy) in _DIRECTIONS
        axes.annotate(
            label.text, (label.x, label.y), xytext=(dx, dy), textcoords="offset points", size=10,
            ha="right" if dx < 0 else "left", va="center", color=colour, zorder=6,
            weight="bold" if label.is_bold else "normal",
            parse_math=False, path_effects=[withStroke(linewidth=2.5, foreground="white")],
            arrowprops=None if is_near else {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkB": 4},
        )  # fmt: skip
