"""The bound for truncated Poisson samples against small data sets, all of whose samples are enumerated."""

import itertools
import json
import math
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import binom

from tacit.accounting import Ledger, accountant
from tacit.accounting.pld.dispatch import Dispatch
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Gaussian, Laplace, Shuffled, TruncatedPoisson, from_spec
from tacit.relation import Relation

GRID = np.linspace(-14.0, 14.0, 8001)


def density(contributions, rate, cap, noise):
    """Density of the noisy sum over a truncated Poisson sample of `contributions`, on GRID."""
    total = np.zeros_like(GRID)
    count = len(contributions)
    for size in range(count + 1):
        for sample in itertools.combinations(range(count), size):
            kept = list(itertools.combinations(sample, min(cap, size)))
            for subset in kept:
                mean = sum(contributions[i] for i in subset)
                weight = rate**size * (1 - rate) ** (count - size) / len(kept)
                total += weight * np.exp(-(((GRID - mean) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))
    return total


def divergence(p, q, epsilon):
    return float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), GRID))


@lru_cache
def bounds(others, rate, cap, noise):
    """Relation -> epsilon -> the least delta that is stated of a step beside so many others."""
    step = TruncatedPoisson(Gaussian(noise), rate, others, cap)
    # Under replace-one both data sets have one record more than the others; adding is also removing from those.
    whole = TruncatedPoisson(Gaussian(noise), rate, others + 1, cap)
    stated = {
        "add_remove": [accountant("pld")(each) for each in (step, whole)],
        "replace_one": [accountant("pld")(whole, relation="replace_one")],
        "zero_out": [accountant("pld")(whole, relation="zero_out"), accountant("rdp")(whole, relation="zero_out")],
    }
    epsilons = (0.0, 0.1, 0.5, 1.0, 2.0)
    return {
        name: {e: min(float(each.delta(e)) for each in curves) for e in epsilons} for name, curves in stated.items()
    }


OTHERS = [(-1.0,) * 4, (1.0,) * 4, (0.0,) * 4, (-1.0, 1.0, -0.5, 0.0)]


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize(("rate", "cap", "noise"), [(0.3, 1, 0.8), (0.5, 2, 1.2), (0.2, 3, 0.5), (0.9, 2, 2.0)])
def test_enumerated_neighbours_stay_below_the_bound(others, rate, cap, noise):
    with_record = density((*others, 1.0), rate, cap, noise)
    pairs = {
        "add_remove": (with_record, density(others, rate, cap, noise)),
        "replace_one": (with_record, density((*others, -1.0), rate, cap, noise)),
        "zero_out": (with_record, density((*others, 0.0), rate, cap, noise)),
    }
    for relation, (p, q) in pairs.items():
        for epsilon, bound in bounds(len(others), rate, cap, noise)[relation].items():
            assert max(divergence(p, q, epsilon), divergence(q, p, epsilon)) <= bound + 1e-9


def test_leaving_records_out_costs_privacy_that_plain_poisson_accounting_would_hide():
    others, rate, cap, noise = (-1.0,) * 4, 0.5, 1, 0.8
    p, q = density((*others, 1.0), rate, cap, noise), density(others, rate, cap, noise)
    plain = accountant("pld")(Gaussian(noise).poisson(rate))
    assert max(divergence(p, q, 1.5), divergence(q, p, 1.5)) > 1.2 * float(plain.delta(1.5))


def test_the_lower_bound_is_reached_by_records_that_add_nothing():
    rate, cap, noise = 0.5, 2, 1.2
    laws = [density((0.0,) * others + (1.0,) * own, rate, cap, noise) for others in (3, 4) for own in (1, 0)]
    lower = accountant("pld")(TruncatedPoisson(Gaussian(noise), rate, 4, cap)).lower
    for epsilon in (0.1, 0.5, 1.0):
        pairs = [(laws[i], laws[j]) for i, j in ((0, 1), (1, 0), (2, 3), (3, 2))]
        assert max(divergence(p, q, epsilon) for p, q in pairs) >= float(lower.delta(epsilon)) - 1e-9


@pytest.mark.slow_cases("replace_one")
@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_facets_agree_and_a_roomy_cap_is_free(relation):
    plain, rate = Gaussian(1.3).poisson(256 / 60000), 256 / 60000
    epsilons = []
    for cap in (332, 300, 270, 256):
        steps = TruncatedPoisson(Gaussian(1.3), rate, 60000, cap) * 500
        exact = float(accountant("pld")(steps, relation=relation).epsilon(1e-5))
        assert exact <= float(accountant("rdp")(steps, relation=relation).epsilon(1e-5))
        epsilons.append(exact)
    assert epsilons == sorted(epsilons)
    free = float(accountant("pld")(plain * 500, relation=relation).epsilon(1e-5))
    assert free <= epsilons[0] <= 1.02 * free
    assert epsilons[-1] > 2 * free


