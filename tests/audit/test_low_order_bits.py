"""Low-order bits: what floating-point noise gives away, exactly."""

import pytest
from benchmarks.low_order_bits import CASES, measured

EXACT = ["input perturbation, epsilon .1", "training step, noise 8", "randomised response", "output chaudhuri"]


@pytest.mark.parametrize("name", [*EXACT, "objective pure", "count, discrete Laplace"])
def test_low_order_bits_of_exact_releases_tell_nothing_beyond_what_is_certified(name):
    """A slice of `benchmarks/low_order_bits.py`; false alarms below 1e-6 each."""
    case = CASES[name]()
    assert measured(case, 100, confidence=1 - 1e-6) <= case.certified


def test_the_same_scores_refute_noise_in_floating_point():
    """The noise of a certified epsilon of 1."""
    assert measured(CASES["input perturbation, epsilon 1, floats"](), 400) > 1.0
