"""The last iterate of noisy gradient descent: against quadratics in closed form, simulation and the composition."""

import itertools
import json
import math

import numpy as np
import pytest

from tacit.accounting import accountant
from tacit.cli import main
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Gaussian, Laplace, LastIterate, Poisson, from_spec
from tacit.relation import Relation
from tacit.tradeoff.gaussian import gaussian_delta

ADD = Relation.ADD_REMOVE


def quadratic_mu(curvature, step_size, iterations, noise, sensitivity=1.0):
    """mu of the last iterate on curvature x^2 / 2 with and without a gradient of `sensitivity`, step by step."""
    mean, variance = 0.0, 0.0
    for _ in range(iterations):
        mean = (1 - step_size * curvature) * mean + step_size * sensitivity
        variance = (1 - step_size * curvature) ** 2 * variance + (step_size * noise) ** 2
    return abs(mean) / math.sqrt(variance)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(
    ("convexity", "step_size", "iterations"), [(0.5, 0.4, 1), (0.5, 0.4, 7), (0.01, 1.0, 300), (1.0, 1.0, 5)]
)
def test_a_quadratic_reaches_the_bound(convexity, step_size, iterations, relation):
    last = LastIterate(3.0, iterations, smoothness=1.0, step_size=step_size, strong_convexity=convexity)
    exact = quadratic_mu(convexity, step_size, iterations, 3.0, relation.sensitivity)
    assert exact <= last.mu(relation) <= exact * (1 + 1e-8)
    bounds = accountant("pld")(last, relation=relation).epsilon(1e-6)
    assert bounds.interval[0] == pytest.approx(bounds, rel=1e-6)


def test_no_quadratic_of_the_class_exceeds_it():
    """Any curvature between the two constants, any step size up to 2 / smoothness, any number of steps."""
    for step_size, iterations, convexity in itertools.product((0.3, 1.0, 1.7, 2.0), (1, 2, 5, 40), (0.0, 0.2, 0.9)):
        last = LastIterate(2.0, iterations, smoothness=1.0, step_size=step_size, strong_convexity=convexity)
        for curvature in np.linspace(convexity, 1.0, 9):
            assert quadratic_mu(curvature, step_size, iterations, 2.0) <= last.bound(ADD)
        below, above = accountant("pld")(last).epsilon(1e-5).interval
        assert below <= above


def test_it_never_exceeds_the_composition_and_tends_to_its_limit():
    bounds = [LastIterate(5.0, steps, 1.0, 0.5, 0.2).bound(ADD) for steps in (1, 10, 100, 1000, 10**5)]
    assert bounds == sorted(bounds)
    for steps, bound in zip((1, 10, 100), bounds, strict=False):
        assert bound <= math.sqrt(steps) / 5.0 * (1 + 1e-8)
    # c = 0.9: mu = sqrt((1 + c) / (1 - c)) / 5.
    assert bounds[-1] == pytest.approx(math.sqrt(19) / 5.0, rel=1e-8)
    convex = LastIterate(5.0, 100, 1.0, 0.5)
    assert convex.bound(ADD) == pytest.approx(Gaussian(5.0).mu(ADD) * 10, rel=1e-8)


def test_a_bounded_set_caps_convex_problems():
    """mu^2 = min(T, (K + w)^2 / K at its best K, about 4 w) / m^2 with w = diameter / (step_size lipschitz)."""
    last = [LastIterate(5.0, steps, 1.0, 0.1, 0.0, 2.0, 4.0) for steps in (10, 1000, 10**6)]
    assert last[0].bound(ADD) == pytest.approx(math.sqrt(10) / 5, rel=1e-8)
    assert last[1].bound(ADD) == last[2].bound(ADD) == pytest.approx(math.sqrt(4 * 20) / 5, rel=1e-8)
    assert last[2].bound(Relation.REPLACE_ONE) == pytest.approx(2 * math.sqrt(4 * 10) / 5, rel=1e-8)
    both = LastIterate(5.0, 10**6, 1.0, 0.1, 0.01, 2.0, 4.0)
    assert both.bound(ADD) < min(last[2].bound(ADD), LastIterate(5.0, 10**6, 1.0, 0.1, 0.01, 2.0).bound(ADD))


