"""Neighbour replay: adversarial searches over neighbours find no contribution above the one that a method states."""

import math

import numpy as np
import pytest

from tacit.erm.design import Design, smallest_ball
from tacit.erm.gradient import clipped_sum
from tacit.erm.losses import HuberHinge, Logistic, Softmax, Squared
from tacit.erm.solver import TOLERANCE, Problem, minimise
from tacit.errors import Refused
from tacit.relation import Relation
from tacit_papers.input_perturbation import descent_methods as output
from tacit_papers.input_perturbation.descent_methods import GradientDescentOutput, minimiser_sensitivity
from tacit_papers.input_perturbation.input_methods import Aggregate, Local, answer_bound, moments
from tests.erm.cases import LOSSES, problem, rows, targets_of

RELATIONS = (Relation.ADD_REMOVE, Relation.REPLACE_ONE)


def with_record(case, row, target):
    """`case` and one more record, n and strength the public constants they were."""
    features, targets = np.vstack([case.features, row]), np.append(case.targets, target)
    return Problem(features, targets.astype(case.targets.dtype), case.loss, case.strength)


def neighbours(case, rng, relation, trials):
    """Random and adversarial pairs: the record pulls along an axis, along theta, or against its own replacement."""
    width = case.shape[0]
    pull = minimise(case)[:, 0] if case.records else np.zeros(width)
    for trial in range(trials):
        row = rows(rng, 1, width)[0]
        if trial % 3 == 1:
            row = np.eye(width)[trial % width]
        if trial % 3 == 2 and np.linalg.norm(pull) > 0:
            row = -pull / np.linalg.norm(pull)
        row = row / np.linalg.norm(row)
        larger = with_record(case, row, targets_of(case.loss, rng, 1)[0])
        if relation is Relation.ADD_REMOVE:
            yield case, larger
        else:
            yield with_record(case, -row, targets_of(case.loss, rng, 1)[0]), larger


def worst(measure, loss, relation, *, strengths=(0.05, 2.0), trials=25):
    """The largest distance of `measure` between neighbours over sizes from the empty data set up."""
    rng, largest = np.random.default_rng(3), 0.0
    for strength in strengths:
        for records in (0, 1, 8):
            case = problem(loss, records=records, width=2, strength=strength, seed=records)
            for one, other in neighbours(case, rng, relation, trials):
                largest = max(largest, float(np.linalg.norm(measure(one) - measure(other))) * strength)
    return largest


@pytest.mark.slow_cases
@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_minimisers(loss, relation):
    moved = worst(lambda case: minimise(case), loss, relation)
    stated = minimiser_sensitivity(problem(loss, strength=1.0), relation, TOLERANCE, "test")
    assert moved <= stated
    if isinstance(loss, HuberHinge):
        assert moved >= 0.95 * relation.sensitivity  # a lone hinge pulls with its full slope: the bound is tight


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_minimisers_that_are_stopped_early(relation):
    """Points of gradient norm up to the tolerance, anywhere around both minimisers, stay within the sensitivity."""
    # Margins stay below .5, where the loss is linear and so pulls with its full slope.
    tolerance, strength, rng = 0.2, 4.0, np.random.default_rng(6)
    loss, largest = HuberHinge(0.5), 0.0
    for one, other in neighbours(problem(loss, records=0, width=2, strength=strength), rng, relation, 60):
        first, second = (minimise(case) for case in (one, other))
        away = (second - first) / (np.linalg.norm(second - first) or 1.0)
        ends = ((one, first, -away), (other, second, away))
        stopped = [furthest(case, theta, direction, tolerance) for case, theta, direction in ends]
        largest = max(largest, float(np.linalg.norm(stopped[1] - stopped[0])))
    stated = minimiser_sensitivity(problem(loss, strength=strength), relation, tolerance, "test")
    assert 0.95 * stated <= largest <= stated


def furthest(case, theta, direction, tolerance):
    """The furthest point from the minimiser along `direction` whose gradient is no longer than `tolerance`."""
    low, high = 0.0, tolerance / case.strength
    for _ in range(50):
        middle = (low + high) / 2
        inside = np.linalg.norm(case.gradient(theta + middle * direction)) <= tolerance
        low, high = (middle, high) if inside else (low, middle)
    return theta + low * direction


@pytest.mark.parametrize("steps", [1, 7, 60])
@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5), Softmax(3), Squared(0.7)], ids=str)
def test_iterates_of_gradient_descent(loss, relation, steps):
    method, rng = GradientDescentOutput(steps=steps), np.random.default_rng(4)
    for strength in (0.0, 0.05, 2.0):
        public = problem(loss, records=8, width=2, strength=strength)
        stated = relation.sensitivity * method.sensitivity(public)
        assert stated <= relation.sensitivity * GradientDescentOutput(steps, paper_constant=True).sensitivity(public)
        eta = method.step_size(public)

        def iterate(data, eta=eta, public=public):
            theta = data.zero()
            for _ in range(steps):
                theta = theta - eta / public.records * data.gradient(theta)
            return theta

        base = Problem(public.features, public.targets, loss, max(strength, 1e-9))
        for one, other in neighbours(base, rng, relation, 12):
            exact = (Problem(case.features, case.targets, loss, strength) for case in (one, other))
            first, second = (iterate(case) for case in exact)
            assert np.linalg.norm(first - second) <= stated * (1 + 1e-9)


