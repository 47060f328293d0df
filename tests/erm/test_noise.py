"""Variance of 100,000 released draws of each method's noise, against a value recomputed here from its formula.

A sample variance of N Gaussian draws has relative deviation sqrt(2 / N) = 0.0045; the tolerance of 5 of them fails by
chance with probability below 1e-6.
"""

import math

import numpy as np
import pytest

from tacit.erm.gradient import GradientDescent
from tacit.erm.losses import Logistic
from tacit.erm.objective import ObjectiveGaussian, PureObjective
from tacit.erm.solver import Problem
from tacit.noise import SeededStream
from tacit.relation import Relation
from tacit.tradeoff.gaussian import gaussian_mu
from tacit.variational.linear import noisy_symmetric
from tacit_papers.input_perturbation.counter_examples import PaperInput, perturbed
from tacit_papers.input_perturbation.descent_methods import (
    GaussianOutput,
    GradientDescentOutput,
    NoisySGD,
    OutputPerturbation,
    Svrg,
)
from tacit_papers.input_perturbation.input_methods import Aggregate, Fukuchi, Local, Shuffled, shuffled_epsilon
from tacit_papers.input_perturbation.objective_methods import (
    ApproximateMinima,
    ChaudhuriObjective,
    KiferObjective,
    KiferPureObjective,
)
from tests.erm.cases import blank, problem, terms

DRAWS = 100_000
EPSILON, DELTA = 0.7, 3e-6
TOLERANCE = 5 * math.sqrt(2 / DRAWS)


def matches(draws, variance, *, tolerance=TOLERANCE):
    assert draws.size >= DRAWS
    assert np.mean(draws**2) == pytest.approx(variance, rel=tolerance)
    assert abs(np.mean(draws)) < 5 * math.sqrt(variance / draws.size)


def released(method, case, relation="replace_one", **options):
    return method.release(case, terms(EPSILON, DELTA, relation=relation, **options)).theta


def mu():
    """The largest mu that is (EPSILON, DELTA)-DP."""
    return gaussian_mu(EPSILON, DELTA)


@pytest.mark.parametrize(("relation", "s"), [("add_remove", 1), ("replace_one", 2)])
def test_output_of_the_minimiser(relation, s):
    # strength 3, G = 1, blank rows: the minimiser is 0.
    matches(released(GaussianOutput(), blank(DRAWS), relation), (s / 3 / mu()) ** 2)


@pytest.mark.parametrize(("relation", "s"), [("add_remove", 1), ("replace_one", 2)])
def test_output_of_gradient_descent(relation, s):
    eta = 1 / (1.5 * 0.25 + 3 / 2)
    stated = s / 3 * (1 - (1 - eta * 1.5) ** 4)
    matches(released(GradientDescentOutput(steps=4), blank(DRAWS), relation), (stated / mu()) ** 2)


def test_output_of_gradient_descent_with_the_published_constant():
    # 5 G (beta + lambda) / (n lambda beta), n = 2, lambda = 3 / 2, beta = 1 / 4
    stated = 5 * (0.25 + 1.5) / (2 * 1.5 * 0.25)
    matches(released(GradientDescentOutput(steps=4, paper_constant=True), blank(DRAWS)), (stated / mu()) ** 2)


@pytest.mark.parametrize(("relation", "s"), [("add_remove", 1), ("replace_one", 2)])
def test_pure_output(relation, s):
    draws = OutputPerturbation().release(blank(DRAWS), terms(EPSILON, 0.0, relation=relation)).theta
    # E b_j^2 = (d + 1) / rate^2; ||b|| is Gamma(d), of relative deviation 1 / sqrt(d) like the variance of Gaussians.
    matches(draws, (DRAWS + 1) * (s / 3 / EPSILON) ** 2)


def linear_term(theta, case, strength):
    """The b of which theta is the minimiser; rows are blank, so grad F is strength theta."""
    return -strength * theta


def test_exact_objective():
    method, case = ObjectiveGaussian(), blank(DRAWS)
    result = method.release(case, terms(EPSILON, DELTA))
    multiplier = result.mechanism.steps[0][0].noise_multiplier
    volume = math.log1p(0.25 / result.facts["strength"])
    # Solved anew: delta(EPSILON) = delta_mu(EPSILON - volume), less 0.2 % for the rounding step.
    assert 1 / multiplier == pytest.approx(gaussian_mu(EPSILON - volume, DELTA), rel=0.02)
    assert 1 / multiplier < gaussian_mu(EPSILON - volume, DELTA)
    matches(linear_term(result.theta, case, result.facts["strength"]), multiplier**2)


