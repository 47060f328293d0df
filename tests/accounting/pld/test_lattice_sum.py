"""The lattice's own bounds hold without the rounding allowance that answers add: its error terms are not for show."""

import mpmath
import numpy as np
import pytest

from tacit.accounting.pld.fft import Convolution
from tacit.mechanisms import RandomizedResponse
from tacit.relation import Relation


def exact(epsilon, steps, at):
    """delta of `steps` randomised responses to 40 digits: losses are epsilon times the surplus of kept answers."""
    with mpmath.workdps(40):
        keep = mpmath.exp(epsilon) / (1 + mpmath.exp(epsilon))
        total = mpmath.mpf(0)
        for kept in range(steps + 1):
            loss = mpmath.mpf(epsilon) * (2 * kept - steps)
            if loss > at:
                mass = mpmath.binomial(steps, kept) * keep**kept * (1 - keep) ** (steps - kept)
                total += mass * (1 - mpmath.exp(at - loss))
        return total


@pytest.mark.parametrize(("epsilon", "steps"), [(0.5, 40), (0.5, 60)])
def test_bounds_hold_the_exact_value_to_the_last_digit(epsilon, steps):
    (pair,) = {*RandomizedResponse(epsilon).dominating_pairs(Relation.REPLACE_ONE)}
    convolution = Convolution([(pair, steps)])
    bracket = convolution.bracket(convolution.saddle_for_delta(1e-3))
    for at in np.linspace(0.05, 0.6, 60) * epsilon * steps:
        low, high = bracket.bounds(float(at))
        assert low <= exact(epsilon, steps, float(at)) <= high
        assert high - low <= 1e-6 * high
