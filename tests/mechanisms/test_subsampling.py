"""Amplification by sampling in closed form."""

import math

import pytest

from tacit.accounting import accountant
from tacit.mechanisms import Laplace


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.9])
def test_sampling_amplifies_a_pure_guarantee_as_the_theorem_says(rate):
    """log(1 + p (e^epsilon - 1)); p epsilon would be less than what leaks."""
    amplified = accountant("naive")(Laplace(1.0).poisson(rate)).epsilon(0.0)
    assert float(amplified) == pytest.approx(math.log1p(rate * math.expm1(1.0)), rel=1e-12)
    assert float(accountant("pld")(Laplace(1.0).poisson(rate)).epsilon(1e-12).lower) <= float(amplified)