def test_the_chance_of_a_full_sample_is_the_binomial_tail():
    step = TruncatedPoisson(Gaussian(1.0), 0.1, 50, 8)
    assert step.full(50) == pytest.approx(binom(50, 0.1).sf(7), rel=1e-8)
    assert step.full(50) >= binom(50, 0.1).sf(7)
    assert TruncatedPoisson(Gaussian(1.0), 0.1, 50, 51).full(50) == 0.0
    whole = TruncatedPoisson(Gaussian(1.0), 0.1, 50, 51)
    assert whole.dominating_pairs(Relation.ADD_REMOVE) == Gaussian(1.0).poisson(0.1).dominating_pairs(
        Relation.ADD_REMOVE
    )


@pytest.mark.parametrize("rate", [0.05, 1.0])
def test_every_accountant_answers_or_refuses(rate):
    step = TruncatedPoisson(Gaussian(2.0), rate, 200, 14)
    exact = float(accountant("pld")(step * 5).epsilon(1e-6))
    for name in ("rdp", "zcdp", "naive", "advanced", "optimal", "cdp"):
        assert float(accountant(name)(step * 5).epsilon(1e-6)) >= exact * (1 - 1e-9)
    with pytest.raises(Refused):
        accountant("clt")(step * 5).epsilon(1e-6)


def test_json_round_trip():
    step = TruncatedPoisson(Gaussian(1.3), 0.01, 1000, 20)
    ledger = Ledger.of(step * 7)
    loaded = Ledger.from_spec(json.loads(json.dumps(ledger.spec())))
    assert [(entry.mechanism, entry.steps) for entry in loaded.entries] == [(step, 7)]
    assert loaded.hash == ledger.hash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cap": 0}, "cap must be an integer >= 1"),
        ({"cap": 1.5}, "cap must be an integer"),
        ({"records": 0}, "records must be"),
        ({"sample_rate": 1.5}, "sample_rate must be in"),
        ({"batch_size": 3}, "batch_size must be absent"),
    ],
)
def test_bad_specs(change, message):
    spec = {"type": "gaussian", "noise_multiplier": 1.0, "sampling": "truncated_poisson"}
    with pytest.raises(InvalidInput, match=message):
        from_spec(spec | {"sample_rate": 0.1, "records": 100, "cap": 12} | change)
    with pytest.raises(InvalidInput, match="cap must be given"):
        from_spec(spec | {"sample_rate": 0.1, "records": 100})
    with pytest.raises(InvalidInput, match="cap must be absent"):
        from_spec({"type": "gaussian", "noise_multiplier": 1.0, "sample_rate": 0.1, "cap": 3})


def test_only_gaussians_are_truncated():
    with pytest.raises(InvalidInput, match="must be applied to a Gaussian"):
        TruncatedPoisson(Laplace(1.0), 0.1, 100, 12)
    with pytest.raises(InvalidInput, match="unsampled"):
        Shuffled(TruncatedPoisson(Gaussian(1.0), 0.1, 100, 12), 100, 10)


@pytest.mark.parametrize(("rate", "cap"), [(1.0, 4), (1.0, 2), (0.5, 4), (0.5, 5)])
def test_both_directions_of_both_sizes_meet_those_of_other_steps(rate, cap):
    step, other = TruncatedPoisson(Gaussian(1.0), rate, 4, cap), Gaussian(0.9).poisson(0.2)
    pairs, others = (each.dominating_pairs(Relation.ADD_REMOVE) for each in (step, other))
    assert len(pairs) in (2, 4)
    directions = [[(pair, 2), (others[side % 2], 3)] for side, pair in enumerate(pairs)]
    assert {parts[1][0].remove for parts in directions} == {True, False}
    worst = max(Dispatch(parts).epsilon(1e-5)[1] for parts in directions)
    assert float(accountant("pld")(step * 2 + other * 3).epsilon(1e-5)) >= worst * (1 - 1e-6)


@pytest.mark.parametrize(
    ("records", "rate", "cap", "noise", "steps"),
    [(4, 0.5, 2, 1.0, 5), (60, 0.1, 8, 1.5, 20), (200, 0.05, 12, 0.8, 10), (1000, 1.0, 100, 2.0, 10)],
)
def test_line_10_it_is_at_least_as_tight_as_dp_accounting(records, rate, cap, noise, steps):
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.privacy_accountant import NeighboringRelation

    for relation, theirs in (
        ("add_remove", NeighboringRelation.ADD_OR_REMOVE_ONE),
        ("replace_one", NeighboringRelation.REPLACE_ONE),
    ):
        peer = pld.from_truncated_subsampled_gaussian_mechanism(
            records, rate, cap, noise, value_discretization_interval=1e-3, neighboring_relation=theirs
        )
        ours = accountant("pld")(TruncatedPoisson(Gaussian(noise), rate, records, cap) * steps, relation=relation)
        assert float(ours.epsilon(1e-6)) <= peer.self_compose(steps).get_epsilon_for_delta(1e-6) * (1 + 1e-3)
