"""The rounded Gaussian mechanism: g RN((S + tau N) / g), exactly, with N standard normal and g a power of two.

RN rounds to the nearest integer. The released value is a function of S + tau N, so it is post-processing of the ideal
Gaussian mechanism on the computed vector S: the accounting of the Gaussian mechanism holds word for word, without an
added delta. Low-order bits carry nothing, because every released value is a multiple of g.

N is a Box-Muller transform of uniform reals U and V with infinitely many bits, of which 64 and 32 are drawn at first.
They fix a cell; an answer is accepted only when every point of the cell, and every rounding error on the way, leads to
the same integer. Three tiers decide:

1. float32, for about 99.9 % of the values: |error| <= 2^-13.1 against a margin of 2^-11;
2. float64 with 32 more bits of V: |error| < 2^-27 against a margin of 2^-26;
3. interval arithmetic of growing precision, 64 more bits of U and V at a time, until both ends round alike.

More bits are drawn for a pair (U, V) only when needed. Both normals of the pair share them.

Source: interval refining, Haney et al. 2022 (arXiv:2207.13793); Mironov 2012 for what floating point leaks otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.errors import InvalidInput
from tacit.noise.box_muller import Cell, box_muller, floor_of, inside, interval, normals_of
from tacit.noise.stream import Stream

_BLOCK = 2**15  # values at a time, whose pairs are both in the block: every buffer stays in the second-level cache
_PART = 2**14  # values of the first tier at a time, whose buffers stay in that cache too
_FINEST = 4  # tau / g in [2^4, 2^5): rounding adds at most 3.3e-4 to the variance; privacy holds for any value
_FAR = 1 << 38  # words of U below this (radius above 6, probability 2^-26) have no float32 guess
# Tier 1. |error of a float32 normal| <= 2^-18.38 over its cell (exhaustive over all float32 angles), times tau / g
# below 32, plus the rounding of the product and of the sum, 2^-17 each for values below 256: 2^-13.1.
_MARGIN_1 = 2.0**-11
# Tier 2. The cell is at most 2^-29.5 wide where the word of U is inside [2^44, 2^64 - 2^44]; float64 adds 2^-40.
_MARGIN_2 = 2.0**-26
_FEW = 16  # values of tier 2 for which Python's own floats take less time than calls on arrays


@dataclass
class NormalDraw:
    """Standard normals as cells of random bits with float32 guesses, before any is used.

    Attributes:
        radius_words: 64 bits of U for every pair, shape (pairs,).
        angle_words: 32 bits of V for every pair, shape (pairs,).
        guesses: float32 normals, shape (size,); NaN where the guess has no error bound.
    """

    radius_words: NDArray[np.uint64]
    angle_words: NDArray[np.int32]
    guesses: NDArray[np.float32]

    @classmethod
    def of(cls, stream: Stream, size: int) -> NormalDraw:
        """Draw `size` >= 0 normals; may run ahead, on the thread that owns `stream`.

        Example:
            >>> from tacit.noise import SeededStream
            >>> NormalDraw.of(SeededStream(0), 5).guesses.shape
            (5,)
        """
        blocks = range(0, size, _BLOCK)
        pairs = sum((min(_BLOCK, size - start) + 1) // 2 for start in blocks)
        draw = cls(np.empty(pairs, np.uint64), np.empty(pairs, np.int32), np.empty(size, np.float32))
        for start in blocks:
            _guess(stream, draw, start // 2, draw.guesses[start : start + _BLOCK])
        return draw


def _guess(stream: Stream, draw: NormalDraw, first: int, out: NDArray[np.float32]) -> None:
    """Fill one block of a draw: words, and Box-Muller in float32 at the midpoint of each cell."""
    pairs = (out.size + 1) // 2
    radius_words = draw.radius_words[first : first + pairs]
    angle_words = draw.angle_words[first : first + pairs]
    radius_words[:] = stream.bits(pairs)
    angle_words[:] = stream.bits((pairs + 1) // 2).view(np.int32)[:pairs]
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
    np.cos(turns, out=out[:pairs])
    out[:pairs] *= radius
    rest = out.size - pairs
    np.sin(turns[:rest], out=out[pairs:])
    out[pairs:] *= radius[:rest]


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


def rounded_gaussian(
    values: NDArray[np.floating], stream: Stream, *, std: float, draw: NormalDraw | None = None
) -> NDArray[np.floating]:
    """G RN((values + tau N) / g) for independent standard normals N: what may be released of `values`.

    tau is `std` rounded up to 24 bits and g = 2^(floor(log2 tau) - 4); see `grid_of`.

    Args:
        values: float32 or float64, any shape, finite: the computed sum S.
        stream: source of the bits, and of those that refine a decision.
        std: standard deviation of the noise, in [2^-100, 2^100].
        draw: normals drawn ahead, as many as there are values, each used once; drawn now by default.

    Raises:
        InvalidInput: values are not finite, `std` is out of range, or `draw` has another size.

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
    draw = NormalDraw.of(stream, flat.size) if draw is None else draw
    if len(draw.guesses) != flat.size:
        raise check.fail("draw", f"of {flat.size} normals", len(draw.guesses))
    out, pending = np.empty_like(flat), []
    for start in range(0, flat.size, _PART):
        part = slice(start, start + _PART)
        pending.append(start + _in_single(flat[part], draw.guesses[part], out[part], grid, tau))
    places = np.concatenate(pending) if pending else np.empty(0, np.int64)
    if len(places):
        centres = flat[places] * flat.dtype.type(1.0 / grid)
        if not np.isfinite(centres).all():
            raise InvalidInput("values must be finite; got NaN or infinity. Clip before noise is added.")
        whole = np.rint(centres)
        out[places] = whole + _in_double(centres - whole, draw, places, tau / grid, stream.refinement())
    out *= flat.dtype.type(grid)
    return out.reshape(np.shape(values))


