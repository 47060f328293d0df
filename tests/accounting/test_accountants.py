"""Every accountant: the conformance suite, and the papers' published figures."""

import math

import numpy as np
import pytest

from tacit.accounting import ACCOUNTANTS, Ledger, account, accountant
from tacit.calibration import noise_multiplier
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian, Laplace
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.tradeoff.gaussian import gaussian_delta
from tests.conformance.accountant import check_accountant

TABLE_1 = [  # sigma, epochs, mu, CLT epsilon, MA epsilon (Bu et al., Table 1)
    (1.3, 15, 0.23, 0.83, 1.19),
    (1.1, 60, 0.57, 2.32, 3.01),
    (0.7, 45, 1.13, 5.07, 7.10),
    (0.6, 62, 2.00, 9.98, 13.27),
    (0.55, 68, 2.76, 14.98, 18.72),
    (0.5, 100, 4.78, 31.12, 32.40),
]


@pytest.mark.parametrize("name", sorted(ACCOUNTANTS.keys() - {"bayesian"}))  # it needs data: test_bayesian.py
def test_conformance(name):
    check_accountant(accountant(name))


@pytest.mark.parametrize(("sigma", "epochs", "mu", "clt", "moments"), TABLE_1)
def test_table_1_of_bu_et_al_to_the_printed_digits(sigma, epochs, mu, clt, moments):
    rate = 256 / 60000
    ran = Gaussian(sigma).poisson(rate) * round(epochs / rate)
    limit = accountant("clt")(ran)
    assert round(float(limit.mu()), 2) == mu
    assert round(float(limit.epsilon(1e-5)), 2) == clt
    assert round(float(accountant("moments")(ran).epsilon(1e-5)), 2) == moments


def test_the_classical_gaussian_formula_understates_where_jayaraman_and_evans_use_it_last():
    sigma = noise_multiplier(Epsilon(1000, 1e-5), steps=100, using="naive_je").value
    assert accountant("naive")(Gaussian(sigma) * 100).epsilon(1e-5) > 1000


def test_generic_row_of_triastcyn_and_faltings():
    ran = Gaussian(1.0).poisson(64 / 60000) * 93750
    claimed = accountant("generic")(ran)
    assert round(float(claimed.epsilon(1e-5)), 2) == 1.62
    assert claimed.standing is Standing.CLAIMED
    assert accountant("generic_sound")(ran).epsilon(1e-5) > 1.6975


def test_moments_row_of_triastcyn_and_faltings():
    ran = Gaussian(1.0).poisson(64 / 60000) * 93750
    assert round(float(accountant("moments")(ran).epsilon(1e-5)), 2) == 2.18


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("naive", {0.1: 5717, 0.5: 1143, 1: 571.7, 5: 114.3, 10: 57.17, 50: 11.43, 100: 5.717, 500: 1.143}),
        ("naive_je", {0.1: 5717, 10: 57.17, 100: 5.717, 500: 1.143, 1000: 0.572}),
        ("advanced_je", {0.1: 2896, 0.5: 588.4, 1: 299.8, 5: 67.74, 10: 37.84, 50: 11.63, 100: 7.454, 500: 2.915}),
        (
            "zcdp",
            {0.1: 480.9, 0.5: 97.0, 1: 49.01, 5: 10.55, 10: 5.679, 50: 1.589, 100: 0.987, 500: 0.368, 1000: 0.249},
        ),
    ],
)
def test_noise_multipliers_of_jayaraman_and_evans(name, published):
    """Their composition runs over 100 epochs of disjoint batches; delta = 1e-5."""
    for epsilon, sigma in published.items():
        found = noise_multiplier(Epsilon(epsilon, 1e-5), steps=100, using=name).value
        assert found == pytest.approx(sigma, rel=1e-3)


def test_renyi_divergence_agrees_with_dp_accounting():
    rdp = pytest.importorskip("dp_accounting.rdp")
    event = pytest.importorskip("dp_accounting")
    orders = [2, 3, 8, 32, 64]
    theirs = rdp.RdpAccountant(orders)
    theirs.compose(event.PoissonSampledDpEvent(0.02, event.GaussianDpEvent(0.9)), 500)
    ours = Gaussian(0.9).poisson(0.02) * 500
    for order, value in zip(orders, theirs._rdp, strict=True):
        assert ours.rdp(np.array([float(order)]), Relation.ADD_REMOVE)[0] == pytest.approx(value, rel=1e-7)


def test_account_asks_everyone_and_reports_refusals():
    answer = account(Ledger.of(Laplace(2.0) * 3), delta=1e-5)
    assert {result.tradeoff.source for result in answer.results} >= {"rdp", "moments", "zcdp", "naive"}
    assert "clt" in dict(answer.refused)


def test_account_at_an_epsilon_gives_delta():
    answer = account(Ledger.of(Gaussian(1.0)), epsilon=1.0, accountants=["rdp", "clt"])
    exact = gaussian_delta(1.0, 1.0)
    assert answer.results[0].delta > exact
    assert answer.results[1].delta == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("arguments", [{}, {"delta": 1e-5, "epsilon": 1.0}, {"delta": 2.0}, {"epsilon": -1.0}])
def test_account_refuses_bad_questions(arguments):
    with pytest.raises(InvalidInput):
        account(Ledger.of(Gaussian(1.0)), **arguments)


def test_no_noise_costs_everything():
    ledger = Ledger.of(Gaussian(0.0, unsafe_no_noise=True).poisson(0.1) * 10)
    for result in account(ledger, delta=1e-5).results:
        assert math.isinf(result.epsilon)
