"""The Bayesian accountant: its formulas, and that nothing reads it as a guarantee."""

import math

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import Ledger
from tacit.accounting.bayesian import EXPONENTS, Bayesian
from tacit.errors import InvalidInput, NotABound, Refused
from tacit.mechanisms import Gaussian

RATE, SIGMA, CLIP, STEPS = 64 / 60000, 1.3, 2.0, 50
RAN = Gaussian(SIGMA).poisson(RATE) * STEPS


def _observed(accountant, differences, steps=STEPS):
    for _ in range(steps):
        accountant.observe(differences, sample_rate=RATE, noise_multiplier=SIGMA, clip_norm=CLIP)
    return accountant


def test_equal_pairs_give_the_generic_accountant():
    """With every difference of norm C the estimate has no spread, so v1 is equation 7 of the paper."""
    estimate = _observed(Bayesian(), np.full(64, CLIP))(RAN)
    costs = STEPS * RATE**2 * EXPONENTS * (EXPONENTS + 1) / (2 * SIGMA**2)
    expected = np.min((costs + math.log(1e5)) / EXPONENTS)
    assert float(estimate.epsilon(1e-5)) == pytest.approx(expected, rel=1e-6)


def test_student_t_term_against_a_plain_loop():
    rng = np.random.default_rng(7)
    vectors = rng.normal(size=(16, 5))
    failure = 1e-6
    accountant = _observed(Bayesian(failure=failure), vectors, steps=1)
    squares = np.array([sum(x * x for x in row) for row in vectors]) / (SIGMA * CLIP) ** 2
    for index in (0, 9, 40):
        order = EXPONENTS[index]
        exponentials = [math.exp(RATE**2 * order * (order + 1) * s / 2) for s in squares]
        mean = sum(exponentials) / 16
        deviation = math.sqrt(sum((e - mean) ** 2 for e in exponentials) / 16)
        upper = mean + stats.t.ppf(1 - failure, 15) * deviation / math.sqrt(15)
        assert accountant._costs[index] == pytest.approx(math.log(upper), rel=1e-6)


def test_hoelder_form_against_a_plain_loop():
    squares = np.array([0.5, 1.0, 2.0]) ** 2 / (SIGMA * CLIP) ** 2
    accountant = _observed(Bayesian(version="v2", steps=STEPS), np.array([0.5, 1.0, 2.0]), steps=1)
    index = 4
    order = int(EXPONENTS[index])

    def moment(trials, sign, s):
        return sum(
            math.comb(trials, k) * RATE**k * (1 - RATE) ** (trials - k) * math.exp(k * (k + sign) * s / 2)
            for k in range(trials + 1)
        )

    exponentials = [max(moment(order + 1, -1, s), moment(order, 1, s)) ** STEPS for s in squares]
    mean, deviation = np.mean(exponentials), np.std(exponentials)
    upper = mean - stats.t.ppf(1e-16, 2) * deviation / math.sqrt(2)
    assert accountant._costs[index] == pytest.approx(math.log(upper) / STEPS, rel=1e-6)


def test_outliers_are_hidden_by_the_average():
    """Soundness review S4: 0.1 % of records with norm 1, the others .01; the exact worst case is above .46."""
    rng = np.random.default_rng(0)
    accountant = Bayesian()
    for _ in range(100):
        norms = np.where(rng.random(64) < 1e-3, 1.0, 0.01)
        accountant.observe(norms, sample_rate=RATE, noise_multiplier=1.0, clip_norm=1.0)
    accountant._costs *= 9375 / 100
    accountant.observed = 9375
    estimate = accountant(Gaussian(1.0).poisson(RATE) * 9375)
    assert float(estimate.epsilon(1e-5)) < 0.3
    with pytest.raises(NotABound):
        _ = estimate.upper


def test_steps_that_were_not_observed_are_refused():
    with pytest.raises(Refused, match="needs the gradient differences"):
        Bayesian()(Ledger.of(RAN))
    with pytest.raises(Refused, match="set up for 60 steps"):
        _observed(Bayesian(version="v2", steps=60), np.ones(8))(RAN)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Bayesian(version="v3"),
        lambda: Bayesian(version="v2"),
        lambda: Bayesian(steps=3),
        lambda: Bayesian().observe(np.ones(2), sample_rate=0.1, noise_multiplier=1.0, clip_norm=1.0),
        lambda: Bayesian().observe(np.array([1, 2, np.nan]), sample_rate=0.1, noise_multiplier=1.0, clip_norm=1.0),
        lambda: Bayesian().observe(np.ones(4), sample_rate=0.0, noise_multiplier=1.0, clip_norm=1.0),
    ],
)
def test_bad_input(call):
    with pytest.raises(InvalidInput):
        call()
