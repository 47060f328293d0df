"""The rounded Gaussian mechanism: its law, its tiers against each other, and what low-order bits show."""

import math
import sys

import numpy as np
import pytest
from scipy import stats

from tacit.errors import InvalidInput
from tacit.noise import SecureStream, SeededStream, compiled
from tacit.noise.rounded_gaussian import grid_of, rounded_gaussian
from tacit.noise.rounded_radial import Cell, box_muller, interval

module = sys.modules[rounded_gaussian.__module__]  # the package exports the function under the name of its module
_ALARM = 1e-6


@pytest.fixture
def by_arrays(monkeypatch):
    """Releases without compiled code."""
    monkeypatch.setattr(compiled, "first_tier", lambda: None)


def mass_test(released, value, std):
    """Chi-square p-value of released integers against differences of the normal distribution function."""
    tau, grid = grid_of(std)
    integers, centre, scale = np.rint(released / grid), float(value) / grid, tau / grid
    assert np.array_equal(integers * grid, released)
    edges = np.arange(math.floor(centre - 4 * scale), math.ceil(centre + 4 * scale) + 1)
    counts = np.array([np.count_nonzero(integers == edge) for edge in edges])
    masses = stats.norm.cdf((edges + 0.5 - centre) / scale) - stats.norm.cdf((edges - 0.5 - centre) / scale)
    observed = np.append(counts, len(released) - counts.sum())
    return stats.chisquare(observed, np.append(masses, 1 - masses.sum()) * len(released)).pvalue


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("value", "std"), [(0.0, 1.0), (0.37, 1.3), (-5.03125, 1.99), (300.7, 0.7), (1e6, 3.0)])
def test_the_law_is_that_of_a_rounded_normal(value, std, dtype):
    values = np.full(200_000, value, dtype)
    assert mass_test(rounded_gaussian(values, SecureStream(), std=std), values[0], std) > _ALARM


def test_low_order_bits_do_not_depend_on_the_value():
    for value in (0.0, 0.1, 7.123):
        released = rounded_gaussian(np.full(100_000, value, np.float32), SecureStream(), std=2.5)
        residues = np.rint(released / grid_of(2.5)[1]).astype(int) % 8
        assert stats.chisquare(np.bincount(residues, minlength=8)).pvalue > _ALARM


def test_later_tiers_decide_as_the_first(monkeypatch):
    values = np.random.default_rng(0).normal(size=20_001).astype(np.float32) * 3
    usual = rounded_gaussian(values, SeededStream(3), std=1.1)
    monkeypatch.setattr(module, "MARGIN_1", 0.5)
    assert np.array_equal(rounded_gaussian(values, SeededStream(3), std=1.1), usual)


def test_intervals_decide_as_double_precision(monkeypatch):
    values = np.random.default_rng(1).normal(size=600) * 3
    usual = rounded_gaussian(values, SeededStream(4), std=1.1)
    monkeypatch.setattr(module, "MARGIN_1", 0.5)
    monkeypatch.setattr(module, "_MARGIN_2", 0.5)
    assert np.array_equal(rounded_gaussian(values, SeededStream(4), std=1.1), usual)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("first", "few", "second"),
    [
        (2.0**-11, 0, 2.0**-26),
        (0.5, 16, 2.0**-26),
        (0.5, 0, 2.0**-26),
        (0.5, 0, 0.49),
        (0.5, 16, 0.5),
        (0.5, 0, 0.5),
    ],
)
def test_every_tier_decides_alike_from_the_same_bits(monkeypatch, dtype, first, few, second):
    """Wide margins send values to the later tiers; sizes around a block exercise which pair a value belongs to."""
    monkeypatch.setattr(module, "_BLOCK", 8)
    for size in (1, 2, 7, 8, 9, 15, 25, 120):
        values = np.random.default_rng(size).normal(size=size).astype(dtype) * 3
        usual = rounded_gaussian(values, SeededStream(size), std=1.1)
        with monkeypatch.context() as wide:
            wide.setattr(module, "MARGIN_1", first)
            wide.setattr(module, "_FEW", few)
            wide.setattr(module, "_MARGIN_2", second)
            assert np.array_equal(rounded_gaussian(values, SeededStream(size), std=1.1), usual)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("first", "second"), [(2.0**-12, 2.0**-26), (0.5, 2.0**-26), (0.5, 0.5)])
def test_the_sign_of_a_zero_is_not_that_of_the_value(monkeypatch, dtype, first, second, by_arrays):
    """Released zeros showed by their sign bit whether the sum was below zero, without any noise."""
    monkeypatch.setattr(module, "MARGIN_1", first)
    monkeypatch.setattr(module, "_MARGIN_2", second)
    size = 20_000 if second < 0.5 else 200
    released = rounded_gaussian(np.full(size, -0.01, dtype), SeededStream(1), std=1.0)
    assert (released == 0).any()
    assert not np.signbit(released[released == 0]).any()


def test_the_second_tier_knows_normals_to_its_bound_at_the_ends_of_its_range():
    """Against intervals around each cell: the error, the width of the cell included, is below 2^-35."""
    low, high = module._LOWEST, module._HIGHEST
    words = [low + 1 + k * 997 for k in range(20)] + [high - 1 - k * 997 for k in range(20)]
    for number, word in enumerate(words):
        cell = Cell(word, (number * 2654435761 << 28) % 2**63)
        context, radius, turn = interval(cell)
        length, turns = box_muller(np.array([word], np.uint64), np.array([cell.angle]))
        normals = float(length[0] * np.cos(turns[0])), float(length[0] * np.sin(turns[0]))
        for value, part in zip(normals, (context.cos, context.sin), strict=True):
            normal = radius * part(turn)
            assert max(abs(float(normal.a) - value), abs(float(normal.b) - value)) < 2.0**-35


