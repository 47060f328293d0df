"""The heuristic of the last iterate: linear losses by simulation and closed form, and never a bound."""

import math

import numpy as np
import pytest

from tacit.accounting import accountant
from tacit.accounting.classical import LinearLossCurve, last_iterate_heuristic
from tacit.errors import NotABound, Refused
from tacit.mechanisms import Gaussian, Laplace
from tacit.tradeoff.gaussian import gaussian_delta


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.0, 0.1, 20), (0.7, 0.5, 5)])
def test_deltas_are_those_of_sums_of_linear_gradients(sigma, rate, steps):
    rng = np.random.default_rng(0)
    noise, count = math.sqrt(steps) * sigma, 400_000
    places = np.arange(steps + 1)
    masses = np.array([math.comb(steps, k) * rate**k * (1 - rate) ** (steps - k) for k in places])

    def ratio(x):
        return np.exp((places * x[:, None] - places**2 / 2) / noise**2) @ masses

    without = ratio(noise * rng.standard_normal(count))
    curve = LinearLossCurve(sigma, rate, steps)
    for epsilon in (0.0, 0.3, 1.0):
        sides = [np.maximum(without - math.exp(epsilon), 0), np.maximum(1 - math.exp(epsilon) * without, 0)]
        found, error = max((side.mean(), side.std() / math.sqrt(count)) for side in sides)
        assert curve.delta(epsilon) == pytest.approx(found, abs=4 * error)


def test_full_batches_are_the_gaussian_mechanism():
    curve = LinearLossCurve(3.0, 1.0, 25)
    for epsilon in (0.0, 0.5, 3.0, 12.0):
        assert curve.delta(epsilon) == pytest.approx(gaussian_delta(epsilon, 5 / 3), rel=1e-8)


def test_it_is_claimed_and_below_the_proven_number():
    run = Gaussian(1.0).poisson(0.01) * 5000
    guess = last_iterate_heuristic(run).epsilon(1e-5)
    assert 0 < float(guess) < float(accountant("pld")(run).epsilon(1e-5))
    with pytest.raises(NotABound):
        _ = guess.upper


def test_other_runs_are_refused():
    step = Gaussian(1.0).poisson(0.1)
    for mechanism in (step * 3 + Laplace(1.0), step + Gaussian(2.0), Gaussian(1.0).allocated(5) * 5):
        with pytest.raises(Refused, match="one kind of Gaussian step"):
            last_iterate_heuristic(mechanism)
    with pytest.raises(Refused, match="replace_one"):
        last_iterate_heuristic(step, relation="replace_one")
