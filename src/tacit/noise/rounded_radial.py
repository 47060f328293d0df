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
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.errors import InvalidInput
from tacit.noise.box_muller import Cell, box_muller, by_extension, floor_of, inside, interval
from tacit.noise.stream import Size, Stream

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
