"""Kinds of mechanism that other libraries account for, each against a brute-force law of its outputs."""

import itertools
import math

import numpy as np
import pytest

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import (
    Approximate,
    DiscreteLaplace,
    Gaussian,
    GaussianMixture,
    KaryRandomizedResponse,
    Laplace,
    Mechanism,
    PermuteAndFlip,
    RandomizedResponse,
    Selection,
    ZeroConcentrated,
    from_spec,
)
from tacit.relation import Relation

MIXTURE = {"type": "gaussian_mixture", "noise_multiplier": 1.0}
EPSILONS = (0.0, 0.05, 0.3, 0.9, 1.5)


def divergence(p, q, epsilon):
    """The hockey-stick divergence of two laws of the same outcomes, the larger of both directions."""
    factor = math.exp(epsilon)
    return max(float(np.maximum(p - factor * q, 0).sum()), float(np.maximum(q - factor * p, 0).sum()))


def requires(mechanism, relation, p, q, *, reached=True, error=1e-12):
    """The bracket of `mechanism` holds the divergence of the laws, known up to `error`; closely so where reached."""
    curve = accountant("pld")(mechanism, relation=relation)
    for epsilon in EPSILONS:
        low, high = curve.delta(epsilon).interval
        exact = divergence(p, q, epsilon)
        assert exact <= high * (1 + 1e-9) + error
        if reached:
            assert low <= exact * (1 + 1e-9) + error
            assert high <= exact * (1 + 1e-5) + 1e-9


def flipped(scores, rate):
    """Probabilities of permute-and-flip by its definition: all orders, and all coins that fall before a choice."""
    best, count = max(scores), len(scores)
    found = np.zeros(count)
    for order in itertools.permutations(range(count)):
        still = 1.0
        for each in order:
            heads = math.exp(rate * (scores[each] - best))
            found[each] += still * heads / math.factorial(count)
            still *= 1 - heads
    return found


@pytest.mark.parametrize("scores", [(0.0, 0.0), (0.7, 0.0, 0.3), (2.0, 0.0, 1.0, 1.9), (0.0, 0.0, 0.0, 0.0)])
def test_line_10_permute_and_flip_stays_within_its_laplace_pair(scores):
    epsilon = 1.2
    for moves in itertools.product((-1.0, 0.0, 1.0), repeat=len(scores)):
        p = flipped(scores, epsilon / 2)
        q = flipped([score + move for score, move in zip(scores, moves, strict=True)], epsilon / 2)
        requires(PermuteAndFlip(epsilon), "add_remove", p, q, reached=False)


def test_two_candidates_reach_the_laplace_pair_of_permute_and_flip_at_every_epsilon():
    epsilon, curve = 1.2, accountant("pld")(PermuteAndFlip(1.2))
    for at in (0.0, 0.2, 0.7, 1.1):
        gaps = np.linspace(-3.0, 3.0, 1201)
        found = (divergence(flipped((g, 0.0), epsilon / 2), flipped((g - 1, 1.0), epsilon / 2), at) for g in gaps)
        assert max(found) == pytest.approx(float(curve.delta(at)), rel=1e-4)
    assert float(curve.delta(0.3)) == pytest.approx(float(accountant("pld")(Laplace(1 / 1.2)).delta(0.3)), rel=1e-9)


def test_permute_and_flip_composes_between_two_candidates_and_the_laplace_mechanism():
    steps = accountant("pld")(PermuteAndFlip(0.1) * 100).epsilon(1e-6)
    noise = accountant("pld")(Laplace(10.0) * 100).epsilon(1e-6)
    assert noise.upper * (1 - 1e-5) <= steps.upper <= noise.upper * (1 + 1e-5)
    assert 0.99 * steps.upper <= steps.lower < steps.upper
    assert steps.upper < accountant("pld")(Approximate(0.1, 0.0) * 100).epsilon(1e-6).upper


def discrete_laplace(parameter, shift, reach=600):
    x = np.arange(-reach, reach + 1)
    return np.tanh(parameter / 2) * np.exp(-parameter * np.abs(x - shift))


