"""Correlated noise: errors and sensitivities against published numbers, costs against brute force."""

import itertools
import math

import numpy as np
import pytest

from tacit.accounting import accountant
from tacit.errors import InvalidInput
from tacit.mechanisms import CyclicAllocation, CyclicPoisson, Gaussian, MatrixGaussian, ToeplitzStrategy, from_spec
from tacit.noise.strategy import banded, buffered, prefix_error, square_root, tree_error

# correlated-noise.md 1.6: rmse and max of n = 1000, unit sensitivity.
BANDED = {
    1: (22.371857, 31.622777),
    2: (15.920322, 22.454467),
    4: (11.431001, 16.040656),
    8: (8.351642, 11.599520),
    16: (6.278162, 8.566790),
    32: (4.910722, 6.525263),
    64: (4.034868, 5.173607),
    100: (3.659600, 4.567558),
}
NORMALISED = {2: 15.920271, 4: 11.430759, 8: 8.350844, 16: 6.276030, 32: 4.905844, 64: 4.024987, 100: 3.644884}
LONG = [(2000, 64, 5.125208), (5000, 32, 9.645555), (10000, 8, 25.306851), (10000, 64, 9.852663)]
SEPARATED = [  # n, separation, participations, square root, its sensitivity, banded, banded square root.
    (1000, 100, 10, 15.716159, 9.154043, 11.572671, 12.103189),
    (1000, 100, 5, 10.059464, None, 8.183114, 8.558247),
    (2000, 100, 20, 30.596538, None, 20.206693, 22.189548),
    (2000, 50, 40, 58.825704, None, 35.061803, 40.119427),
]
# 2.5: sigma -> epsilon at delta 1e-5 for n = 1000, 60000 records, batches of 600 and b = 1, 8, 32, 100.
CYCLIC = {
    0.8: (3.141014, 9.821440, 18.618342, 23.995359),
    1.0: (1.828237, 6.228375, 12.788545, 17.856587),
    2.0: (0.622030, 2.052082, 4.582398, 7.511276),
    4.0: (0.272136, 0.866686, 1.911720, 3.341409),
}


def matrix(strategy):
    """C, entry by entry."""
    n = strategy.iterations
    columns = np.zeros((n, n))
    for k, value in enumerate(strategy.coefficients):
        columns += value * np.eye(n, k=-k)
    return columns / strategy.scales


def errors(strategy):
    """Mean and largest error of a prefix sum."""
    return prefix_error(strategy), strategy.squared_errors().max() ** 0.5


@pytest.mark.parametrize("bands", BANDED)
def test_banded_strategies_reach_the_reference_errors(bands):
    assert errors(banded(1000, bands, normalised=False)) == pytest.approx(BANDED[bands], abs=1e-6)
    if bands in NORMALISED:
        assert prefix_error(banded(1000, bands)) == pytest.approx(NORMALISED[bands], abs=1e-6)


@pytest.mark.parametrize(("n", "bands", "rmse"), LONG)
def test_long_banded_strategies_reach_the_reference_errors(n, bands, rmse):
    assert prefix_error(banded(n, bands, normalised=False)) == pytest.approx(rmse, abs=1e-6)


def test_coefficients_of_banded_strategies():
    assert banded(1000, 2).coefficients == pytest.approx((0.750153, 0.661265), abs=1e-6)
    assert banded(1000, 4).coefficients == pytest.approx((0.587019, 0.503511, 0.468188, 0.427417), abs=1e-6)


def test_the_square_root_trees_and_buffers_reach_the_reference_errors():
    assert errors(square_root(1000)) == pytest.approx((3.102239, 3.265003), abs=1e-6)
    assert prefix_error(square_root(10000)) == pytest.approx(3.835611, abs=1e-6)
    assert tree_error(1000) == pytest.approx(5.357328, abs=1e-6)
    assert tree_error(10000) == pytest.approx(7.131013, abs=1e-6)
    for buffers, mean, largest in ((2, 3.075844, 3.399650), (3, 3.051082, 3.349271)):
        assert errors(buffered(1000, buffers)) == pytest.approx((mean, largest), rel=1e-4)


