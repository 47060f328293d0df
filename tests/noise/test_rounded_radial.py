"""`rounded_radial`: exactly the rounded radial law, decided alike by double precision and by intervals."""

import math
import sys

import numpy as np
import pytest
from scipy import stats

from tacit.noise import SecureStream, SeededStream, longest_radial, near_radial, radial_error, rounded_radial
from tacit.noise.rounded_radial import radial_grid

module = sys.modules[radial_grid.__module__]  # the package exports the function under the name of its module
_ALARM = 1e-6


@pytest.mark.parametrize("value", [0.3, -7.77])
def test_in_one_dimension_the_law_is_that_of_rounded_laplace_noise(value):
    """6,000 releases against the masses of 1/2 e^-|x|; false alarms below 1e-6."""
    stream, grid = SecureStream(), radial_grid(1, 1.0)
    steps = np.array([rounded_radial(np.array([value]), stream, rate=1.0)[0] for _ in range(6000)]) / grid
    assert np.array_equal(steps, np.rint(steps))
    edges = np.concatenate([[-np.inf], np.rint(value / grid) + np.arange(-24, 25) + 0.5, [np.inf]])
    seen = np.histogram(steps, edges)[0]
    expected = np.diff(stats.laplace.cdf(edges * grid - value)) * len(steps)
    assert stats.chisquare(seen, expected).pvalue > _ALARM


@pytest.mark.parametrize("dimension", [2, 3, 20])
def test_norms_are_gamma_and_directions_uniform(dimension):
    """3,000 releases each; false alarms below 1e-5."""
    stream = SecureStream()
    for draw in (lambda: near_radial(stream, dimension, rate=2.5), lambda: _fine(stream, dimension)):
        draws = np.array([draw() for _ in range(3000)])
        norms = np.linalg.norm(draws, axis=1)
        assert stats.kstest(norms * 2.5, "gamma", (dimension,)).pvalue > _ALARM
        # A coordinate of a uniform direction, squared, is Beta(1/2, (d - 1)/2), and independent of the norm.
        share = draws[:, 0] ** 2 / norms**2
        assert stats.kstest(share, "beta", (0.5, (dimension - 1) / 2)).pvalue > _ALARM
        assert abs(stats.spearmanr(share, norms).statistic) < 5 / math.sqrt(len(norms))


def _fine(stream, dimension):
    """A release of values that are no multiples of the grid, so that rounding is hidden in the norm."""
    return rounded_radial(np.zeros(dimension), stream, rate=2.5) + radial_grid(dimension, 2.5) * (
        stream.uniform(dimension) - 0.5
    )


@pytest.mark.parametrize("dimension", [1, 2, 7, 30])
def test_intervals_decide_as_double_precision(monkeypatch, dimension):
    values = np.random.default_rng(0).normal(size=dimension) * 3
    usual = [rounded_radial(values, SeededStream(seed), rate=0.7) for seed in range(6)]
    monkeypatch.setattr(module, "_MARGIN", 0.5)
    assert np.array_equal([rounded_radial(values, SeededStream(seed), rate=0.7) for seed in range(6)], usual)


def test_more_bits_are_drawn_until_the_ends_agree(monkeypatch):
    """Cells of 8 bits leave most values open; refined, they follow the same law (false alarm below 1e-6)."""
    monkeypatch.setattr(module, "_MARGIN", 0.5)
    interval = module.interval

    def coarse(cell):
        wide = module.Cell(cell.radius >> 56, cell.angle >> 56, 8) if cell.bits == 64 else cell
        return interval(wide)

    monkeypatch.setattr(module, "interval", coarse)
    stream = SecureStream()
    values = np.array([rounded_radial(np.zeros(1), stream, rate=1.0)[0] for _ in range(200)])
    assert stats.kstest(values + 0.0, "laplace").statistic < radial_grid(1, 1.0) + 3 / math.sqrt(len(values))


def test_the_grid_follows_public_numbers_alone():
    """A grid that followed ||M|| would tell the scale of the noise, given which it is no radial noise."""
    released = [rounded_radial(np.full(5, 0.1), SecureStream(), rate=1.0) for _ in range(200)]
    steps = np.array(released) / radial_grid(5, 1.0)
    assert np.array_equal(steps, np.rint(steps))
    assert (np.abs(steps) % 2 == 1).any(axis=1).mean() > 0.8


def test_near_radial_is_within_its_bound_of_more_bits():
    """The same cells by intervals: 100 draws, none beyond the bound."""
    for seed in range(100):
        draw = module._Radial(3, SeededStream(seed))
        usual = draw.normals * draw.length
        exact = []
        for at in range(3):
            cell = draw._cell(draw._split + at % 2)
            context, radius, turn = module.interval(cell)
            normal = radius * (context.sin(turn) if at >= 2 else context.cos(turn))
            low, _ = draw._length_ends()
            exact.append(float((normal * low).mid))
        assert np.linalg.norm(usual - exact) < radial_error(3, 1.0)
    assert longest_radial(3, 1.0) > stats.gamma(3).isf(2.0**-128)


def test_values_that_are_not_finite_are_refused():
    for values in (np.array([np.nan]), np.array([np.inf]), np.empty(0)):
        with pytest.raises(Exception, match="values must be finite"):
            rounded_radial(values, SecureStream(), rate=1.0)


def test_the_sign_of_a_zero_is_not_that_of_the_value():
    released = np.concatenate([rounded_radial(np.full(4, -0.01), SeededStream(seed), rate=1.0) for seed in range(400)])
    assert (released == 0).any()
    assert not np.signbit(released[released == 0]).any()
