"""The relation that a fit certifies is the one that its settings allow, and no refusal tells neighbours apart."""

import numpy as np
import pytest

from tacit.accounting import PLACES, Ledger
from tacit.erm import (
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPMLPClassifier,
    DPRidge,
    PrivateScaler,
)
from tacit.erm.base import PUBLIC, PUBLIC_SIZE
from tacit.errors import InvalidInput
from tacit.relation import Relation
from tacit.tradeoff import Mu
from tacit.variational import DPBayesianLinearRegression, DPBayesianLogisticRegression
from tacit_papers.input_perturbation.comparison import METHODS
from tacit_papers.input_perturbation.perturbed_table import randomised_labels

SIZED = [(family, name) for family, known in METHODS.items() for name in known if known[name].any_size]
OTHERS = [(family, name) for family, known in METHODS.items() for name in known if not known[name].any_size]
DECLARED = {"epsilon": 0.5, "delta": 1e-5, "data_bounds": (-1, 1), "classes": [0, 1]}


def fitted(records, **settings):
    """A fit of rows of zeros, on which nothing but the number of records can be seen."""
    x = np.zeros((records, 3))
    return DPLogisticRegression(**(DECLARED | {"unsafe_seed": 0} | settings)).fit(x, np.zeros(records, int))


@pytest.mark.parametrize(("method", "variant"), SIZED)
def test_neighbours_of_blank_rows_have_the_same_release_once_a_size_is_declared(method, variant):
    """Add/remove: a record of zeros has no gradient, so that only settings that follow n could tell it is there."""
    fits = [fitted(n, method=METHODS[method][variant](), fit_intercept=False, public_size=80) for n in (60, 61, 99)]
    for one in fits[1:]:
        assert one.facts_ == fits[0].facts_
        assert one.regularization_ == fits[0].regularization_
    if variant not in ("sgd", "svrg"):  # a sampler draws one more coin for one more record
        for one in fits[1:]:
            np.testing.assert_allclose(one.coef_, fits[0].coef_, rtol=1e-9)
    assert fits[0].guarantee_.relation is Relation.ADD_REMOVE
    assert fits[0].ledger_.relation is Relation.ADD_REMOVE
    assert PUBLIC_SIZE in fits[0].ledger_.assumptions
    assert PUBLIC not in fits[0].ledger_.assumptions


@pytest.mark.parametrize(("method", "variant"), OTHERS)
def test_methods_whose_proof_needs_the_number_of_records_refuse_another(method, variant):
    with pytest.raises(InvalidInput, match="public_size must be left at its default"):
        fitted(60, method=METHODS[method][variant](), public_size=80)


@pytest.mark.parametrize(("method", "variant"), SIZED + [each for each in OTHERS if each != ("input", "local")])
def test_settings_that_follow_the_number_of_records_certify_zero_out(method, variant):
    model = fitted(60, method=METHODS[method][variant]())
    assert model.guarantee_.relation is Relation.ZERO_OUT
    assert model.ledger_.relation is Relation.ZERO_OUT
    assert "zero_out" in model.privacy_summary()
    assert fitted(60, method=METHODS[method][variant](), relation="replace_one").guarantee_.relation is (
        Relation.REPLACE_ONE
    )


def test_a_given_ledger_says_that_places_are_left_blank():
    ledger = Ledger()
    assert fitted(60, ledger=ledger).guarantee_.relation is Relation.ZERO_OUT
    assert PLACES in ledger.assumptions
    sized = Ledger()
    fitted(60, ledger=sized, public_size=60)
    assert PLACES not in sized.assumptions


@pytest.mark.slow_cases("DPBayesianLogisticRegression")
@pytest.mark.parametrize("make", [DPMLPClassifier, DPBayesianLogisticRegression])
def test_models_trained_in_batches_certify_zero_out(make):
    x = np.zeros((60, 2))
    assert make(**DECLARED).fit(x, np.zeros(60, int)).guarantee_.relation is Relation.ZERO_OUT


@pytest.mark.parametrize("size", [None, 50])
def test_a_private_scaler_divides_by_a_declared_size(size):
    scaler = PrivateScaler(delta=1e-5, public_size=size, unsafe_seed=0).fit(np.full((60, 1), 0.5))
    assert scaler.guarantee_.relation is (Relation.ZERO_OUT if size is None else Relation.ADD_REMOVE)
    other = PrivateScaler(delta=1e-5, public_size=size, unsafe_seed=0).fit(np.zeros((60, 1)))
    moved = 0.5 * 60 / (size or 60)
    assert scaler.mean_[0] - other.mean_[0] == pytest.approx(moved, abs=1e-9) or abs(scaler.mean_[0]) == 1.0


def test_the_default_delta_follows_the_declared_size():
    one, other = (fitted(n, delta=None, public_size=10**6) for n in (60, 61))
    assert one.facts_ == other.facts_


MODELS = [
    (DPLogisticRegression, "classes"),
    (DPLinearSVC, "classes"),
    (DPMLPClassifier, "classes"),
    (DPBayesianLogisticRegression, "classes"),
    (DPLinearRegression, "target_bounds"),
    (DPRidge, "target_bounds"),
    (DPBayesianLinearRegression, "target_bounds"),
]


@pytest.mark.slow_cases(
    "1-0-DPBayesianLogisticRegression-classes",
    "1-1-DPBayesianLogisticRegression-classes",
    "5-0-DPBayesianLogisticRegression-classes",
    "5-1-DPBayesianLogisticRegression-classes",
)
@pytest.mark.parametrize(("kind", "declared"), MODELS)
@pytest.mark.parametrize("answer", [0, 1])
@pytest.mark.parametrize("records", [1, 5])
def test_no_valid_values_are_refused(kind, declared, answer, records):
    """One class, a constant column, answers that are all equal: an exception would tell neighbours apart."""
    x = np.full((records, 2), 0.5)
    settings = {declared: [0, 1]} | ({"batch_size": 1} if hasattr(kind, "batch_size") else {})
    model = kind(delta=1e-5, data_bounds=(-1, 1), **settings).fit(x, np.full(records, answer))
    assert np.isfinite(np.asarray(model.predict(x), float)).all()


def test_any_declared_labels_may_occur():
    """Real numbers that are no integers are labels, too, once they are declared."""
    x = np.zeros((5, 1))
    for y in ([0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.5]):
        model = DPLogisticRegression(**(DECLARED | {"classes": [0.0, 0.5]})).fit(x, y)
        assert model.classes_.tolist() == [0.0, 0.5]


def test_one_answer_may_be_randomised():
    answers = [randomised_labels(["no"], classes=["no", "yes"], epsilon=1.0, ledger=Ledger())[0] for _ in range(200)]
    # Kept with probability .73: all alike in 200 draws with probability 1e-27.
    assert set(answers) == {"no", "yes"}


def test_a_solver_that_gives_up_tells_no_norm():
    from tacit.erm.losses import Logistic
    from tacit.erm.solver import Problem, minimise
    from tacit.errors import TacitError

    problem = Problem(np.full((1000, 2), 0.7), np.ones(1000), Logistic(), 1e-3)
    with pytest.raises(TacitError) as raised:
        minimise(problem, tolerance=1e-300)
    assert "reached" not in str(raised.value)


def test_an_advantage_target_certifies_zero_out_too():
    assert fitted(60, target=Mu(0.5)).guarantee_.relation is Relation.ZERO_OUT
