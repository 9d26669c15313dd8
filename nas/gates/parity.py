"""The parity gate: how far compiled outputs may be from the reference's."""

from __future__ import annotations

FLOAT32_EPSILON = 2.0**-23
"""Distance from 1 to the next float32 (IEEE 754-2019, binary32)."""

ROUNDING_UNITS = 512
"""Rounding errors allowed, in units of the dtype's machine epsilon.

A reordered sum of n products differs by about sqrt(n) epsilon (Higham 2002, section 4.2, random
rounding), and a network adds up some fifty layers of n <= 4,600: sqrt(50 * 4600) is 480. Networks
of the vision space came out at 2 to 10."""

RELATIVE_TOLERANCE = ROUNDING_UNITS * FLOAT32_EPSILON
"""Difference allowed between an output and its reference, per unit of the largest output: 6.1e-5.

It is compared in the process that then times the code, before the first timed run
(`profilers.timing`): outputs that differ never get a latency."""
