"""The change of variables behind objective perturbation, replayed path by path and integrated in one dimension."""

import math

import numpy as np
import pytest

from tacit.erm.losses import HuberHinge, Logistic, Softmax, Squared
from tacit.erm.objective import PureObjective, strength_for
from tacit.erm.solver import Problem, minimise
from tacit.mechanisms import ObjectivePerturbation
from tacit.relation import Relation
from tacit.tradeoff.gaussian import gaussian_delta
from tacit_papers.input_perturbation.objective_methods import (
    ApproximateMinima,
    ChaudhuriObjective,
    KiferObjective,
    KiferPureObjective,
)
from tests.erm.cases import LOSSES, problem
from tests.erm.test_sensitivity import neighbours

RELATIONS = (Relation.ADD_REMOVE, Relation.REPLACE_ONE)


def log_determinant(case, theta):
    curvatures = case.loss.curvatures(case.features @ theta, case.targets)
    width = case.dimension
    hessian = np.einsum("np,nab,nq->paqb", case.features, curvatures, case.features).reshape(width, width)
    return np.linalg.slogdet(hessian + case.strength * np.eye(width))[1]


def corners(loss, row, target):
    """Gradients of a record at the far ends of score space, and 0."""
    if isinstance(loss, Softmax):
        slopes = np.eye(loss.classes) - np.eye(loss.classes)[target]
    elif isinstance(loss, Squared):
        slopes = np.array([[0.0], [loss.residual_bound], [-loss.residual_bound]])
    else:
        slopes = np.array([[0.0], [-loss.lipschitz * (2 * target - 1)]])
    return [np.outer(row, slope) for slope in slopes]


@pytest.mark.slow_cases
@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("strength", [0.1, 3.0])
def test_the_loss_never_exceeds_its_bound_on_any_path(loss, relation, strength):
    """log f'(theta) / f(theta) <= log_volume + max over corners of (||v||^2 + 2 <b', v>) / (2 s^2), drawn under f'."""
    rng, std = np.random.default_rng(1), 1.3
    for records in (0, 6):
        case = problem(loss, records=records, width=2, strength=strength)
        for one, other in neighbours(case, rng, relation, 30):
            for drawn, against, removed in ((other, one, False), (one, other, True)):
                noise = rng.normal(size=case.shape) * std * rng.choice([1.0, 3.0])
                theta = minimise(drawn, linear=noise)
                opposite = -against.gradient(theta)
                volume = log_determinant(drawn, theta) - log_determinant(against, theta)
                exact = ((opposite**2).sum() - (noise**2).sum()) / (2 * std**2) + volume
                last = corners(loss, other.features[-1], other.targets[-1])
                first = [0.0] if relation is Relation.ADD_REMOVE else corners(loss, one.features[-1], one.targets[-1])
                sign = -1.0 if removed else 1.0
                moves = [sign * (v - w) for v in last for w in first]
                bend = max(float((v**2).sum() + 2 * (noise * v).sum()) / (2 * std**2) for v in moves)
                raised = 0.0 if removed and relation is Relation.ADD_REMOVE else loss.log_volume(strength)
                assert exact <= raised + bend + 1e-6
                assert len(moves) - 1 <= (len(last) - 1) * len(first) + len(first) - 1
                assert len(last) - 1 == loss.corners


def density(case, noise_density, thetas):
    """Density of the released theta at a grid of one-dimensional thetas."""
    pull, bend = case.strength * thetas, np.full(len(thetas), case.strength)
    for row, target in zip(case.features[:, 0], case.targets, strict=True):
        scores, targets = row * thetas[:, None], np.full(len(thetas), target)
        pull = pull + row * case.loss.slopes(scores, targets)[:, 0]
        bend = bend + row**2 * case.loss.curvatures(scores, targets)[:, 0, 0]
    return noise_density(-pull) * bend


