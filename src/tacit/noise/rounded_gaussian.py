"""The rounded Gaussian mechanism: g RN((S + tau N) / g), exactly, with N standard normal and g a power of two.

RN rounds to the nearest integer. The released value is a function of S + tau N, so it is post-processing of the ideal
Gaussian mechanism on the computed vector S: the accounting of the Gaussian mechanism holds word for word, without an
added delta. Low-order bits carry nothing, because every released value is a multiple of g, and zero has one sign.

N is a Box-Muller transform of uniform reals U and V with infinitely many bits, of which 64 and 32 are drawn at first.
They fix a cell; an answer is accepted only when every point of the cell, and every rounding error on the way, leads to
the same integer. Three tiers decide:

1. float32, for about 99.9 % of the values, in one pass of compiled code where `tacit.noise.compiled` has it, else by
   arrays: |error| <= 2^-13.1 against a margin of 2^-12; then, where a block leaves few open, float64 at the midpoint of
   the cell: |error| < 2^-22.7 against a margin of 2^-22;
2. float64 with 32 more bits of V: |error| < 2^-27 against a margin of 2^-26;
3. interval arithmetic of growing precision, 64 more bits of U and V at a time, until both ends round alike.

More bits are drawn for a pair (U, V) only when needed. Both normals of the pair share them, and they depend on the
number of the pair alone. So every way to decide a value gives the same value from the same bits.

Source: interval refining, Haney et al. 2022 (arXiv:2207.13793); Mironov 2012 for what floating point leaks otherwise.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.errors import InvalidInput
from tacit.noise import compiled
from tacit.noise.compiled import Angles, Values, Words
from tacit.noise.rounded_radial import Cell, box_muller, floor_of, interval
from tacit.noise.stream import Refinement, Stream

_BLOCK = 2**15  # values at a time, whose pairs are both in the block: every buffer stays in the second-level cache
_FINEST = 4  # tau / g in [2^4, 2^5): rounding adds at most 3.3e-4 to the variance; privacy holds for any value
_FAR = 1 << 38  # words of U below this (radius above 6, probability 2^-26) have no float32 guess
# Tier 1. |error of a float32 normal| <= 2^-18.38 over its cell (exhaustive over all float32 angles), times tau / g
# below 32, plus the rounding of the product and of the sum, 2^-17 each for values below 256: 2^-13.1.
MARGIN_1 = 2.0**-12
NOT_FINITE = "values must be finite; got NaN or infinity. Clip before noise is added."
# Few values in float64, in the range of tier 2: half a cell of V is 2^-32 pi, the radius below 6.01 there and tau / g
# below 32, so the error is below 2^-22.76 and what is said of tier 2.
_MARGIN_FEW = 2.0**-22
_FEW = 16  # values that are decided one by one in less time than as arrays
# Tier 2. Two roundings of U and its cell move ln U by at most 2^-64 / U + 2^-52, so the radius r by that over r: below
# 2^-40.5 at U = 2^-26 (r > 6) and 2^-35.5 at U = 1 - 2^-34 (r > 2^-16.5), its largest. Times tau / g below 32 that is
# 2^-30.5; the logarithm, the angle and the sum add less than 2^-40.
_MARGIN_2 = 2.0**-26
_LOWEST, _HIGHEST = 1 << 38, 2**64 - (1 << 30)  # words of U between which that holds


@functools.lru_cache(256)
def grid_of(std: float) -> tuple[float, float]:
    """The standard deviation that is used, `std` rounded up to 24 bits, and the grid g, a power of two below it.

    Args:
        std: in [2^-100, 2^100].

    Raises:
        InvalidInput: `std` is outside of that range.

    Example:
        >>> grid_of(1.0)
        (1.0, 0.0625)
    """
    std = check.real("std", std, low=2.0**-100, high=2.0**100)
    rounded = float(np.float32(std))
    if rounded < std:
        rounded = float(np.nextafter(np.float32(std), np.float32(np.inf)))
    return rounded, math.ldexp(1.0, math.frexp(rounded)[1] - 1 - _FINEST)


def rounded_gaussian(values: Values, stream: Stream, *, std: float, out: Values | None = None) -> Values:
    """G RN((values + tau N) / g) for independent standard normals N: what may be released of `values`.

    tau is `std` rounded up to 24 bits and g = 2^(floor(log2 tau) - 4); see `grid_of`.

    Args:
        values: float32 or float64, any shape, finite: the computed sum S.
        stream: source of the bits, and of those that refine a decision.
        std: standard deviation of the noise, in [2^-100, 2^100].
        out: array that receives the result, of the type and shape of `values`, contiguous; may be `values` itself,
            whose content is lost. A new one by default.

    Raises:
        InvalidInput: values are not finite, `std` is out of range, or `out` does not fit.

    Example:
        >>> from tacit.noise import SeededStream
        >>> released = rounded_gaussian(np.zeros(4), SeededStream(0), std=1.0)
        >>> bool((released * 16 % 1 == 0).all())
        True
    """
    tau, grid = grid_of(std)
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype not in (np.float32, np.float64):
        raise check.fail("values", "float32 or float64", str(flat.dtype))
    if out is not None and not (out.dtype == flat.dtype and out.size == flat.size and out.flags.c_contiguous):
        raise check.fail("out", f"a contiguous array of {flat.size} values of type {flat.dtype}", str(out.dtype))
    target = np.empty_like(flat) if out is None else out.reshape(-1)
    undecided = []
    for start in range(0, flat.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        open_values = _first_tier(flat[part], target[part], stream, grid, tau)
        if open_values is not None:
            places, pairs = open_values.places + start, open_values.pairs + start // 2
            undecided.append(replace(open_values, places=places, pairs=pairs))
    if undecided:
        decide_exactly(Undecided.joined(undecided), target, stream.refinement(), grid, tau / grid)
    return target.reshape(np.shape(values))


@dataclass(frozen=True)
class Undecided:
    """Values that the first tier leaves open, which stand as they were in the array of results.

    Attributes:
        places: of the values, shape (count,).
        pairs: number of the pair of each value.
        sines: whether a value takes the sine of its pair.
        radius_words: 64 bits of U of the pair.
        angle_words: 32 bits of V of the pair.
    """

    places: NDArray[np.int64]
    pairs: NDArray[np.int64]
    sines: NDArray[np.bool_]
    radius_words: Words
    angle_words: Angles

    @classmethod
    def of(cls, places: NDArray[np.int64], radius_words: Words, angle_words: Angles) -> Undecided:
        """Those at `places` of a block, which holds the cosines of its pairs, then their sines."""
        sines = places >= len(radius_words)
        pairs = np.where(sines, places - len(radius_words), places)
        return cls(places, pairs, sines, radius_words[pairs], angle_words[pairs])

    @classmethod
    def joined(cls, parts: list[Undecided]) -> Undecided:
        """All of them."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def _first_tier(values: Values, out: Values, stream: Stream, grid: float, tau: float) -> Undecided | None:
    """Write what float32 decides of one block into `out`, and the values themselves at places that stay open."""
    pairs = (values.size + 1) // 2
    radius_words = stream.bits(pairs)
    angle_words = stream.bits((pairs + 1) // 2).view(np.int32)[:pairs]
    decide = compiled.first_tier() or _by_arrays
    places = decide(values, out, radius_words, angle_words, grid, tau / grid, 0.5 - MARGIN_1)
    if len(places) <= _FEW:
        words = radius_words, angle_words
        places = np.array([each for each in places.tolist() if not _decides(each, out, *words, grid, tau / grid)], int)
    return Undecided.of(places, radius_words, angle_words) if len(places) else None


def _decides(place: int, out: Values, radius_words: Words, angle_words: Angles, grid: float, scale: float) -> bool:
    """Whether float64 decides the value at `place` without more bits, and writes it there."""
    pairs = len(radius_words)
    word, angle = int(radius_words[place % pairs]), int(angle_words[place % pairs])
    centre = float(out[place]) / grid
    if not (_LOWEST < word < _HIGHEST and abs(centre) < 2.0**53):
        return False
    whole = round(centre)
    radius = math.sqrt(-2.0 * math.log((word >> 1) * 2.0**-63 + 2.0**-64))
    turn = (angle + 0.5) * (math.pi * 2.0**-31)
    noisy = centre - whole + scale * radius * (math.sin(turn) if place >= pairs else math.cos(turn))
    nearest = round(noisy)
    sure = abs(noisy - nearest) < 0.5 - _MARGIN_FEW
    if sure:
        out[place] = (whole + nearest) * grid
    return sure


def _by_arrays(
    values: Values, out: Values, radius_words: Words, angle_words: Angles, grid: float, scale: float, limit: float
) -> NDArray[np.int64]:
    """The first tier by arrays: places of `values` that it leaves open."""
    rests = values * values.dtype.type(1.0 / grid)
    whole = np.rint(rests)
    # Exact: a centre and the integer nearest to it are at most half apart.
    with np.errstate(invalid="ignore"):
        rests -= whole
        noisy = np.add(_guesses(radius_words, angle_words, values.size) * np.float32(scale), rests, out=rests)
        nearest = np.rint(noisy)
        noisy -= nearest
        np.abs(noisy, out=noisy)
        whole += nearest
    # Written so that NaN is unsure: comparisons with it are false.
    places = np.flatnonzero(~(noisy < limit))
    whole *= values.dtype.type(grid)
    whole += 0.0  # a zero of either sign is released as +0.0: the sign would be that of the centre, without noise
    whole[places] = values[places]
    out[:] = whole
    return places


def _guesses(radius_words: Words, angle_words: Angles, size: int) -> NDArray[np.float32]:
    """Box-Muller in float32 at the midpoint of each cell of U; NaN where it has no error bound."""
    pairs = len(radius_words)
    squared = (radius_words >> np.uint64(1)).view(np.int64).astype(np.float64)  # int64 converts ten times faster
    squared += 0.5
    squared *= 2.0**-63
    np.log(squared, out=squared)
    squared *= -2.0
    radius = squared.astype(np.float32)
    np.sqrt(np.abs(radius, out=radius), out=radius)
    radius[radius_words < _FAR] = np.nan
    turns = angle_words.astype(np.float32)
    turns *= np.float32(math.pi * 2.0**-31)
    out = np.empty(size, np.float32)
    np.cos(turns, out=out[:pairs])
    out[:pairs] *= radius
    rest = size - pairs
    np.sin(turns[:rest], out=out[pairs:])
    out[pairs:] *= radius[:rest]
    return out


def decide_exactly(undecided: Undecided, out: Values, refinement: Refinement, grid: float, scale: float) -> None:
    """Overwrite the undecided values in `out` with what is released of them.

    Args:
        undecided: by the first tier.
        out: values themselves at the places of `undecided`.
        refinement: further bits of each pair.
        grid: g, a power of two.
        scale: tau / g.

    Raises:
        InvalidInput: an undecided value is not finite.
    """
    centres = out[undecided.places] * out.dtype.type(1.0 / grid)
    if not np.isfinite(centres).all():
        raise InvalidInput(NOT_FINITE)
    whole = np.rint(centres)
    decided = _in_double(centres - whole, undecided, scale, refinement)
    out[undecided.places] = (whole + decided) * out.dtype.type(grid) + 0.0


def _in_double(rests: Values, undecided: Undecided, scale: float, refinement: Refinement) -> NDArray[np.float64]:
    """Tier 2, and tier 3 for what it leaves open: RN(rest + scale N), exact integers."""
    extension = (refinement.of_values(undecided.pairs) >> np.uint64(32)).view(np.int64)
    angles = (undecided.angle_words.astype(np.int64) << 32) | extension
    radius, turns = box_muller(undecided.radius_words, angles)
    noisy = rests.astype(np.float64) + scale * np.where(undecided.sines, np.sin(turns), np.cos(turns)) * radius
    nearest = np.rint(noisy)
    words = undecided.radius_words
    sure = (np.abs(noisy - nearest) < 0.5 - _MARGIN_2) & (words > np.uint64(_LOWEST)) & (words < np.uint64(_HIGHEST))
    for at in np.flatnonzero(~sure):
        cell = Cell(int(undecided.radius_words[at]), int(angles[at]))
        more = refinement.of_value(int(undecided.pairs[at]))
        nearest[at] = _by_intervals(Fraction(float(rests[at])), cell, bool(undecided.sines[at]), scale, more)
    return nearest


def _by_intervals(rest: Fraction, cell: Cell, sine: bool, scale: float, stream: Stream) -> int:
    """Tier 3: RN(rest + scale N) by interval arithmetic; ends with probability one."""
    while True:
        low, high = _ends(rest, cell, sine, scale)
        if low == high:
            return low
        cell.extend(stream)


def _ends(rest: Fraction, cell: Cell, sine: bool, scale: float) -> tuple[int, int]:
    """The integers to which the ends of the interval of rest + scale N round."""
    if cell.radius == 0:
        # log 0 is unbounded: more bits are needed.
        return 0, 1
    context, radius, turn = interval(cell)
    normal = radius * (context.sin(turn) if sine else context.cos(turn))
    value = context.mpf(rest.numerator) / rest.denominator + context.mpf(scale) * normal + context.mpf(0.5)
    return floor_of(value.a), floor_of(value.b)
