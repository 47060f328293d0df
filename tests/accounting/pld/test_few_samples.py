"""Steps of very little noise: bounds that tell which steps sampled the record, against the exact engine."""

import pytest

from tacit.accounting import Ledger, account, accountant
from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.simple_bounds import FewSamples, few_samples
from tacit.mechanisms import Gaussian
from tacit.mechanisms.pairs.gaussian import SampledGaussianPair


@pytest.mark.slow_cases("0.06-0.01-100-True", "0.0625-0.001-1000-True")
@pytest.mark.parametrize("remove", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("sigma", "rate", "steps"), [(0.06, 0.01, 100), (0.05, 0.3, 20), (0.0625, 0.001, 1000)])
def test_bounds_hold_the_exact_value(sigma, rate, steps, remove):
    pair = SampledGaussianPair(sigma, rate, remove)
    exact, quick = Dispatch([(pair, steps)]), FewSamples(pair, steps)
    for delta in (1e-3, 1e-5, 1e-10):
        (low, high), (least, most) = quick.epsilon(delta), exact.epsilon(delta)
        assert low <= most
        assert least <= high
        assert not remove or high <= 1.1 * low
        assert quick.delta(high)[1] <= delta * (1 + 1e-6)


def test_only_steps_of_little_noise_are_bounded_so():
    assert few_samples([(SampledGaussianPair(0.1, 0.01, True), 10)]) is None
    assert few_samples([(SampledGaussianPair(0.01, 0.01, True), 10), (SampledGaussianPair(1.0, 0.01, True), 1)]) is None
    assert few_samples([(SampledGaussianPair(0.01, 0.01, True), 10)]) is not None


@pytest.mark.parametrize("noise_multiplier", [1e-12, 1e-5, 1e-3, 0.01, 0.05])
def test_every_accountant_answers_or_says_why_not(noise_multiplier):
    found = account(Ledger.of(Gaussian(noise_multiplier).poisson(0.1) * 100), delta=1e-5, accountants=["pld", "clt"])
    assert len(found.results) == 2
    assert found.results[0].epsilon >= found.results[0].epsilon_lower > 4000


def test_an_accountant_out_of_its_range_leaves_the_others_their_answers(monkeypatch):
    def beyond(*_):
        raise OverflowError("too large")

    monkeypatch.setattr(type(accountant("rdp")), "curve", beyond)
    found = account(Ledger.of(Gaussian(1.0)), delta=1e-5, accountants=["rdp", "pld"])
    assert [result.tradeoff.source for result in found.results] == ["pld"]
    assert found.refused == (("rdp", "rdp cannot compute with numbers of this size: too large"),)