def _in_single(
    values: NDArray[np.floating], guesses: NDArray[np.float32], out: NDArray[np.floating], grid: float, tau: float
) -> NDArray[np.int64]:
    """Tier 1: write RN((value + tau N) / grid) into `out`; places that float32 leaves open."""
    rests = values * values.dtype.type(1.0 / grid)
    np.rint(rests, out=out)
    # Exact: a centre and the integer nearest to it are at most half apart.
    with np.errstate(invalid="ignore"):
        rests -= out
        noisy = guesses * np.float32(tau / grid)
        noisy = np.add(noisy, rests, out=rests)
        nearest = np.rint(noisy)
        noisy -= nearest
        np.abs(noisy, out=noisy)
        out += nearest
    # Written so that NaN is unsure: comparisons with it are false.
    return np.flatnonzero(~(noisy < 0.5 - _MARGIN_1))


def _in_double(
    rests: NDArray[np.floating], draw: NormalDraw, places: NDArray[np.int64], scale: float, stream: Stream
) -> NDArray[np.float64]:
    """Tier 2, and tier 3 for what it leaves open: RN(rest + scale N), exact integers."""
    if len(places) <= _FEW:
        return _few_in_double(rests, draw, places, scale, stream)
    # Every block of a draw holds the cosines of its pairs, then their sines.
    start = places // _BLOCK * _BLOCK
    half = (np.minimum(len(draw.guesses) - start, _BLOCK) + 1) // 2
    sines = places - start >= half
    pairs = start // 2 + places - start - np.where(sines, half, 0)
    unique, back = np.unique(pairs, return_inverse=True)
    # Both values of a pair see the same bits: an extension belongs to the pair.
    extension = (stream.bits(len(unique)) >> np.uint64(32)).view(np.int64)
    angles = (draw.angle_words[unique].astype(np.int64) << 32) | extension
    words = draw.radius_words[unique]
    radius, turns = box_muller(words, angles)
    normal = np.where(sines, np.sin(turns)[back], np.cos(turns)[back]) * radius[back]
    noisy = rests.astype(np.float64) + scale * normal
    nearest = np.rint(noisy)
    sure = (np.abs(noisy - nearest) < 0.5 - _MARGIN_2) & inside(words)[back]
    refined: dict[int, Cell] = {}
    for at in np.flatnonzero(~sure):
        pair = int(back[at])
        cell = refined.setdefault(pair, Cell(int(words[pair]), int(angles[pair])))
        nearest[at] = _by_intervals(Fraction(float(rests[at])), cell, bool(sines[at]), scale, stream)
    return nearest


def _few_in_double(
    rests: NDArray[np.floating], draw: NormalDraw, places: NDArray[np.int64], scale: float, stream: Stream
) -> NDArray[np.float64]:
    """`_in_double` of a few values, from the same bits in the same order."""
    found = [_pair_of(place, len(draw.guesses)) for place in places.tolist()]
    pairs = sorted({pair for pair, _ in found})
    extensions = (stream.bits(len(pairs)) >> np.uint64(32)).tolist()
    cells = {
        pair: Cell(int(draw.radius_words[pair]), int(draw.angle_words[pair]) << 32 | extension)
        for pair, extension in zip(pairs, extensions, strict=True)
    }
    # A cell that tier 3 has extended no longer has the words of tier 2.
    normals = {pair: normals_of(cell) for pair, cell in cells.items()}
    nearest = np.empty(len(places))
    for at, (rest, (pair, sine)) in enumerate(zip(rests.tolist(), found, strict=True)):
        cosine_and_sine, sure = normals[pair]
        noisy = rest + scale * cosine_and_sine[sine]
        nearest[at] = round(noisy)
        if not (sure and abs(noisy - nearest[at]) < 0.5 - _MARGIN_2):
            nearest[at] = _by_intervals(Fraction(rest), cells[pair], sine, scale, stream)
    return nearest


def _pair_of(place: int, size: int) -> tuple[int, bool]:
    """Pair of a value among `size`, and whether it is the sine: a block holds its cosines, then its sines."""
    start = place // _BLOCK * _BLOCK
    half = (min(size - start, _BLOCK) + 1) // 2
    sine = place - start >= half
    return start // 2 + place - start - half * sine, sine


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