def hockey_stick(one, other, noise_density, epsilons, reach):
    """The larger of delta(epsilon) in both directions, by the trapezoid rule over theta."""
    thetas = np.linspace(-reach, reach, 400_001)
    p, q = density(one, noise_density, thetas), density(other, noise_density, thetas)
    step = thetas[1] - thetas[0]
    assert p.sum() * step == pytest.approx(1, abs=1e-4)
    tilts = [math.exp(epsilon) for epsilon in epsilons]
    return [max(np.maximum(p - t * q, 0).sum(), np.maximum(q - t * p, 0).sum()) * step for t in tilts]


def lonely(loss, strength, relation):
    """One-dimensional neighbours that are as unlike as records can be."""
    empty = Problem(np.zeros((0, 1)), np.zeros(0), loss, strength)
    single = Problem(np.ones((1, 1)), np.ones(1), loss, strength)
    opposite = Problem(np.ones((1, 1)), np.full(1, -1.0 if isinstance(loss, Squared) else 0.0), loss, strength)
    return (empty, single) if relation is Relation.ADD_REMOVE else (opposite, single)


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("loss", [Logistic(), Logistic(0.5), HuberHinge(0.5), Squared(0.7)], ids=str)
@pytest.mark.parametrize(("strength", "multiplier"), [(0.3, 1.0), (2.0, 0.6), (20.0, 3.0)])
def test_the_profile_covers_the_exact_one(loss, relation, strength, multiplier):
    mechanism = ObjectivePerturbation(multiplier, loss.log_volume(strength), loss.corners)
    std = multiplier * loss.lipschitz
    one, other = lonely(loss, strength, relation)

    def normal(value):
        return np.exp(-((value / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))

    reach = (9 * std + 1) / strength
    epsilons = (0.0, 0.1, 0.5, 1.0, 2.0)
    found = hockey_stick(one, other, normal, epsilons, reach)
    stated = [mechanism.delta_at(epsilon, relation) for epsilon in epsilons]
    assert all(f <= s + 1e-3 * s + 1e-6 for f, s in zip(found, stated, strict=True))
    assert found[0] > 0.05 * stated[0]


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5)], ids=str)
@pytest.mark.parametrize("method", [PureObjective(), ChaudhuriObjective(), KiferPureObjective()], ids=lambda m: m.name)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_pure_calibrations_hold_at_their_epsilon(method, loss, relation, epsilon):
    left, strength = method.budget(Problem(np.zeros((1, 1)), np.ones(1), loss, 0.4), epsilon)
    assert left > 0
    rate = left / (relation.sensitivity * loss.lipschitz)
    one, other = lonely(loss, strength, relation)
    thetas = np.linspace(-(20 / rate + 2) / strength, (20 / rate + 2) / strength, 4001)
    p, q = (density(case, lambda value: rate / 2 * np.exp(-rate * np.abs(value)), thetas) for case in (one, other))
    assert np.abs(np.log(p) - np.log(q)).max() <= epsilon + 1e-9


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_published_calibrations_hold_by_the_exact_proof(relation, epsilon, delta):
    """Kifer et al. and AMP need far less than they spend; AMP's rounding noise meets its share exactly."""
    case = problem(Logistic(), strength=0.0)
    std = KiferObjective().noise_std(case, relation, epsilon, delta)
    # The published std is that of the whole change s G, so the exact mechanism's unit is std / G.
    kifer = ObjectivePerturbation(std, Logistic().log_volume(2 * 0.25 / epsilon))
    assert kifer.delta_at(epsilon, relation) <= delta
    amp = ApproximateMinima()
    strength, s1, s2 = amp.scales(case, epsilon, delta)
    exact = ObjectivePerturbation(s1, Logistic().log_volume(strength))
    assert exact.delta_at(amp.share * epsilon, relation) <= amp.share * delta
    mu = 2 * amp.tolerance / strength / s2
    assert gaussian_delta((1 - amp.share) * epsilon, mu) <= (1 - amp.share) * delta


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_strength_for_is_the_smallest(loss):
    for volume in (1e-3, 0.1, 2.0):
        strength = strength_for(loss, volume)
        assert loss.log_volume(strength) <= volume < loss.log_volume(strength * (1 - 1e-6))
