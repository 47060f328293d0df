"""The trapezoid rule misses no more than it states, at every frequency and in both directions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.special import ndtr

from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.inversion import SaddleLine
from tacit.accounting.pld.schedule_cumulant import Schedule, SharedRule, coarsest_rule, midpoints
from tacit.mechanisms.pairs.gaussian import GaussianReplacePair, SampledGaussianPair

ENDS = (-11.0, 11.0)
SIGMA, RATE = 1.2365586719593802, 0.3409090909090909  # Of a line that once fell short of delta by 3e-5 of itself.


def pairs():
    return [SampledGaussianPair(SIGMA, RATE, remove) for remove in (True, False)] + [GaussianReplacePair(SIGMA, RATE)]


def on_places(pair):
    """The schedule of one step, and the places of the ends."""
    schedule = Schedule.of([(pair, 1)])
    ends = schedule.places(0, ENDS)
    return schedule.between(ends), ends


def transform(schedule, ends, theta, t, step, height):
    """Sum of e^{(theta + it) L} over nodes at this height, and how much rounding it may hold."""
    y, step = midpoints(ends, step)
    (log_mass,), (loss,) = schedule.on_line(y, step, height)
    terms = np.exp(log_mass + (theta + 1j * t) * loss)
    return terms.sum(), 1e-15 * float(np.abs(terms) @ (100 + (theta + t) * np.abs(loss)))


def missed(schedule, ends, rule, theta, moment):
    """What the rule misses at most (Lemma 6.8)."""
    log_mass, loss = schedule.on_line(np.array(ends), 1.0, 0.0)
    at_ends = rule.at_ends(schedule, theta) * np.exp(log_mass + theta * loss).sum()
    return float((rule.relative(schedule, theta) * moment + at_ends)[0])


@settings(max_examples=150, deadline=None)
@given(
    pair=some.sampled_from(pairs()),
    theta=some.floats(0.1, 160.0),
    t=some.floats(0.0, 1000.0),
    step=some.floats(0.05, 0.6),
    depth=some.floats(0.1, 1.5),
    raised=some.booleans(),
)
def test_a_rule_misses_no_more_than_it_states(pair, theta, t, step, depth, raised):
    theta = theta if not pair.symmetric and not pair.remove else theta / 80
    t = t if raised else 0.0
    schedule, ends = on_places(pair)
    height = pair.loss_sign * depth if raised else 0.0
    rule = SharedRule(midpoints(ends, step)[1], depth, height)
    (coarse, rounded), (fine, rounded_too) = (
        transform(schedule, ends, theta, t, *nodes) for nodes in ((step, height), (0.004, 0.0))
    )
    moment = transform(schedule, ends, theta, 0.0, 0.004, 0.0)[0].real
    bound = missed(schedule, ends, rule, theta, moment)
    assert abs(coarse - fine) <= bound * (1 + 1e-9) + rounded + rounded_too


@pytest.mark.parametrize("pair", pairs(), ids=str)
def test_the_chosen_rule_is_as_close_as_was_asked(pair):
    theta, t, tolerance = (1.5, 40.0, -25.0)
    schedule, ends = on_places(pair)
    moment = transform(schedule, ends, theta, 0.0, 0.004, 0.0)[0].real
    log_mass, loss = schedule.on_line(np.array(ends), 1.0, 0.0)
    at_ends = np.exp(log_mass + theta * loss).sum(axis=1) / moment
    rule = coarsest_rule(schedule, theta, tolerance, at_ends, raised=True)
    bound = missed(schedule, ends, rule, theta, moment)
    assert bound <= moment * np.exp(tolerance + 6.5)
    coarse, _ = transform(schedule, ends, theta, t, rule.step, rule.height)
    assert abs(coarse - transform(schedule, ends, theta, t, 0.004, 0.0)[0]) <= bound + 1e-13


def quadrature(epsilon, nodes=600):
    """Delta of three steps that add a record, by Gauss's rule over the noise of two and a closed form of the third."""
    x, weights = np.polynomial.legendre.leggauss(nodes)
    x, weights = 8 * x - 6, 8 * weights
    p = weights * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    loss = -np.log(1 - RATE + RATE * np.exp(x / SIGMA - 0.5 / SIGMA**2))
    left = epsilon - loss[:, None] - loss[None, :]
    place = (np.exp(-left) - 1 + RATE) / RATE
    inside = place > 0
    z = np.where(inside, SIGMA * (np.log(np.where(inside, place, 1.0)) + 0.5 / SIGMA**2), -np.inf)
    value = ndtr(z) - np.exp(left) * ((1 - RATE) * ndtr(z) + RATE * ndtr(z - 1 / SIGMA))
    return float((p[:, None] * p * np.where(inside, value, 0.0)).sum())


@pytest.mark.parametrize("epsilon", [1.1588478248779173, 1.1588472990761185, 1.1, 0.9])
def test_a_line_at_a_large_tilt_holds_a_quadrature(epsilon):
    expected = quadrature(epsilon)
    assert quadrature(epsilon, 900) == pytest.approx(expected, rel=1e-8)
    dispatch = Dispatch([(SampledGaussianPair(SIGMA, RATE, remove=False), 3)])
    line = dispatch.at_epsilon(epsilon).line
    assert isinstance(line, SaddleLine)
    low, high = line.bounds(epsilon)
    assert low * (1 - 1e-8) <= expected <= high * (1 + 1e-8)
    assert high < low * 1.001