@pytest.mark.parametrize(("parameter", "sensitivity"), [(0.4, 1), (0.1, 7), (2.0, 2)])
@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_discrete_laplace_meets_the_sum_over_integers(parameter, sensitivity, rate, relation):
    mechanism: Mechanism = DiscreteLaplace(parameter, sensitivity)
    base = discrete_laplace(parameter, 0)
    with_record = (1 - rate) * base + rate * discrete_laplace(parameter, sensitivity)
    other = (1 - rate) * base + rate * discrete_laplace(parameter, -sensitivity)
    without = other if relation == "replace_one" else base
    requires(mechanism if rate == 1 else mechanism.poisson(rate), relation, with_record, without)


@pytest.mark.parametrize("split", [(1, 3), (2, 2), (4, 0)])
def test_discrete_laplace_covers_vectors_of_the_same_l1_norm(split):
    p, q = (np.outer(*(discrete_laplace(0.3, shift * on, 150) for shift in split)).ravel() for on in (1, 0))
    requires(DiscreteLaplace(0.3, 4), "add_remove", p, q, reached=False)


def test_discrete_laplace_of_sensitivity_one_is_randomised_response():
    one, other = (
        accountant("pld")(each * 20).epsilon(1e-6) for each in (DiscreteLaplace(0.4), RandomizedResponse(0.4))
    )
    assert one.upper == pytest.approx(other.upper, rel=1e-6)


@pytest.mark.parametrize(("noise", "choices"), [(0.5, 2), (0.3, 10), (1.0, 3)])
def test_kary_randomised_response_meets_its_two_laws(noise, choices):
    uniform = np.full(choices, 1 / choices)
    p, q = ((1 - noise) * np.eye(choices)[value] + noise * uniform for value in (0, 1))
    requires(KaryRandomizedResponse(noise, choices), "replace_one", p, q)
    requires(KaryRandomizedResponse(noise, choices), "zero_out", p, uniform)
    with pytest.raises(Refused, match="replace_one or zero_out; got add_remove"):
        accountant("pld")(KaryRandomizedResponse(noise, choices)).epsilon(1e-6)


@pytest.mark.parametrize("weights", [(0.2, 0.6, 0.2), (0.0, 0.5, 0.5)])
def test_a_mixture_of_gaussians_meets_numeric_integration(weights):
    x, step = np.linspace(-14, 18, 200_001, retstep=True)
    density = [np.exp(-((x - shift) ** 2) / 2) / math.sqrt(2 * math.pi) * step for shift in (0.0, 1.0, 2.5)]
    mixed = sum(weight * each for weight, each in zip(weights, density, strict=True))
    kept = [(shift, weight) for shift, weight in zip((0.0, 1.0, 2.5), weights, strict=True) if weight]
    mechanism = GaussianMixture(1.0, *zip(*kept, strict=True))
    requires(mechanism, "add_remove", mixed, density[0], error=1e-8)
    orders = np.array([1.5, 3.0])
    moment = [math.log(np.sum(mixed**a * density[0] ** (1 - a))) / (a - 1) for a in orders]
    assert (mechanism.rdp(orders, Relation.ADD_REMOVE) >= moment).all()


def test_a_mixture_of_no_shift_and_one_is_a_poisson_sample():
    mixture = GaussianMixture(3.0, (2.0, 0.0), (0.1, 0.9))
    assert mixture.dominating_pairs(Relation.ADD_REMOVE) == pytest.approx(
        Gaussian(1.5).poisson(0.1).dominating_pairs(Relation.ADD_REMOVE)
    )
    with pytest.raises(Refused):
        accountant("pld")(mixture, relation="replace_one").epsilon(1e-5)


def test_zero_concentrated_dp_is_no_gaussian():
    step = ZeroConcentrated(0.125)
    gaussian = Gaussian(2.0)
    for name in ("rdp", "zcdp"):
        assert float(accountant(name)(step * 5).epsilon(1e-5)) == float(accountant(name)(gaussian * 5).epsilon(1e-5))
    with pytest.raises(Refused, match="no dominating pair"):
        accountant("pld")(step).epsilon(1e-5)
    # A Poisson sample of a mechanism of which only zCDP is known gains nothing that holds for every order.
    sampled = accountant("rdp")(step.poisson(0.01) * 5).epsilon(1e-5)
    assert float(sampled) == float(accountant("rdp")(step * 5).epsilon(1e-5))
    assert float(sampled) > 5 * float(accountant("rdp")(gaussian.poisson(0.01) * 5).epsilon(1e-5))


