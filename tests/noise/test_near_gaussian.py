"""`near_gaussian`: every value lies within its bound of the real number that more bits would give."""

from fractions import Fraction

import mpmath
import numpy as np
from scipy.stats import kstest

from tacit.noise import NORMAL_ERROR, SeededStream, near_gaussian
from tacit.noise.rounded_radial import INNER, Cell, box_muller, by_extension, inside


def ends(word, angle, sine):
    """The normal at the corners of the cell of a word of U and one of V, to 60 digits."""
    with mpmath.workdps(60):
        found = []
        for u in (Fraction(word, 2**64), Fraction(word + 1, 2**64)):
            for v in (angle, angle + 1):
                radius = (
                    mpmath.sqrt(-2 * mpmath.log(mpmath.mpf(u.numerator) / u.denominator)) if u < 1 else mpmath.mpf(0)
                )
                turn = mpmath.mpf(v) * 2 * mpmath.pi / 2**64
                found.append(radius * (mpmath.sin(turn) if sine else mpmath.cos(turn)))
        return found


def test_values_lie_within_the_bound_over_their_whole_cell():
    draw = np.random.default_rng(0)
    words = draw.integers(INNER + 1, 2**64 - INNER - 1, 300, dtype=np.uint64)
    # Cells near both ends of the range that float64 decides are the widest.
    words[:50] = INNER + 1 + np.arange(50, dtype=np.uint64)
    words[50:100] = np.uint64(2**64 - INNER - 1) - np.arange(50, dtype=np.uint64)
    angles = draw.integers(-(2**63), 2**63 - 1, 300, dtype=np.int64)
    assert inside(words).all()
    radius, turns = box_muller(words, angles)
    for place in range(300):
        for sine, value in ((False, np.cos(turns[place])), (True, np.sin(turns[place]))):
            normal = float(radius[place] * value)
            assert max(abs(normal - end) for end in ends(int(words[place]), int(angles[place]), sine)) < NORMAL_ERROR


def test_cells_at_the_ends_are_refined():
    stream = SeededStream(3)
    for word in (0, 1, INNER - 1, 2**64 - INNER, 2**64 - 1):
        cosine, sine = by_extension(Cell(word, 2**61), stream)
        corners = [abs(end) for end in ends(max(word, 1), 2**61, True)] if word else [9.4]
        assert abs(cosine) <= 14
        assert sine >= 0
        assert word == 0 or min(corners) - 1e-6 <= abs(sine) <= max(corners) + 1e-6


def test_values_are_standard_normal():
    """200,000 values; false alarm below 1e-6."""
    values = near_gaussian(SeededStream(5), 200_000, std=2.0)
    assert kstest(values / 2.0, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(values[:100_000], values[100_000:])[0, 1]) < 5 / np.sqrt(100_000)
