"""`check_accountant`: what every accountant must satisfy, whatever it reads."""

import math

import pytest

from tacit.accounting import Accountant, Ledger
from tacit.errors import InvalidInput, NotABound, Refused
from tacit.mechanisms import Gaussian, Laplace
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff.gaussian import gaussian_epsilon

DELTA = 1e-5


def check_accountant(accountant: Accountant) -> None:
    """Run the whole suite on one accountant."""
    _nothing_costs_nothing(accountant)
    _bad_input_is_refused(accountant)
    for build in (_gaussian, _poisson, _laplace):
        try:
            accountant(build(1.0, 10))
        except Refused:
            continue
        _monotone(accountant, build)
        _self_consistent(accountant, build)
    _against_closed_form(accountant)
    _standing_is_kept(accountant)


def _gaussian(noise, steps):
    return Gaussian(noise) * steps


def _poisson(noise, steps):
    return Gaussian(noise).poisson(0.02) * steps


def _laplace(noise, steps):
    return Laplace(noise) * steps


def _nothing_costs_nothing(accountant):
    assert accountant(Ledger()).epsilon(DELTA) == pytest.approx(0.0, abs=1e-6)


def _bad_input_is_refused(accountant):
    curve = accountant(Ledger.of(Gaussian(2.0)))
    for bad in (2.0, -1e-5, math.nan, "1", True):
        with pytest.raises(InvalidInput, match=r"delta must be in \[0, 1\]; got"):
            curve.epsilon(bad)
    for bad in (-1.0, math.nan, math.inf, "1"):
        with pytest.raises(InvalidInput, match="epsilon must be in"):
            curve.delta(bad)


def _monotone(accountant, build):
    noises = [accountant(build(noise, 20)).epsilon(DELTA) for noise in (0.7, 1.0, 2.0, 5.0)]
    assert noises == sorted(noises, reverse=True)
    steps = [accountant(build(1.0, count)).epsilon(DELTA) for count in (1, 2, 10, 100)]
    assert steps == sorted(steps)
    deltas = [accountant(build(1.0, 20)).epsilon(delta) for delta in (1e-12, 1e-8, 1e-5, 1e-2, 1.0)]
    assert deltas == sorted(deltas, reverse=True)
    assert deltas[-1] == 0.0


def _self_consistent(accountant, build):
    curve = accountant(build(2.0, 10))
    epsilon = curve.epsilon(DELTA)
    assert curve.delta(float(epsilon) * (1 + 1e-6)) <= DELTA * (1 + 1e-6)
    assert curve.delta(0.0) == pytest.approx(float(curve.advantage()))
    betas = [float(curve.beta(alpha)) for alpha in (0.0, 0.01, 0.1, 0.5, 1.0)]
    assert betas == sorted(betas, reverse=True)
    assert betas[-1] == pytest.approx(0.0, abs=1e-12)
    assert all(beta <= 1 - alpha + 1e-12 for beta, alpha in zip(betas, (0.0, 0.01, 0.1, 0.5, 1.0), strict=True))
    assert float(curve.tpr(0.1)) == pytest.approx(1 - betas[2])
    assert float(curve.bayes_risk(0.5)) == pytest.approx((1 - float(curve.advantage())) / 2)


def _against_closed_form(accountant):
    if accountant.standing is not Standing.PROVEN:
        return
    for noise, steps, relation in ((1.0, 1, Relation.ADD_REMOVE), (3.0, 25, Relation.REPLACE_ONE)):
        curve = accountant(Gaussian(noise) * steps, relation=relation)
        exact = gaussian_epsilon(DELTA, relation.sensitivity * math.sqrt(steps) / noise)
        assert curve.epsilon(DELTA) >= exact * (1 - 1e-9)
        if curve.lower is not None:
            assert curve.lower.epsilon(DELTA) <= exact * (1 + 1e-9)


def _standing_is_kept(accountant):
    ledger = Ledger.of(Gaussian(2.0))
    ledger.mark_unsafe("unsafe_test", Standing.CLAIMED)
    weak = accountant(ledger)
    assert weak.standing is Standing.weakest(accountant.standing, Standing.CLAIMED)
    for read in (lambda: weak.upper, lambda: weak.lower, lambda: weak.epsilon(DELTA).upper):
        with pytest.raises(NotABound):
            read()
    strong = accountant(Ledger.of(Gaussian(2.0)))
    if accountant.standing is not Standing.PROVEN:
        with pytest.raises(NotABound):
            _ = strong.upper
        with pytest.raises(NotABound):
            _ = strong.advantage().lower
        assert strong.epsilon(DELTA).interval == (None, None)