@pytest.mark.parametrize(("n", "separation", "participations", "root", "norm_of_root", "best", "cut"), SEPARATED)
def test_separated_participations_reach_the_reference_errors(
    n, separation, participations, root, norm_of_root, best, cut
):
    schema = {"participations": participations, "separation": separation}

    def error(strategy):
        return strategy.sensitivity(**schema) * prefix_error(strategy)

    whole = square_root(n)
    assert error(whole) == pytest.approx(root, rel=1e-7)
    if norm_of_root:
        assert whole.sensitivity(**schema) * whole.scales[0] == pytest.approx(norm_of_root, rel=1e-6)
    assert error(banded(n, separation, normalised=False)) == pytest.approx(best, rel=1e-6)
    first = ToeplitzStrategy(n, whole.coefficients[:separation], normalised=False)
    assert error(first) == pytest.approx(cut, rel=1e-7)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("coefficients", [(1.0, 0.5), (0.7, -0.3, 0.2), (1.0, 0.8, 0.5, 0.3)])
def test_errors_and_norms_agree_with_the_matrix_itself(coefficients, normalised):
    strategy = ToeplitzStrategy(12, coefficients, normalised)
    dense = matrix(strategy)
    released = np.tril(np.ones((12, 12))) @ np.linalg.inv(dense)
    assert strategy.squared_errors() == pytest.approx((released**2).sum(axis=1), rel=1e-10)
    assert strategy.column_norms == pytest.approx(np.linalg.norm(dense, axis=0), rel=1e-8)
    assert strategy.column_norms.max() <= 1 + 1e-8


@pytest.mark.parametrize("coefficients", [(1.0, 0.5), (0.7, -0.3, 0.2), (0.3, 1.0, 0.5, 0.3), (1.0, 0.9, 0.8, 0.7)])
@pytest.mark.parametrize("separation", [1, 2, 3, 4])
def test_sensitivity_bounds_every_pattern_and_sign(coefficients, separation):
    """Brute force over every allowed pattern and every sign of scalar gradients."""
    strategy = ToeplitzStrategy(8, coefficients, normalised=False)
    bound = strategy.sensitivity(participations=3, separation=separation)
    dense = matrix(strategy)
    for count in (1, 2, 3):
        for pattern in itertools.combinations(range(8), count):
            if all(b - a >= separation for a, b in itertools.pairwise(pattern)):
                for signs in itertools.product((1, -1), repeat=count):
                    assert np.linalg.norm(dense[:, pattern] @ np.array(signs)) <= bound


@pytest.mark.parametrize("sigma", CYCLIC)
def test_cyclic_poisson_costs_what_the_reference_says(sigma):
    for bands, epsilon in zip((1, 8, 32, 100), CYCLIC[sigma], strict=True):
        rate = min(bands * 600 / 60000, 1.0)
        run = MatrixGaussian(sigma, ToeplitzStrategy(1000, (1.0,) * min(bands, 2)))
        found = accountant("pld")(CyclicPoisson(run, bands, rate) * 1000).epsilon(1e-5)
        # 1000 steps of 32 groups give the first group 32 turns.
        assert found == pytest.approx(epsilon, rel=1e-6)


def test_cyclic_allocation_costs_what_the_reference_says():
    for sigma, low, high in ((1.0, 5.555853, 5.558388), (0.8, 8.670587, 8.673132)):
        run = MatrixGaussian(sigma, ToeplitzStrategy(960, (1.0, 0.5)))
        found = accountant("pld")(CyclicAllocation(run, 8, 12) * 960).epsilon(1e-5)
        assert found.lower <= high
        assert found.upper >= low
        assert found.upper - found.lower <= 1e-3 * found.upper


