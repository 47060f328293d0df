import numpy as np
import pytest
from scipy import stats

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput
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


CORNERS = [(1, Relation.REPLACE_ONE), (3, Relation.ADD_REMOVE), (10, Relation.REPLACE_ONE)]


@pytest.mark.parametrize(("corners", "relation"), CORNERS)
def test_the_pair_of_many_corners_has_the_profile_of_the_sum(corners, relation):
    """Where that sum is below one; the pair is a union bound too, so neither is reached."""
    step = ObjectivePerturbation(2.0, 0.1, corners)
    bounds = accountant("pld")(step, relation=relation)
    for delta in (1e-2, 1e-5, 1e-10):
        assert bounds.epsilon(delta).upper == pytest.approx(step.epsilon_at(delta, relation), rel=1e-7)
        assert bounds.epsilon(delta).lower < bounds.epsilon(delta).upper


@pytest.mark.parametrize(("corners", "relation"), CORNERS)
def test_masses_of_many_corners_are_those_of_a_law_with_its_likelihood_ratio(corners, relation):
    for pair in ObjectivePerturbation(1.5, 0.2, corners).dominating_pairs(relation):
        edges = np.linspace(-1.0, 20.0, 4001)
        p, q = pair.bin_masses(edges)
        assert p.sum() == pytest.approx(1.0)
        assert q.sum() + pair.negative_infinity_mass == pytest.approx(1.0)
        seen = p[1:-1] > 1e-14
        ratio = np.log(p[1:-1][seen] / q[1:-1][seen])
        # In every bin the ratio of the masses is that of a loss inside of it.
        assert (ratio >= edges[:-1][seen] - 1e-6).all()
        assert (ratio <= edges[1:][seen] + 1e-6).all()


def test_no_dependence_between_corners_leaks_more():
    """Losses max(0, mu^2 / 2 + mu Z_j) with equal, opposite and independent Z_j: P(L > t) is below the pair's."""
    mu, rng = 0.5, np.random.default_rng(0)
    (pair, _) = ObjectivePerturbation(2.0, 0.0, 2).dominating_pairs(Relation.ADD_REMOVE)
    z = rng.standard_normal(400_000)
    edges = np.linspace(0.05, 2.5, 50)
    above = np.cumsum(pair.bin_masses(edges)[0][::-1])[::-1][1:]
    for other in (z, -z, rng.standard_normal(400_000)):
        loss = np.maximum(0.0, mu * mu / 2 + mu * np.maximum(z, other))
        seen = (loss[:, None] > edges).mean(axis=0)
        # Six standard errors: a false alarm below 1e-6.
        assert (seen <= above + 6 * np.sqrt(above / len(loss))).all()


def test_objective_perturbation_composes_with_other_steps_better_than_by_renyi_divergences():
    both = ObjectivePerturbation(2.0, 0.1, 3) + Gaussian(5.0)
    exact, renyi = (accountant(name)(both, relation="replace_one").epsilon(1e-5) for name in ("pld", "rdp"))
    assert exact.lower <= exact.upper < float(renyi)


@pytest.mark.parametrize("corners", [1, 2])
def test_no_more_is_said_to_leak_than_linear_losses_do(corners: int):
    """A loss that is most steep where it bends most does not exist, so the upper bound is no lower one."""
    single = accountant("pld")(ObjectivePerturbation(2.0, 0.5, corners))
    plain = accountant("pld")(Gaussian(2.0))
    assert single.epsilon(1e-5).lower == pytest.approx(plain.epsilon(1e-5).upper, rel=1e-3)
    assert single.delta(0.0).lower == pytest.approx(plain.delta(0.0).upper, rel=1e-3)
    assert single.delta(0.0).upper > plain.delta(0.0).upper
