"""The rounded radial mechanism: g RN((S + b) / g), exactly, with b of density proportional to e^(-rate ||b||_2).

The released value is a function of S + b, so it is post-processing of the ideal mechanism, whose density at one point
changes by at most e^(rate ||S - S'||): pure epsilon-DP with epsilon = rate times the L2 sensitivity of S.

With M and N independent standard normals in R^(d + 1) and R^d,

    b = (||M|| / rate) N

has that density: its direction is uniform, and ||M|| ||N|| is Gamma(d), because twice the root of the product of
independent Gamma(a) and Gamma(a + 1/2) values is Gamma(2 a) (Legendre's duplication formula for moments); a = d / 2.
The grid g follows d and `rate` alone, never M, which must stay secret.

M and N are cells of Box-Muller normals, known to a bound; an answer is accepted in double precision where every point
of the cells and every rounding error leads to the same integer, and by interval arithmetic and more bits elsewhere.

Source: interval refining, Haney et al. 2022 (arXiv:2207.13793); the density, Chaudhuri, Monteleoni & Sarwate 2011,
Section 3.2.

Cells of Box-Muller normals: random bits that fix a normal to within a bound, and more bits where that is too wide.

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
from tacit.errors import InvalidInput
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


# sqrt(d + 1) / rate, the deviation of a coordinate, over g is in [2^4, 2^5): rounding adds 3.3e-4 to the variance.
_FINEST = 4
# A normal of a cell errs by at most 2^-40 in double precision where log, sin and cos err by less than 2^-43: 2^10 of
# room. On the grid ||M|| / (rate g) is at most _LARGEST, N at most 2^4, and their errors add up to less than 2^-30.
_MARGIN = 2.0**-26
_LARGEST = 2.0**7
# An event of probability below 2^-128, which guessing half of a key of the stream would have, is left out of account.
_TAIL = 128 * math.log(2)
_RADIAL_ERROR = 2.0**-37


def rounded_radial(values: NDArray[np.float64], stream: Stream, *, rate: float) -> NDArray[np.float64]:
    """G RN((values + b) / g) for b of density proportional to e^(-rate ||b||): what may be released of `values`.

    g = 2^(floor(log2(sqrt(d + 1) / rate)) - 4) for d values.

    Args:
        values: float64, any shape, finite, at least one.
        stream: source of the bits, and of those that refine a decision.
        rate: in [2^-100, 2^100]: epsilon over the L2 sensitivity of `values` as they were computed.

    Raises:
        InvalidInput: values are not finite, there are none, or `rate` is out of range.

    Example:
        >>> from tacit.noise import SeededStream
        >>> released = rounded_radial(np.zeros(4), SeededStream(0), rate=1.0)
        >>> bool((released * 8 % 1 == 0).all())
        True
    """
    check.real("rate", rate, low=2.0**-100, high=2.0**100)
    flat = np.ascontiguousarray(values, dtype=np.float64).reshape(-1)
    if not flat.size or not np.isfinite(flat).all():
        raise InvalidInput("values must be finite, at least one; got none, NaN or infinity.")
    grid = radial_grid(flat.size, rate)
    draw = _Radial(flat.size, stream)
    centres = flat / grid
    whole = np.rint(centres)
    rests = centres - whole
    scale = draw.length / (rate * grid)
    noisy = rests + scale * draw.normals
    nearest = np.rint(noisy)
    sure = (np.abs(noisy - nearest) < 0.5 - _MARGIN) & (scale < _LARGEST)
    for at in np.flatnonzero(~sure):
        nearest[at] = draw.refined(int(at), Fraction(float(rests[at])), Fraction(rate) * Fraction(grid))
    return ((whole + nearest) * grid + 0.0).reshape(np.shape(values))  # zero has one sign, whatever the centre's


def radial_grid(dimension: int, rate: float) -> float:
    """The grid g of `rounded_radial`, a power of two.

    Example:
        >>> radial_grid(3, 1.0)
        0.125
    """
    return math.ldexp(1.0, math.frexp(math.sqrt(dimension + 1.0) / rate)[1] - 1 - _FINEST)


def near_radial(stream: Stream, size: Size, *, rate: float) -> NDArray[np.float64]:
    """Values in float64 whose L2 distance to a b of density proportional to e^(-rate ||b||) is below `radial_error`.

    For noise inside of a computation, whose error the release pays for; see `rounded_radial` for what is released.

    Args:
        stream: source of the bits.
        size: shape of the values.
        rate: > 0.

    Example:
        >>> from tacit.noise import SeededStream
        >>> near_radial(SeededStream(0), (2, 3), rate=1.0).shape
        (2, 3)
    """
    shape = size if isinstance(size, tuple) else (size,)
    draw = _Radial(math.prod(shape), stream)
    return (draw.normals * (draw.length / check.positive("rate", rate))).reshape(shape)


def longest_radial(dimension: int, rate: float) -> float:
    """The norm that radial noise exceeds with probability below 2^-128: (d + sqrt(2 d t) + t) / rate, t = 128 log 2.

    Source: Boucheron, Lugosi & Massart 2013, Section 2.4, for Gamma(d).

    Example:
        >>> round(longest_radial(1, 1.0))
        103
    """
    return (dimension + math.sqrt(2 * dimension * _TAIL) + _TAIL) / rate


def radial_error(dimension: int, rate: float) -> float:
    """Bound on the L2 error of `near_radial`, left out of account what `longest_radial` leaves out.

    Each normal errs by at most 2^-40, so ||M|| N by at most 2^-40 (||M|| sqrt(d) + ||N|| sqrt(d + 1)) and a few units
    more; ||M|| and ||N|| are below sqrt(d + 1) + sqrt(2 t).

    Example:
        >>> radial_error(100, 1.0) < 1e-8
        True
    """
    return _RADIAL_ERROR * longest_radial(dimension + 1, rate)


class _Radial:
    """Cells of M in R^(d + 1) and N in R^d, shared by all values of one draw.

    ||M||^2 is a sum of -2 log U over pairs, and one squared normal where d + 1 is odd.

    Attributes:
        length: ||M||, to 2^-40 sqrt(d + 1).
        normals: N, each value to 2^-40, shape (d,).
    """

    def __init__(self, dimension: int, stream: Stream):
        self._dimension = dimension
        self._split = (dimension + 2) // 2  # pairs of M; those of N follow
        pairs = self._split + (dimension + 1) // 2
        self._words, self._angles = stream.bits(pairs), stream.bits(pairs).view(np.int64)
        self._stream = stream.refinement().of_value(0)
        self._refined: dict[int, Cell] = {}
        radius, turns = box_muller(self._words, self._angles)
        both = np.stack([radius * np.cos(turns), radius * np.sin(turns)])
        for pair in np.flatnonzero(~inside(self._words)):
            both[:, pair] = by_extension(self._cell(int(pair)), self._stream)
        self.length = float(np.linalg.norm(both[:, : self._split].reshape(-1)[: dimension + 1]))
        self.normals = both[:, self._split :].reshape(-1)[:dimension]
        self._shared: tuple[Any, Any] | None = None

    def refined(self, at: int, rest: Fraction, unit: Fraction) -> int:
        """RN(rest + ||M|| N_at / unit) by interval arithmetic; ends with probability one."""
        pairs = (self._dimension + 1) // 2
        cell = self._cell(self._split + at % pairs)
        while True:
            low, high = self._ends(cell, at >= pairs, rest, unit)
            if low == high:
                return low
            self._extend(cell)

    def _ends(self, cell: Cell, sine: bool, rest: Fraction, unit: Fraction) -> tuple[int, int]:
        if any(self._cell(pair).radius == 0 for pair in range(self._split)) or cell.radius == 0:
            return 0, 1  # log 0 is unbounded: more bits are needed
        context, radius, turn = interval(cell)
        normal = radius * (context.sin(turn) if sine else context.cos(turn))
        low, high = self._length_ends()
        length = context.mpf([low, high]) * unit.denominator / unit.numerator
        value = context.mpf(rest.numerator) / rest.denominator + length * normal + context.mpf(0.5)
        return floor_of(value.a), floor_of(value.b)

    def _length_ends(self) -> tuple[Any, Any]:
        """The ends of the interval of ||M||, kept until its cells are extended."""
        if self._shared is None:
            context, total = None, 0
            for pair in range(self._split):
                context, radius, turn = interval(self._cell(pair))
                last = self._dimension % 2 == 0 and pair == self._split - 1
                part = radius * context.cos(turn) if last else radius
                total = total + part**2
            assert context is not None
            root = context.sqrt(total)
            self._shared = root.a, root.b
        return self._shared

    def _extend(self, cell: Cell) -> None:
        """Draw more bits for a cell of N, and for all of M."""
        cell.extend(self._stream)
        for pair in range(self._split):
            self._cell(pair).extend(self._stream)
        self._shared = None

    def _cell(self, pair: int) -> Cell:
        return self._refined.setdefault(pair, Cell(int(self._words[pair]), int(self._angles[pair])))