@pytest.mark.parametrize("method", [KiferObjective(), Fukuchi()], ids=lambda m: m.name)
@pytest.mark.parametrize(("relation", "s"), [("add_remove", 1), ("replace_one", 2)])
def test_published_objective(method, relation, s):
    epsilon, delta = 0.999 * EPSILON, 0.999 * DELTA
    variance = s**2 * (8 * math.log(2 / delta) + 4 * epsilon) / epsilon**2
    case = blank(DRAWS)
    matches(linear_term(released(method, case, relation), case, max(3, 0.5 / epsilon)), variance)


def test_approximate_minima():
    case, share = blank(DRAWS), 0.99
    first = share * EPSILON
    s1 = 2 * (1 + math.sqrt(2 * math.log(1 / (share * DELTA)))) / (first - first / 10)
    s2 = 2 * 1e-4 / 7.2 * (1 + math.sqrt(2 * math.log(1 / ((1 - share) * DELTA)))) / ((1 - share) * EPSILON)
    strength = max(3.0, 2 * 0.25 / (first / 10))
    assert strength == pytest.approx(7.2, abs=0.02)
    matches(linear_term(released(ApproximateMinima(), case), case, strength), s1**2 + (strength * s2) ** 2)


@pytest.mark.parametrize(
    ("method", "left"),
    [
        (PureObjective(), 0.999 * EPSILON - math.log1p(0.25 / 3)),
        (ChaudhuriObjective(), 0.999 * EPSILON - 2 * math.log1p(0.25 / 3)),
        (KiferPureObjective(), 0.999 * EPSILON / 2),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.parametrize(("relation", "s"), [("add_remove", 1), ("replace_one", 2)])
def test_pure_objective(method, left, relation, s):
    case = blank(DRAWS)
    draws = method.release(case, terms(EPSILON, 0.0, relation=relation)).theta
    matches(linear_term(draws, case, 3.0), (DRAWS + 1) * (s / left) ** 2)


@pytest.mark.parametrize(("relation", "s"), [("add_remove", 1), ("replace_one", 2)])
def test_gradient_descent(relation, s):
    method = GradientDescent(steps=4, clip_norm=0.3, momentum=0.0, average=False, step_scale=0.5)
    case = Problem(np.zeros((2, DRAWS)), np.ones(2), Logistic(), 0.0)
    std = s * 0.3 * math.sqrt(4) / mu()
    eta = 0.5 / 0.25
    matches(released(method, case, relation), 4 * (eta / 2 * std) ** 2)


def test_noisy_sgd():
    method, case = NoisySGD(steps=1, batch_size=1.0), Problem(np.zeros((2, DRAWS)), np.ones(2), Logistic(), 3.0)
    result = method.release(case, terms(EPSILON, DELTA))
    step = result.mechanism.steps[0][0].base
    assert step.noise_multiplier == pytest.approx(result.facts["noise_std"], rel=1e-8)
    assert result.mechanism.steps == ((step.poisson(0.5), 1),)
    assert float(result.guarantee.epsilon(DELTA)) == pytest.approx(EPSILON, rel=1e-4)
    eta = 1 / (3.0 + 0.25 * 2)
    matches(result.theta, (eta * result.facts["noise_std"] / 0.5) ** 2)


def test_noisy_sgd_with_the_published_constant():
    method = NoisySGD(paper_constant=True, cap=1)
    case = Problem(np.zeros((2, DRAWS)), np.ones(2), Logistic(), 0.0)
    multiplier, steps, rate = method.calibration(case, terms(EPSILON, DELTA))
    assert (steps, rate) == (2, 0.5)
    variance = 32 * math.log(2 / DELTA) * math.log(1 / DELTA) / EPSILON**2
    assert multiplier == pytest.approx(math.sqrt(variance))
    # Two steps of eta = 1 / (beta n) = 2 on sums divided by q; the second iterate alone is averaged.
    matches(released(method, case, "add_remove"), 2 * (2 * multiplier / 0.5) ** 2)


def test_svrg():
    method = Svrg(rounds=1, inner=1, batch_size=1.0)
    case = Problem(np.zeros((2, DRAWS)), np.ones(2), Logistic(), 0.0)
    result = method.release(case, terms(EPSILON, DELTA))
    std, step = result.facts["noise_std"], result.mechanism.steps[0][0]
    assert step.noise_multiplier == pytest.approx(std, rel=1e-8)
    assert result.mechanism.steps == ((step, 1), (step.poisson(0.5), 1))
    assert float(result.guarantee.epsilon(DELTA)) == pytest.approx(EPSILON, rel=1e-4)
    eta = 1 / 0.25
    matches(result.theta, (eta / 2) ** 2 * ((2 * std / 0.5) ** 2 + std**2))


@pytest.mark.slow
def test_aggregate():
    method = Aggregate(second_share=0.3)
    case = problem(Logistic(), records=50, width=500)
    second, first = method.statistics(case, terms(), 1.7)
    off = (second - case.features.T @ case.features)[np.triu_indices(500, 1)]
    matches(off, (1.7 / math.sqrt(0.3)) ** 2 / 2)
    stream, zero = SeededStream(7), np.zeros((20, 20))
    matches(np.concatenate([np.diag(noisy_symmetric(stream, zero, 1.7)) for _ in range(5000)]), 1.7**2)
    wide = Problem(np.zeros((2, 400)), np.ones(2), Logistic(), 1.0)
    linear = np.concatenate([method.statistics(wide, terms(seed=seed), 1.7)[1] for seed in range(250)])
    matches(linear, (1.7 * 0.5 / math.sqrt(0.7)) ** 2)
    assert first.shape == (500, 1)


def test_aggregate_is_calibrated():
    case = problem(Logistic(), records=50)
    result = Aggregate().release(case, terms(EPSILON, DELTA, relation="replace_one"))
    assert 1.5 / result.facts["noise_std"] == pytest.approx(mu(), rel=1e-6)
    assert result.local_mu == pytest.approx(1.5 * math.sqrt(50) / result.facts["noise_std"])
    assert result.facts["local_noise_std"] * math.sqrt(50) == pytest.approx(result.facts["noise_std"])


def test_local_messages():
    method, case = Local(label_scale=2.0), problem(Logistic(), records=1000, width=100)
    std = method.release(case, terms(EPSILON, DELTA)).facts["noise_std"]
    assert std == pytest.approx(2 * math.sqrt(5) / mu(), rel=1e-6)
    sent, labels = method.messages(case, terms(), std)
    matches(sent - case.features, std**2)
    many = problem(Logistic(), records=DRAWS, width=1)
    _, labels = method.messages(many, terms(), std)
    matches(labels[:, 0] - 2.0 * (2 * many.targets - 1), std**2)


def test_shuffled_messages():
    case = problem(Logistic(), records=20_000, width=1)
    result = Shuffled().release(case, terms(1.0, 1e-6, relation="replace_one"))
    # Recomputed: the noise meets (e0, d0), whose amplified epsilon is the target's at half of delta.
    limit = math.log(20_000 / (16 * math.log(2 / 5e-7)))
    low, high = 0.01, limit
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if shuffled_epsilon(middle, 5e-7, 20_000) <= 1.0 else (low, middle)
    assert low <= limit
    d0 = 5e-7 / ((math.e + 1) * (1 + math.exp(-low) / 2) * 20_000)
    assert result.facts["noise_std"] == pytest.approx(2 * math.sqrt(2) / gaussian_mu(low, d0), rel=1e-6)
    assert low > 1.0


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_the_papers_noise(power):
    method = PaperInput(steps=30, constant=2.0, convexity_power=power)
    case = problem(Logistic(), records=1000, width=100, strength=5.0)
    sigma = method.release(case, terms(EPSILON, DELTA, relation="replace_one")).facts["noise_std"]
    variance = 2.0 * 30 * math.log(1 / DELTA) / (1000 * 999 * (5 / 1000) ** power * EPSILON**2)
    assert sigma**2 == pytest.approx(variance)
    matches(perturbed(case, terms(), sigma).features - case.features, variance)


def test_relations_scale_gaussian_noise():
    one, two = (
        GaussianOutput().release(problem(Logistic()), terms(relation=r)).facts["noise_std"]
        for r in ("add_remove", "replace_one")
    )
    assert two == pytest.approx(2 * one)
    assert Relation.REPLACE_ONE.sensitivity == 2