def test_the_replayed_iteration_is_the_one_that_runs():
    public = problem(Logistic(), records=8, width=2)
    method = GradientDescentOutput(steps=5)
    theta = public.zero()
    for _ in range(5):
        theta = theta - method.step_size(public) / 8 * public.gradient(theta)
    np.testing.assert_allclose(theta, method.iterate(public))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("clip", [0.1, 0.5, 5.0])
def test_clipped_gradients(loss, clip):
    """One record's part of the sum, at thetas of every size; and the sum is that of clipped contributions."""
    rng = np.random.default_rng(5)
    case = problem(loss, records=30, width=3)
    for size in (0.0, 1.0, 50.0):
        theta = rng.normal(size=case.shape) * size
        parts = case.features[:, :, None] * case.slopes(case.features @ theta)[:, None, :]
        norms = np.linalg.norm(parts.reshape(30, -1), axis=1)
        assert norms.max() <= loss.lipschitz + 1e-12
        clipped = parts * np.minimum(1, clip / np.maximum(norms, 1e-300))[:, None, None]
        np.testing.assert_allclose(clipped_sum(case, theta, clip), clipped.sum(axis=0), atol=1e-12)
        single = Problem(case.features[:1], case.targets[:1], loss, 0.0)
        assert np.linalg.norm(clipped_sum(single, theta, clip)) <= min(clip, loss.lipschitz) + 1e-12


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_differences_of_gradients_in_svrg(loss):
    rng = np.random.default_rng(6)
    case = problem(loss, records=1, width=3)
    for _ in range(50):
        one, other = (rng.normal(size=case.shape) * 10 for _ in range(2))
        moved = clipped_sum(case, one, loss.lipschitz) - clipped_sum(case, other, loss.lipschitz)
        assert np.linalg.norm(moved) <= 2 * loss.lipschitz + 1e-12


def svec(matrix):
    upper = matrix[np.triu_indices(len(matrix), 1)] * math.sqrt(2)
    return np.concatenate([np.diag(matrix), upper])


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5), Softmax(3), Squared()], ids=str)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_statistics_of_one_record(loss, share):
    """(a svec(x x^T), c x answer^T / A) has norm at most 1, and unit rows reach it."""
    case = problem(loss, records=500, width=3)
    method = Aggregate(second_share=share)
    a, c = math.sqrt(method.second_share), math.sqrt(1 - method.second_share)
    _, answers = moments(case)
    assert np.linalg.norm(answers, axis=1).max() <= answer_bound(case) + 1e-12
    norms = [
        np.linalg.norm(np.concatenate([a * svec(np.outer(x, x)), c * np.outer(x, y).ravel() / answer_bound(case)]))
        for x, y in zip(case.features, answers, strict=True)
    ]
    assert max(norms) <= 1 + 1e-12
    assert max(norms) >= 0.99


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_messages_of_one_record(scale):
    case = problem(Logistic(), records=500, width=3)
    _, answers = moments(case)
    sent = np.hstack([case.features, scale * answers / answer_bound(case)])
    distances = np.linalg.norm(sent[:, None] - sent[None], axis=2)
    assert distances.max() <= 2 * math.hypot(1.0, Local(label_scale=scale).label_scale) + 1e-12


