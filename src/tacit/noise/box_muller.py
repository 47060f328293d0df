"""Cells of Box-Muller normals: random bits that fix a normal to within a bound, and more bits where that is too wide.

N = sqrt(-2 ln U) cos(2 pi V) or sin(2 pi V), U and V uniform reals with infinitely many bits, of which 64 are drawn at
first. Both normals of a pair share them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.noise.stream import Size, Stream

INNER = 1 << 44
"""Words of U between this and 2^64 less this fix the radius to 2^-41: see `inside`."""


def box_muller(words: NDArray[np.uint64], angles: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Radius and angle of each pair, in float64 at the midpoint of its cell of U."""
    uniform = (words >> np.uint64(1)).view(np.int64).astype(np.float64) * 2.0**-63
    return np.sqrt(-2.0 * np.log(uniform + 2.0**-64)), angles.astype(np.float64) * (math.pi * 2.0**-63)


def inside(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether float64 knows the radius to 2^-41, its cell included, where log errs by less than 2^-43 of its value."""
    return (words > np.uint64(INNER)) & (words < np.uint64(2**64 - INNER))


NORMAL_ERROR = 2.0**-29
"""Bound on the error of a value of `near_gaussian`, in units of its standard deviation."""


def near_gaussian(stream: Stream, size: Size, *, std: float) -> NDArray[np.float64]:
    """Values in float64, each within `NORMAL_ERROR` * std of independent N(0, std^2) reals.

    For noise inside of a computation, whose error the release pays for. It must not be released itself, nor added to
    what is: `rounded_gaussian` is for that.

    Args:
        stream: source of the bits.
        size: shape of the values.
        std: >= 0.

    Example:
        >>> from tacit.noise import SeededStream
        >>> near_gaussian(SeededStream(0), (2, 3), std=1.0).shape
        (2, 3)
    """
    shape = size if isinstance(size, tuple) else (size,)
    count = math.prod(shape)
    pairs = (count + 1) // 2
    words, angles = stream.bits(pairs), stream.bits(pairs).view(np.int64)
    radius, turns = box_muller(words, angles)
    normals = np.stack([radius * np.cos(turns), radius * np.sin(turns)])
    if len(far := np.flatnonzero(~inside(words)).tolist()):
        refinement = stream.refinement()
        for pair in far:
            cell = Cell(int(words[pair]), int(angles[pair]))
            normals[:, pair] = by_extension(cell, refinement.of_value(pair))
    return (normals.reshape(-1)[:count] * check.real("std", std, low=0.0)).reshape(shape)


def by_extension(cell: Cell, stream: Stream) -> tuple[float, float]:
    """Both normals of a cell near an end of U, after more bits."""
    cell.extend(stream)
    while cell.radius >> 44 == 0:
        cell.extend(stream)
    context, radius, turn = interval(cell)
    cosine, sine = ((radius * part(turn)).mid for part in (context.cos, context.sin))
    return float(cosine), float(sine)


@dataclass
class Cell:
    """U in [radius, radius + 1) 2^-bits and V in [angle, angle + 1) 2^(1 - bits)."""

    radius: int
    angle: int
    bits: int = 64

    def extend(self, stream: Stream) -> None:
        """Draw 64 more bits of each."""
        more = stream.bits(2)
        self.radius = (self.radius << 64) | int(more[0])
        self.angle = (self.angle << 64) | int(more[1])
        self.bits += 64


def normals_of(cell: Cell) -> tuple[float, float]:
    """Both normals of a cell of 64 bits, as `box_muller` computes them."""
    radius = math.sqrt(-2.0 * math.log((cell.radius >> 1) * 2.0**-63 + 2.0**-64))
    turns = cell.angle * (math.pi * 2.0**-63)
    return radius * math.cos(turns), radius * math.sin(turns)


def interval(cell: Cell) -> tuple[Any, Any, Any]:
    """Interval arithmetic of enough precision for a cell, and the intervals of its radius and angle."""
    from mpmath.ctx_iv import MPIntervalContext  # Here, so that the accountant needs no mpmath.

    context: Any = MPIntervalContext()
    context.prec = 2 * cell.bits + 96
    unit = context.mpf(2) ** -cell.bits
    square = -2 * context.log(context.mpf([cell.radius, cell.radius + 1]) * unit)
    radius = context.sqrt(context.mpf([max(square.a, 0), square.b]))
    return context, radius, context.mpf([cell.angle, cell.angle + 1]) * unit * 2 * context.pi


def floor_of(end: Any) -> int:
    """The largest integer at most the end of an interval, exactly."""
    low, _ = end._mpi_
    sign, mantissa, exponent, _ = low
    number = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return math.floor(-number if sign else number)