def test_shifts_are_the_best_of_all():
    """The minimum over the shifts a_k of the proof, by a search: sum c^{K - k} a_k is fixed, sum a_k^2 is least."""
    contraction, apart, steps = 0.8, 3.0, 4
    last = LastIterate(1.0, 200, 1.0, 1 - contraction, 1.0, 1.0, apart * (1 - contraction))
    rng = np.random.default_rng(0)
    weights = contraction ** np.arange(steps)[::-1]
    total = weights.sum() + contraction**steps * apart
    shifts = rng.exponential(size=(20_000, steps))
    shifts *= (total / (shifts @ weights))[:, None]
    assert last.bound(ADD) <= np.sqrt((shifts**2).sum(axis=1).min()) * (1 + 1e-9)


def simulated(step_size, iterations, noise, radius, gradient, convexity, count=400_000):
    """Last iterates in [-radius, radius] on convexity x^2 / 2 + gradient x, from 0."""
    rng = np.random.default_rng(3)
    x = np.zeros(count)
    for _ in range(iterations):
        moved = x - step_size * (convexity * x + gradient + noise * rng.standard_normal(count))
        x = np.clip(moved, -radius, radius)
    return x


@pytest.mark.parametrize(("convexity", "iterations", "radius"), [(0.0, 60, 0.5), (0.5, 30, 1.0)])
def test_projected_descent_is_told_apart_no_better_than_stated(convexity, iterations, radius):
    """Every threshold on the last iterate, 400,000 runs of either side."""
    last = LastIterate(2.0, iterations, 1.0, 0.1, convexity, 1.0, 2 * radius)
    sides = [simulated(0.1, iterations, 2.0, radius, gradient, convexity) for gradient in (0.0, -1.0)]
    for threshold in np.linspace(-radius, radius, 21):
        alarm, found = (float((side > threshold).mean()) for side in sides)
        for epsilon in (0.0, 0.3, 1.0):
            error = 4 * math.sqrt((found + math.exp(2 * epsilon) * alarm) / 400_000)
            assert found - math.exp(epsilon) * alarm - error <= gaussian_delta(epsilon, last.bound(ADD))
    assert last.bound(ADD) < math.sqrt(iterations) / 2.0


def test_it_composes_and_its_lower_end_is_none_where_a_set_bounds_it():
    last = LastIterate(5.0, 1000, 1.0, 0.1, 0.0, 1.0, 1.0)
    alone = accountant("pld")(last).epsilon(1e-5)
    assert alone.interval == (0.0, pytest.approx(accountant("pld")(Gaussian(1 / last.bound(ADD))).epsilon(1e-5)))
    both = accountant("pld")(last + Laplace(2.0)).epsilon(1e-5).interval
    assert 0 < both[0] < both[1]
    twice = accountant("pld")(last * 4).epsilon(1e-5)
    assert float(twice) == pytest.approx(
        float(accountant("pld")(Gaussian(0.5 / last.bound(ADD))).epsilon(1e-5)), rel=1e-6
    )
    with pytest.raises(Refused, match="exact GDP parameter"):
        last.mu(ADD)
    with pytest.raises(InvalidInput, match="one unsampled mechanism"):
        Poisson(last, 0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step_size": 2.1}, "step_size must be at most 2 / smoothness"),
        ({"strong_convexity": 1.5}, "strong_convexity"),
        ({"diameter": 0.0}, "diameter"),
        ({"iterations": 10**7}, "iterations"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"lipschitz": -1.0}, "lipschitz"),
        ({"sample_rate": 0.1}, "one unsampled mechanism"),
        ({"smoothness": None}, "smoothness must be given"),
        ({"participations": 2}, "participations must be absent"),
        ({"step_size": float("nan")}, "step_size"),
    ],
)
def test_facts_that_cannot_hold_are_refused(changes, message):
    entry = {"type": "last_iterate", "noise_multiplier": 2.0, "iterations": 10, "smoothness": 1.0, "step_size": 0.5}
    entry |= changes
    with pytest.raises(InvalidInput, match=message):
        from_spec({name: value for name, value in entry.items() if value is not None})


def test_the_command_reads_it(tmp_path, capsys):
    last = LastIterate(10.0, 1000, 1.0, 0.5, 0.5)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"relation": "add_remove", "mechanisms": [last.spec() | {"steps": 1}]}))
    assert from_spec(last.spec()) == (last, 1)
    assert main(["account", str(spec), "--delta", "1e-5", "--json"]) == 0
    rows = {row["accountant"]: row for row in json.loads(capsys.readouterr().out)["results"]}
    assert rows["pld"]["epsilon"] == pytest.approx(last.epsilon_at(1e-5, ADD), rel=1e-6)
    assert rows["pld"]["epsilon"] < float(accountant("pld")(Gaussian(10.0) * 1000).epsilon(1e-5)) / 10
