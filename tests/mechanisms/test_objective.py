import numpy as np
import pytest
from scipy import stats

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Gaussian, ObjectivePerturbation
from tacit.relation import Relation
from tacit.tradeoff.gaussian import gaussian_delta

GRID = [ObjectivePerturbation(m, v) for m in (0.5, 2.0, 40.0) for v in (0.0, 0.02, 0.5)]


def _quadrature(mechanism, epsilon):
    """E (1 - e^{epsilon - L})_+ for L = log_volume + max(0, mu^2 / 2 + mu Z)."""
    mu = 1 / mechanism.noise_multiplier
    z = np.linspace(-12, 12, 400_001)
    loss = mechanism.log_volume + np.maximum(0, mu * mu / 2 + mu * z)
    return float((np.maximum(-np.expm1(np.minimum(epsilon - loss, 0)), 0) * stats.norm.pdf(z)).sum() * (z[1] - z[0]))


@pytest.mark.parametrize("mechanism", GRID, ids=repr)
def test_the_closed_profile_is_that_of_the_loss_and_the_pair(mechanism):
    exact = accountant("pld")(mechanism)
    for epsilon in (0.0, 0.01, 0.3, 1.0, 4.0):
        closed = mechanism.delta_at(epsilon, Relation.ADD_REMOVE)
        assert closed == pytest.approx(_quadrature(mechanism, epsilon), rel=1e-4, abs=1e-7)
        assert float(exact.delta(epsilon)) == pytest.approx(closed, rel=1e-5, abs=1e-12)
    for delta in (1e-3, 1e-6):
        epsilon = mechanism.epsilon_at(delta, Relation.ADD_REMOVE)
        assert epsilon == 0 or mechanism.delta_at(epsilon, Relation.ADD_REMOVE) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("mechanism", GRID, ids=repr)
def test_renyi_divergences_are_those_of_the_loss(mechanism):
    mu = 1 / mechanism.noise_multiplier
    orders = np.array([1.5, 2.0, 4.0, 8.0])
    z = np.linspace(-14, 14 + 8 * mu, 400_001)
    loss = mechanism.log_volume + np.maximum(0, mu * mu / 2 + mu * z)
    for order, stated in zip(orders, mechanism.rdp(orders, Relation.ADD_REMOVE), strict=True):
        moment = (np.exp((order - 1) * loss + stats.norm.logpdf(z))).sum() * (z[1] - z[0])
        assert stated == pytest.approx(np.log(moment) / (order - 1), rel=1e-4, abs=1e-9)


def test_without_volume_it_costs_what_a_gaussian_step_costs():
    step = ObjectivePerturbation(2.0, 0.0)
    assert step.delta_at(0.3, Relation.ADD_REMOVE) == pytest.approx(gaussian_delta(0.3, 0.5))
    pair = accountant("pld")(step + Gaussian(3.0)).epsilon(1e-5)
    assert pair.lower <= pair.upper
    assert float(pair) >= float(accountant("pld")(Gaussian(2.0) + Gaussian(3.0)).epsilon(1e-5)) * (1 - 1e-6)


def test_corners_and_replacement_add_up():
    many = ObjectivePerturbation(2.0, 0.1, 3)
    assert many.delta_at(1.0, Relation.ADD_REMOVE) == pytest.approx(3 * gaussian_delta(0.9, 0.5))
    replaced = 9 * gaussian_delta(1.9, 1.0) + 6 * gaussian_delta(1.9, 0.5)
    assert many.delta_at(2.0, Relation.REPLACE_ONE) == pytest.approx(replaced)
    with pytest.raises(Refused, match="dominating pair"):
        accountant("pld")(many)
    assert float(accountant("rdp")(many, relation="replace_one").epsilon(1e-6)) >= many.epsilon_at(
        1e-6, Relation.REPLACE_ONE
    )


def test_profiles_fall_and_spec_returns():
    mechanism = ObjectivePerturbation(1.5, 0.4, 2)
    deltas = [mechanism.delta_at(e, Relation.REPLACE_ONE) for e in np.linspace(0, 6, 200)]
    assert np.all(np.diff(deltas) <= 1e-15)
    assert 0 < deltas[0] <= 1
    ledger = Ledger.of(mechanism)
    assert Ledger.from_spec(ledger.spec()).mechanism == ledger.mechanism
    assert mechanism.epsilon_at(0.0, Relation.ADD_REMOVE) == float("inf")


@pytest.mark.parametrize(
    "values", [(0.0, 0.1, 1), (float("nan"), 0.1, 1), (1.0, -0.1, 1), (1.0, 0.1, 0), (1.0, 0.1, 1.5)]
)
def test_bad_parameters(values):
    with pytest.raises(InvalidInput, match="must be"):
        ObjectivePerturbation(*values)