def test_cyclic_poisson_agrees_with_a_likelihood_in_four_dimensions():
    """n = 4, two bands: H_a(P, Q) of the whole noisy path, by simulation of C x + z; false alarm 6e-5."""
    sigma, rate, epsilon = 1.0, 0.3, 0.5
    strategy = ToeplitzStrategy(4, (1.0, 0.6))
    dense = matrix(strategy)
    patterns = [
        (chosen, math.prod(rate if bit else 1 - rate for bit in chosen)) for chosen in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    draw = np.random.default_rng(3)
    y = sigma * draw.standard_normal((400_000, 4))
    ratio = np.zeros(len(y))
    for chosen, weight in patterns:
        x = dense @ np.array([chosen[0], 0, chosen[1], 0])
        ratio += weight * np.exp(y @ x / sigma**2 - x @ x / (2 * sigma**2))
    sample = np.maximum(ratio - math.exp(epsilon), 0)
    found = accountant("pld")(CyclicPoisson(MatrixGaussian(sigma, strategy), 2, rate) * 4).delta(epsilon)
    assert abs(sample.mean() - found) <= 4 * sample.std() / math.sqrt(len(sample))


def test_a_pattern_that_the_bands_do_not_allow_costs_more_than_orthogonal_columns():
    """The reason for the check of bands against groups: consecutive columns overlap."""
    dense = matrix(ToeplitzStrategy(4, (1.0, 0.6)))
    assert np.linalg.norm(dense[:, 0] + dense[:, 1]) > math.sqrt(2)
    with pytest.raises(InvalidInput, match="groups must be at least the 2 bands"):
        CyclicPoisson(MatrixGaussian(1.0, ToeplitzStrategy(4, (1.0, 0.6))), 1, 0.5)
    with pytest.raises(InvalidInput, match="bands of a normalised matrix"):
        ToeplitzStrategy(4, (1.0, 0.6)).sensitivity(participations=2, separation=1)


def test_strategies_that_understate_the_last_columns_are_refused():
    with pytest.raises(InvalidInput, match="strategy must be normalised"):
        CyclicPoisson(MatrixGaussian(1.0, ToeplitzStrategy(5, (1.0, 0.6), normalised=False)), 2, 0.5)
    CyclicPoisson(MatrixGaussian(1.0, ToeplitzStrategy(6, (1.0, 0.6), normalised=False)), 2, 0.5)


def test_single_and_separated_participations_are_gaussian_releases():
    run = MatrixGaussian(2.0, banded(100, 10))
    assert accountant("pld")(run).epsilon(1e-5) == pytest.approx(
        accountant("pld")(Gaussian(2.0)).epsilon(1e-5), rel=1e-6
    )
    assert run.min_separation(5, 20).noise_multiplier == pytest.approx(2.0 / math.sqrt(5), rel=1e-8)
    # A step more than the strategy has, or one of another run, is not of this matrix.
    with pytest.raises(InvalidInput, match="at most the strategy's 100 iterations"):
        accountant("pld")(CyclicPoisson(run, 10, 0.1) * 101)
    two = CyclicPoisson(run, 10, 0.1) * 5 + CyclicPoisson(run, 10, 0.1, series=1) * 5
    assert two.accountable().steps[0][1] == 2


@pytest.mark.parametrize("sampled", [None, "cyclic_poisson", "cyclic_allocation"])
def test_specs_survive_json(sampled):
    run = MatrixGaussian(2.0, banded(20, 4))
    step = {
        None: run,
        "cyclic_poisson": CyclicPoisson(run, 5, 0.25, series=1),
        "cyclic_allocation": CyclicAllocation(run, 5, 2),
    }[sampled]
    assert from_spec(step.spec() | {"steps": 3}) == (step, 3)
    with pytest.raises(InvalidInput, match="cap"):
        from_spec(step.spec() | {"cap": 3})


def worst_pattern(coefficients, n, often, apart):
    """The largest norm over all patterns and signs, by trial."""
    columns = sum(value * np.eye(n, k=-k) for k, value in enumerate(coefficients))
    found = 0.0
    for count in range(1, often + 1):
        for steps in itertools.combinations(range(n), count):
            if all(b - a >= apart for a, b in itertools.pairwise(steps)):
                for signs in itertools.product((1, -1), repeat=count):
                    found = max(found, float(np.linalg.norm(columns[:, steps] @ signs)))
    return found


@pytest.mark.parametrize("coefficients", [(1.0, 2.0, 1.0), (1.0, -0.5, 0.3), (1.0, 0.5, 0.8), (1.0, -0.9, 0.1, 0.7)])
@pytest.mark.parametrize(("often", "apart"), [(2, 1), (3, 1), (6, 1), (2, 2), (3, 2)])
def test_the_sensitivity_of_any_coefficients_lies_between_the_worst_pattern_and_the_peer_s(coefficients, often, apart):
    n = 6
    strategy = ToeplitzStrategy(n, coefficients, normalised=False)
    found = strategy.sensitivity(participations=often, separation=apart) * strategy.scales[0]
    assert found >= worst_pattern(coefficients, n, often, apart) * (1 - 1e-12)
    # Their bound, by its definition: the best pattern of rows, each with its own best pattern of columns.
    columns = sum(value * np.eye(n, k=-k) for k, value in enumerate(coefficients))
    patterns = [
        np.isin(np.arange(n), steps)
        for count in range(1, often + 1)
        for steps in itertools.combinations(range(n), count)
        if all(b - a >= apart for a, b in itertools.pairwise(steps))
    ]
    rows = np.max([np.abs(columns.T @ columns) @ chosen for chosen in patterns], axis=0)
    assert found <= max(float(rows @ chosen) for chosen in patterns) ** 0.5 * (1 + 1e-8)
