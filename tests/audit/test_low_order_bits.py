"""Low-order bits: what floating-point noise gives away, exactly."""

import numpy as np
import pytest
import torch
from benchmarks.low_order_bits import CASES, measured

from tacit.attacks import Scores
from tacit.audit import LowOrderBits, audit_scores, reachable
from tacit.errors import InvalidInput
from tacit.noise import SeededStream

DIVISOR = 37.3


def released(constant, std, count=20_000, seed=0):
    noise = torch.from_numpy(SeededStream(seed).normal(count, np.float32))
    return torch.full((count,), constant).add_(noise, alpha=std).div_(DIVISOR).numpy()


@pytest.mark.parametrize(("constant", "std"), [(0.0, 1.3), (0.7, 1.3), (1.0, 10.0), (2.5, 0.01)])
def test_what_a_sum_produced_is_always_reachable_from_it(constant, std):
    assert reachable(released(constant, std), constant, std=std, divisor=DIVISOR).all()


def test_values_that_the_other_sum_cannot_produce_are_found():
    """Of floats around 0 more are made without the constant, of the others some by it alone."""
    without, with_one = released(0.0, 2.59), released(1.0, 2.59, seed=1)
    assert (~reachable(without, 1.0, std=2.59, divisor=DIVISOR)).mean() > 0.05
    assert (~reachable(with_one, 0.0, std=2.59, divisor=DIVISOR)).mean() > 0.05


def test_many_coordinates_refute_a_claim_about_real_numbers():
    """20 coordinates a canary: a true-positive rate near 1 without false positives."""
    out, inside = (LowOrderBits(2.59, DIVISOR, 1.0) for _ in range(2))
    for step in range(20):
        out.add(released(0.0, 2.59, 500, 2 * step))
        inside.add(released(1.0, 2.59, 500, 2 * step + 1))
    assert out.total.max() <= 0
    scores = Scores("low_order_bits", inside.total, out.total, 0.5)
    assert audit_scores(scores, delta=1e-5, trials="independent").advantage > 0.8


def test_bad_arguments_are_refused():
    with pytest.raises(InvalidInput, match="std must be"):
        reachable(np.zeros(1, np.float32), 0.0, std=0.0, divisor=1.0)


EXACT = ["input perturbation, epsilon .1", "training step, noise 8", "randomised response", "output chaudhuri"]


@pytest.mark.parametrize("name", [*EXACT, "objective pure", "count, discrete Laplace"])
def test_low_order_bits_of_exact_releases_tell_nothing_beyond_what_is_certified(name):
    """A slice of `benchmarks/low_order_bits.py`; false alarms below 1e-6 each."""
    case = CASES[name]()
    assert measured(case, 100, confidence=1 - 1e-6) <= case.certified


def test_the_same_scores_refute_noise_in_floating_point():
    """The noise of a certified epsilon of 1."""
    assert measured(CASES["input perturbation, epsilon 1, floats"](), 400) > 1.0
