"""Groups of records and other relations: each row of the table of bounds, and what is refused."""

import math

import numpy as np
import pytest

from tacit.accounting import accountant
from tacit.errors import Refused
from tacit.mechanisms import Gaussian, RandomizedResponse
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, GaussianCurve, ProfileCurve, TradeOff
from tacit.tradeoff.gaussian import gaussian_delta


@pytest.fixture(scope="module")
def run():
    return accountant("pld")(Gaussian(1.0).poisson(0.01) * 1000)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "composed"), [(2, 4.08), (4, 9.67)])
def test_groups_of_a_run_cost_what_its_trade_off_function_composes_to(run, size, composed):
    epsilon = float(run.group(size).epsilon(1e-5))
    assert epsilon == pytest.approx(composed, abs=0.02)
    assert run.group(size).standing is Standing.PROVEN
    assert run.group(size).epsilon(1e-5).lower == run.epsilon(1e-5).lower


def test_a_gaussian_profile_of_a_group_is_that_of_k_mu_from_above():
    one = ProfileCurve(lambda epsilon: gaussian_delta(epsilon, 0.4))
    for size in (1, 2, 3, 5):
        for epsilon in (0.0, 0.5, 2.0, 4.0):
            exact, bound = gaussian_delta(epsilon, 0.4 * size), one.group(size).delta(epsilon)
            assert exact * (1 - 1e-9) <= bound
            # What the grid of levels costs: .012 of epsilon for each record.
            assert bound <= gaussian_delta(max(epsilon - 0.012 * size, 0.0), 0.4 * size) * (1 + 0.02 * size)


def test_two_randomized_responses_are_the_closed_form():
    """1 - f_2 of the trade-off function max(1 - e^t a, e^-t (1 - a)), from above, at every epsilon."""
    t = 0.7
    curve = accountant("pld")(RandomizedResponse(t)).group(2)

    def power(a):
        return np.minimum(np.exp(t) * a, 1 - np.exp(-t) * (1 - a))

    levels = np.linspace(0, 1, 20001)
    for epsilon in (0.0, 0.5, 1.2):
        exact = float(np.max(power(power(levels)) - np.exp(epsilon) * levels))
        assert exact - 1e-9 <= float(curve.delta(epsilon)) <= exact + 0.01
    assert float(curve.epsilon(0.0)) == pytest.approx(2 * t, rel=1e-6)


def test_groups_of_groups_are_groups(run):
    assert float(run.group(2).group(2).epsilon(1e-5)) == float(run.group(4).epsilon(1e-5))
    assert float(run.group(1).epsilon(1e-5)) == float(run.epsilon(1e-5))


def test_replacing_is_removing_and_adding_and_nothing_follows_from_it(run):
    converted = run.as_relation("replace_one")
    direct = accountant("pld")(Gaussian(1.0).poisson(0.01) * 1000, relation="replace_one")
    assert float(converted.epsilon(1e-5)) == pytest.approx(4.08, abs=0.02)
    assert float(direct.epsilon(1e-5)) < float(converted.epsilon(1e-5))
    assert converted.relation is Relation.REPLACE_ONE
    assert converted.lower is None
    gaussian = TradeOff(GaussianCurve(0.5), Standing.PROVEN, Relation.ZERO_OUT, "pld")
    assert math.isclose(gaussian.as_relation("replace_one").mu(), 1.0)
    for relation in ("add_remove", "zero_out"):
        with pytest.raises(Refused, match="implies none"):
            direct.as_relation(relation)
    measured = TradeOff(ErrorPoints([0.1], [0.2]), Standing.MEASURED, Relation.ADD_REMOVE, "attack")
    with pytest.raises(Refused):
        measured.as_relation("replace_one")


@pytest.mark.parametrize("size", [65, 100, 1000, 10**9])
def test_large_groups_are_bounded_at_once(size):
    """Composing levels that are rounded up costs a few per cent of epsilon, and is never below k mu."""
    mu = 2.0 / size
    bound = ProfileCurve(lambda epsilon: gaussian_delta(epsilon, mu)).group(size)
    assert all(bound.delta(epsilon) >= gaussian_delta(epsilon, 2.0) for epsilon in (0.5, 2.0, 8.0))
    assert bound.delta(0.0) <= 1.0


def test_repeated_levels_stay_near_exact_ones():
    one = ProfileCurve(lambda epsilon: gaussian_delta(epsilon, 0.02))
    exact, near = one.group(64), one.group(65)
    assert exact.epsilon(1e-5) < near.epsilon(1e-5) < 1.1 * exact.epsilon(1e-5)