def test_the_constant_of_zero_concentrated_dp_adds_up():
    orders = np.array([1.5, 2.0, 8.0])
    composed = ZeroConcentrated(0.3, 0.2) * 3 + ZeroConcentrated(0.1)
    assert composed.rdp(orders, Relation.ADD_REMOVE) == pytest.approx(0.6 + 1.0 * orders)
    with pytest.raises(Refused, match="zCDP"):
        composed.zcdp(Relation.ADD_REMOVE)
    epsilon = ZeroConcentrated(0.5, 0.2).epsilon_at(1e-5, Relation.ADD_REMOVE)
    assert epsilon == pytest.approx(0.7 + math.sqrt(2 * math.log(1e5)))


def test_pure_dp_has_the_renyi_curve_of_randomised_response():
    orders = np.array([1.01, 2.0, 30.0])
    curve = Approximate(1.0, 0.0).rdp(orders, Relation.ADD_REMOVE)
    assert curve == pytest.approx(RandomizedResponse(1.0).rdp(orders, Relation.ADD_REMOVE))
    with pytest.raises(Refused):
        Approximate(1.0, 1e-9).rdp(orders, Relation.ADD_REMOVE)


@pytest.mark.parametrize("law", ["logarithmic", "geometric", 0.5])
def test_a_selection_of_one_trial_costs_the_trial(law):
    base = Gaussian(2.0) * 3 + Laplace(4.0)
    one = Selection.of(base, law=law, trials=1)
    orders = np.array([1.2, 4.0, 64.0])
    assert one.rdp(orders, Relation.ADD_REMOVE) == pytest.approx(base.rdp(orders, Relation.ADD_REMOVE), rel=1e-12)
    low, high = accountant("pld")(one).epsilon(1e-6).interval
    exact = accountant("pld")(base).epsilon(1e-6)
    assert low <= exact.upper
    assert exact.lower <= high <= exact.upper * (1 + 1e-4)
    assert Selection.of(Laplace(2.0), law=law, trials=1).pure_epsilon(Relation.ADD_REMOVE) == 0.5


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "discrete_laplace", "parameter": 0.0}, "parameter must be"),
        ({"type": "discrete_laplace", "parameter": 1.0, "sensitivity": 1.5}, "sensitivity must be"),
        ({"type": "discrete_laplace", "parameter": 1.0, "sensitivity": 10**6}, "sensitivity must be at most"),
        ({"type": "kary_randomized_response", "noise": 0.0, "choices": 3}, "noise must be"),
        ({"type": "kary_randomized_response", "noise": 0.5, "choices": 1}, "choices must be"),
        ({"type": "kary_randomized_response", "noise": 0.5, "choices": 3, "sample_rate": 0.1}, "unsampled"),
        ({"type": "permute_and_flip", "epsilon": math.nan}, "epsilon must be"),
        ({"type": "zero_concentrated", "rho": -1.0}, "rho must be"),
        (MIXTURE | {"sensitivities": [0], "probabilities": [1]}, "one above 0"),
        (MIXTURE | {"sensitivities": [1], "probabilities": [0.5]}, "sum 1"),
        (MIXTURE | {"sensitivities": [-1], "probabilities": [1]}, "sensitivities"),
        (MIXTURE | {"sensitivities": 3, "probabilities": [1]}, "a list of numbers"),
    ],
)
def test_bad_numbers_are_refused_with_their_rule(spec, message):
    with pytest.raises(InvalidInput, match=message):
        from_spec(spec)


def test_ends_of_the_ranges_answer():
    for mechanism in (
        *(DiscreteLaplace(1e-9, 10_000), DiscreteLaplace(700.0, 1), DiscreteLaplace(700.0, 10_000)),
        *(PermuteAndFlip(1e-9), PermuteAndFlip(600.0), GaussianMixture(1e-3, (1e-6, 1e3), (1e-12, 1 - 1e-12))),
    ):
        low, high = accountant("pld")(Ledger.of(mechanism * 3)).epsilon(1e-6).interval
        assert 0 <= low <= high
        assert not math.isnan(float(accountant("rdp")(mechanism * 3).epsilon(1e-6)))
