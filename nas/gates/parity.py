"""The parity gate: how far compiled outputs may be from the reference's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UNITS_IN_LAST_PLACE = 512
"""Rounding errors allowed, in units of the dtype's machine epsilon.

A reordered sum of n products differs by about sqrt(n) epsilon (Higham 2002, section 4.2, random
rounding), and a network adds up some fifty layers of n <= 4,600: sqrt(50 * 4600) is 480. Networks
of the vision space came out at 2 to 10."""


def parity_tolerance(outputs: tuple[NDArray[np.floating], ...]) -> float:
    """Largest absolute difference that rounding alone explains.

    `512 * eps(dtype) * max(|reference|)`: it scales with the outputs, and float16 gets its own.

    >>> round(parity_tolerance((np.ones(3, dtype=np.float32),)), 7)
    6.1e-05
    """
    scale = max(float(np.abs(output).max()) for output in outputs)
    epsilon = max(float(np.finfo(output.dtype).eps) for output in outputs)
    return UNITS_IN_LAST_PLACE * epsilon * scale