def test_few_values_are_decided_within_their_margin_at_the_ends_of_its_range(monkeypatch):
    """Beside a rounding boundary at half of the margin from either end of a cell, no value is decided."""
    low, high, scale = module._LOWEST, module._HIGHEST, 31.99
    for number in range(40):
        word = low + 1 + number * 997 if number % 2 else high - 1 - number * 997
        angle = (number * 2654435761) % 2**31 - 2**30
        for end in (angle << 32, (angle << 32) + 2**32 - 1):
            context, radius, turn = interval(Cell(word, end))
            for place, part in enumerate((context.cos, context.sin)):
                shift = 0.5 - scale * float((radius * part(turn)).mid)
                for beside in (-module._MARGIN_FEW / 8, module._MARGIN_FEW / 8):
                    out = np.array([shift + beside] * 2)
                    words = np.array([word], np.uint64), np.array([angle], np.int32)
                    assert not module._decides(place, out, *words, 1.0, scale)


def test_few_values_near_the_ends_of_the_uniform_are_refined(monkeypatch):
    ends = np.array([0, 1, 2**38, 2**38 + 1, 2**64 - 2**30, 2**64 - 1], np.uint64)
    angles = np.arange(-3, 3, dtype=np.int32) * 2**28
    undecided = module.Undecided.of(np.arange(12), ends, angles)
    released = []
    for margin in (module._MARGIN_2, 0.5):
        monkeypatch.setattr(module, "_MARGIN_2", margin)
        out = np.linspace(-2, 2, 12)
        module.decide_exactly(undecided, out, SeededStream(1).refinement(), 1 / 16, 17.5)
        released.append(out)
    assert np.array_equal(*released)


def moved_guesses(monkeypatch, error):
    """Releases of .3 by the right guesses and by guesses that are all off by `error`."""
    values, guesses = np.full(200_000, 0.3, np.float32), module._guesses
    usual = rounded_gaussian(values, SeededStream(9), std=1.99)
    monkeypatch.setattr(module, "_guesses", lambda *block: guesses(*block) + np.float32(error))
    return usual, rounded_gaussian(values, SeededStream(9), std=1.99)


def test_a_guess_with_a_larger_error_changes_answers(monkeypatch, by_arrays):
    """The test of the tiers has power: an error beyond the margin shows."""
    usual, moved = moved_guesses(monkeypatch, 2.0**-12)
    assert np.count_nonzero(usual != moved) > 0


@pytest.mark.parametrize("sign", [-1, 1])
def test_errors_of_guesses_within_their_bound_change_no_answer(sign, monkeypatch, by_arrays):
    """A float32 guess is off by up to 2^-18.38: where that may decide, float64 does."""
    assert np.array_equal(*moved_guesses(monkeypatch, sign * 2.0**-18.5))


def test_both_values_of_a_pair_share_an_extension():
    """Undecided values of one pair are refined with the same bits, so that the pair stays independent normals."""
    values = np.random.default_rng(2).normal(size=100_000)
    first = rounded_gaussian(values, SeededStream(6), std=1.0)
    assert abs(np.corrcoef(first[:50_000] - values[:50_000], first[50_000:] - values[50_000:])[0, 1]) < 0.03


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7, 70_001])
def test_a_result_may_take_the_place_of_the_values(size, dtype):
    values = np.linspace(-1, 1, size).astype(dtype)
    usual = rounded_gaussian(values, SeededStream(7), std=0.8)
    rounded_gaussian(values, SeededStream(7), std=0.8, out=values)
    assert np.array_equal(values, usual)


@pytest.mark.parametrize("out", [np.empty(3), np.empty(4, np.float32), np.empty((4, 2))[:, 0]])
def test_a_place_that_does_not_fit_is_refused(out):
    with pytest.raises(InvalidInput, match="out must be"):
        rounded_gaussian(np.zeros(4), SeededStream(7), std=0.8, out=out)


def test_refining_shifts_nothing_that_is_drawn_later():
    few, many = SeededStream(8), SeededStream(8)
    rounded_gaussian(np.zeros(50_000, np.float32), few, std=1.0)
    rounded_gaussian(np.full(50_000, 0.3, np.float32), many, std=1.0)
    assert np.array_equal(few.bits(4), many.bits(4))


@pytest.mark.parametrize("std", [1.0, 1.3, 2.0**-60, 3e20, 0.1])
def test_the_grid_is_a_power_of_two_below_the_noise(std):
    tau, grid = grid_of(std)
    assert std <= tau <= std * (1 + 2.0**-22)
    assert math.frexp(grid)[0] == 0.5
    assert 16 <= tau / grid < 32


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(InvalidInput, match="values must be finite"):
        rounded_gaussian(np.array([0.0, bad]), SeededStream(0), std=1.0)


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan, math.inf])
def test_bad_noise_is_refused(std):
    with pytest.raises(InvalidInput, match="std must be"):
        rounded_gaussian(np.zeros(2), SeededStream(0), std=std)
