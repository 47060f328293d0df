"""Weights of records and classes: no record moves the released parameters by more than an unweighted one could."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.erm import DPLinearRegression, DPLinearSVC, DPLogisticRegression
from tacit.erm.gradient import clipped_sum
from tacit.erm.losses import HuberHinge, Logistic, Softmax, Squared
from tacit.erm.solver import TOLERANCE, Problem, minimise
from tacit.errors import InvalidInput
from tacit.relation import Relation
from tacit_papers.input_perturbation.comparison import METHODS
from tacit_papers.input_perturbation.descent_methods import GaussianOutput, GradientDescentOutput, minimiser_sensitivity
from tacit_papers.input_perturbation.input_methods import Aggregate
from tests.erm.cases import LOSSES, problem, rows, targets_of

WEIGHTS = (0.0, 1e-300, 0.3, 1.0)


def weighted(loss, *, records, strength, seed=0):
    """`problem` whose records have weights in [0, 1]."""
    plain = problem(loss, records=records, width=2, strength=strength, seed=seed)
    shares = np.random.default_rng(seed + 100).choice(WEIGHTS, size=records)
    return replace(plain, weights=shares)


def with_record(case, row, answer, weight):
    targets, weights = np.append(case.targets, answer), np.append(case.weights, weight)
    targets = targets.astype(case.targets.dtype)
    return replace(case, features=np.vstack([case.features, row]), targets=targets, weights=weights)


def neighbours(case, rng, relation):
    """The record pulls along an axis or against its replacement; its weight, and its replacement's, are any share."""
    for weight in WEIGHTS:
        for other in WEIGHTS if relation is Relation.REPLACE_ONE else (None,):
            for row in (rows(rng, 1, 2)[0], np.eye(2)[0]):
                row = row / np.linalg.norm(row)
                answers = targets_of(case.loss, rng, 2)
                one = with_record(case, row, answers[0], weight)
                yield one, case if other is None else with_record(case, -row, answers[1], other)


@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE], ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_minimisers_of_neighbours_stay_within_the_unweighted_sensitivity(loss, relation):
    rng = np.random.default_rng(3)
    for strength in (0.05, 2.0):
        for records in (0, 7):
            case = weighted(loss, records=records, strength=strength)
            stated = minimiser_sensitivity(problem(loss, strength=strength), relation, TOLERANCE, "test")
            assert minimiser_sensitivity(case, relation, TOLERANCE, "test") == stated
            for one, other in neighbours(case, rng, relation):
                assert np.linalg.norm(minimise(one) - minimise(other)) <= stated


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Squared(0.7)], ids=str)
def test_the_last_iterates_and_clipped_sums_of_neighbours_stay_within_theirs(loss):
    rng, method = np.random.default_rng(4), GradientDescentOutput(steps=20)
    case = weighted(loss, records=8, strength=0.05)
    stated = method.sensitivity(case)
    for one, _ in neighbours(case, rng, Relation.ADD_REMOVE):
        blank = replace(one, features=np.vstack([one.features[:-1], np.zeros((1, 2))]))
        assert np.linalg.norm(method.iterate(one) - method.iterate(blank)) <= stated * (1 + 1e-9)
        theta = rng.normal(size=case.shape) * 10
        assert np.linalg.norm(clipped_sum(one, theta, 0.4) - clipped_sum(blank, theta, 0.4)) <= 0.4 * (1 + 1e-9)


@pytest.mark.parametrize("loss", [Logistic(0.5), Softmax(3), HuberHinge(0.5)], ids=str)
def test_one_record_adds_no_more_to_the_log_determinant_than_its_unweighted_loss(loss):
    rng, strength = np.random.default_rng(5), 0.3
    for weight in WEIGHTS:
        case = weighted(loss, records=6, strength=strength)
        more = with_record(case, np.eye(2)[0], targets_of(loss, rng, 1)[0], weight)
        theta = rng.normal(size=case.shape)
        grown, before = (np.linalg.slogdet(hessian(each, theta))[1] for each in (more, case))
        assert grown - before <= loss.log_volume(strength) + 1e-12


def hessian(case, theta):
    size = theta.size
    total = case.strength * np.eye(size)
    for row, bent in zip(case.features, case.curvatures(case.features @ theta), strict=True):
        total += np.kron(np.outer(row, row), bent)
    return total