@pytest.mark.parametrize("constant", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("width", [1, 3])
def test_rows_of_a_design_never_leave_the_unit_ball(constant, width):
    design = Design(-2.0, np.arange(1.0, width + 1), 1.5, constant)
    wild = np.random.default_rng(7).normal(size=(2000, width)) * 10.0 ** np.random.default_rng(8).integers(
        -3, 9, (2000, 1)
    )
    features = design.features(wild)
    assert np.linalg.norm(features, axis=1).max() <= 1.0
    coefficients, intercepts = design.coefficients(np.ones((features.shape[1], 1)))
    raw = design.clipped(wild) @ coefficients.T + intercepts
    np.testing.assert_allclose(raw[:, 0], features.sum(axis=1), atol=1e-9)


@pytest.mark.parametrize(
    ("low", "high", "norm"),
    [
        (np.zeros(9), np.ones(9), 1.7),
        (np.array([-1.0, 2.0, -5.0]), np.array([3.0, 4.0, -1.0]), 6.0),
        (np.array([-1.0, 0.0]), np.array([1.0, 0.0]), 10.0),
        (np.full(4, -2.0), np.full(4, 2.0), 0.5),
    ],
)
def test_the_smallest_ball_holds_every_row_of_the_box_and_ball(low, high, norm):
    center, radius = smallest_ball(low, high, norm, len(low))
    rng = np.random.default_rng(3)
    corners = np.where(rng.integers(0, 2, (4000, len(low))) == 1, high, low)
    inside = np.concatenate([corners * rng.uniform(0, 1, (4000, 1)), rng.uniform(low, high, (4000, len(low)))])
    norms = np.linalg.norm(inside, axis=1, keepdims=True)
    inside *= np.minimum(1.0, norm / np.maximum(norms, 1e-300))
    inside = inside[np.all((low <= inside) & (inside <= high), axis=1)]
    assert len(inside) > 50
    assert np.linalg.norm(inside - center, axis=1).max() <= radius * (1 + 1e-9)
    assert radius <= min(norm, math.hypot(*np.maximum(abs(low), abs(high)))) * (1 + 1e-9)


def test_known_smallest_balls():
    # A box alone has its middle; the unit box cut by the ball of norm^2 R < d / 2 has R / d in every column.
    center, radius = smallest_ball(np.array([1.0, -2.0]), np.array([3.0, 2.0]), 100.0, 2)
    np.testing.assert_allclose(center, [2.0, 0.0], atol=1e-12)
    assert radius == pytest.approx(math.sqrt(5))
    center, radius = smallest_ball(0.0, 1.0, math.sqrt(14), 105)
    np.testing.assert_allclose(center, 14 / 105, atol=1e-6)
    assert radius**2 == pytest.approx(14 - 14**2 / 105)


@pytest.mark.parametrize("center", [0.0, np.array([5.0, -1.0])])
def test_moved_rows_never_leave_the_unit_ball_and_scores_are_the_same(center):
    wild = np.random.default_rng(7).normal(size=(500, 2)) * 10.0
    design = Design(-3.0, 2.0, 2.5, 0.5, center, 1.1)
    features = design.features(wild)
    assert np.linalg.norm(features, axis=1).max() <= 1.0
    gentle = Design(-3.0, 2.0, 2.5, 0.5, center, 20.0)
    coefficients, intercepts = gentle.coefficients(np.array([[0.3], [-2.0], [1.5]]))
    raw = gentle.clipped(wild) @ coefficients.T + intercepts
    np.testing.assert_allclose(raw, gentle.features(wild) @ np.array([[0.3], [-2.0], [1.5]]), atol=1e-9)


@pytest.mark.parametrize(("share", "known"), [(0.5, 1.5), (0.8, 1.4230), (0.2, None)])
def test_replaced_statistics_move_by_their_exact_sensitivity(share, known):
    """A search over two rows of a plane and opposite answers comes up to it and never beyond."""
    method, largest = Aggregate(second_share=share), 0.0
    for angle in np.linspace(0, np.pi, 721):
        for first, second in ((1.0, 1.0), (1.0, 0.9), (0.7, 0.7), (1.0, 0.0)):
            x, other = np.array([first, 0.0]), second * np.array([np.cos(angle), np.sin(angle)])
            moments_apart = ((np.outer(x, x) - np.outer(other, other)) ** 2).sum()
            for sign in (1.0, -1.0):
                answers_apart = ((x - sign * other) ** 2).sum()
                largest = max(largest, math.sqrt(share * moments_apart + (1 - share) * answers_apart))
    assert largest <= method.replaced * (1 + 1e-12)
    assert largest == pytest.approx(method.replaced, rel=1e-4)
    assert known is None or method.replaced == pytest.approx(known, abs=1e-4)


def test_local_messages_leave_out_the_constant():
    """Rows of a design with an intercept are shorter by sqrt(1 + c^2) without it, and so is the noise."""
    from tacit.erm import DPLogisticRegression

    x = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    settings = {"method": Local(), "delta": 1e-5, "data_bounds": (-1, 1), "classes": [0, 1]}
    with_constant, without = (
        DPLogisticRegression(fit_intercept=fit, **settings).fit(x, (x[:, 0] > 0).astype(int)) for fit in (True, False)
    )
    shorter = math.hypot(1 / math.hypot(1, 0.5), 1) / math.hypot(1, 1)
    assert with_constant.facts_["noise_std"] == pytest.approx(shorter * without.facts_["noise_std"])
    rows = with_constant.design_.features(x * 100)[:, :-1]
    assert np.linalg.norm(rows, axis=1).max() <= 1 / math.hypot(1, 0.5)


@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
def test_noise_short_of_what_a_neighbour_moves_a_minimiser_by_is_refused(relation):
    problem = Problem(np.zeros((4, 2)), np.ones(4), Logistic(), 2.0)
    covered = 2.0 / relation.sensitivity
    output._check_rate(covered, problem, relation, 1.0)
    with pytest.raises(Refused, match="must cover what a neighbour moves"):
        output._check_rate(1.01 * covered, problem, relation, 1.0)