def test_weights_of_one_are_no_weights_and_a_weight_of_two_is_the_record_twice():
    plain = problem(Logistic(0.5), records=20, width=3, strength=1.5)
    ones = replace(plain, weights=np.ones(20))
    np.testing.assert_allclose(minimise(ones), minimise(plain), atol=1e-8)
    twice = Problem(np.vstack([plain.features] * 2), np.tile(plain.targets, 2), plain.loss, 2 * plain.strength)
    np.testing.assert_allclose(minimise(twice), minimise(ones), atol=1e-8)


def data(records=600):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (records, 2))
    return x, np.where(x[:, 0] + 0.5 * rng.normal(size=records) > 1.0, "rare", "usual")


SETTINGS = {"epsilon": 20.0, "delta": 1e-5, "data_bounds": (-1, 1), "unsafe_seed": 0}
NAMED = SETTINGS | {"classes": ["rare", "usual"]}


@pytest.mark.parametrize("method", ["objective", GaussianOutput(), "gradient"], ids=str)
def test_the_rarer_class_is_found_more_often_at_the_same_cost(method):
    x, y = data()
    plain, balanced = (
        DPLogisticRegression(method=method, class_weight=weight, regularization=1e-3, **NAMED).fit(x, y)
        for weight in (None, {"rare": 8.0})
    )
    found = [np.mean(model.predict(x)[y == "rare"] == "rare") for model in (plain, balanced)]
    assert found[1] > found[0] + 0.2
    assert plain.release_.mechanism == balanced.release_.mechanism
    assert plain.facts_ == balanced.facts_


@pytest.mark.parametrize("kind", [DPLinearSVC, DPLinearRegression])
def test_records_of_weight_zero_do_not_count(kind):
    x, _ = data()
    answers = (x[:, 1] > 0).astype(float)
    declared = {"classes": [0, 1]} if kind is DPLinearSVC else {"target_bounds": (0, 1)}
    weights = np.repeat([1.0, 0.0], [400, 200])
    poisoned = np.where(weights > 0, answers, 1 - answers)
    fits = [kind(method=GaussianOutput(), **declared, **SETTINGS).fit(x, each, weights) for each in (answers, poisoned)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_a_weight_above_the_bound_counts_as_the_bound():
    x, y = data()
    weights = np.linspace(0.0, 4.0, len(x))
    one, other = (
        DPLogisticRegression(weight_bound=2.0, **NAMED).fit(x, y, sample_weight=each)
        for each in (weights, np.minimum(weights, 2.0))
    )
    np.testing.assert_array_equal(one.coef_, other.coef_)


@pytest.mark.parametrize(
    ("settings", "weights", "sentence"),
    [
        ({}, -np.ones(600), "sample_weight must be finite and >= 0; got cells in rows 0, 1"),
        ({}, np.full(600, np.nan), "sample_weight must be finite and >= 0"),
        ({}, np.ones(599), r"sample_weight must be of shape \(600,\)"),
        ({}, np.ones((600, 2)), r"sample_weight must be of shape \(600,\)"),
        ({"weight_bound": 0.0}, np.ones(600), "weight_bound must be"),
        ({"weight_bound": 2.0}, None, "weight_bound must be left at its default"),
        ({"class_weight": "balanced"}, None, "class_weight must be a table of class: weight"),
        ({"class_weight": {"rarely": 2.0}}, None, "class_weight must be of the declared classes"),
        ({"class_weight": {"rare": 0.0}}, None, "class_weight of 'rare' must be"),
        ({"class_weight": {"rare": np.inf}}, None, "class_weight of 'rare' must be"),
        ({"method": Aggregate(), "class_weight": {"rare": 2.0}}, None, "method must be objective or gradient"),
    ],
)
def test_bad_weights_get_a_sentence_and_spend_nothing(settings, weights, sentence):
    x, y = data()
    model = DPLogisticRegression(**(NAMED | settings))
    with pytest.raises(InvalidInput, match=sentence):
        model.fit(x, y, weights)
    assert not hasattr(model, "release_")


def test_every_method_but_input_takes_weights():
    x, y = data(200)
    weights = np.linspace(0.1, 1.0, 200)
    for family in ("objective", "output", "gradient"):
        for variant, method in METHODS[family].items():
            delta = 0.0 if method.pure else 1e-5
            model = DPLogisticRegression(method=method(), **(NAMED | {"delta": delta}))
            assert np.isfinite(model.fit(x, y, weights).coef_).all(), variant
