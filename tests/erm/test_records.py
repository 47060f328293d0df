"""Records that no proof covers: blank where they are not finite, refused where their label is of another alphabet."""

import numpy as np
import pytest

from tacit.accounting import Ledger
from tacit.erm.losses import HuberHinge, Logistic, Softmax, Squared
from tacit.erm.release import Terms
from tacit.erm.solver import Problem, finite_records
from tacit.errors import InvalidInput
from tacit.noise import SeededStream
from tacit.tradeoff import Epsilon
from tacit.variational.linear import noisy_statistics
from tacit_papers.improved_accounting.posterior_sampling import Schedule, posterior_samples, sgld
from tacit_papers.input_perturbation.comparison import METHODS

BAD = [np.nan, np.inf, -np.inf, 1e200]
EVERY = [(family, name) for family, known in METHODS.items() for name in known]


def rows(bad):
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 3))
    x[7] = bad
    return x, (x[:, 1] > 0).astype(float)


@pytest.mark.parametrize("bad", BAD)
def test_langevin_states_stay_finite_whatever_a_row_holds(bad):
    x, y = rows(bad)
    schedule = Schedule(1.0, 1e-5, passes=2.0, lipschitz=1.0)
    chain = sgld(Problem(x, y, Logistic(), 1.0), schedule, batch_size=20, stream=SeededStream(0))
    assert np.isfinite(chain.states).all()


@pytest.mark.parametrize("bad", BAD)
def test_statistics_and_samples_are_those_of_a_blank_record(bad):
    x, y = rows(bad)
    blank, zero = x.copy(), y.copy()
    blank[7], zero[7] = 0.0, 0.0

    def both(x, y):
        drawn = posterior_samples(Logistic(), x, y, strength=1.0, std=1.0, stream=SeededStream(0)).samples
        return drawn, noisy_statistics(x, y, noise_multiplier=1.0, stream=SeededStream(0)).gram

    for got, wanted in zip(both(x, y), both(blank, zero), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_target_that_is_not_finite_makes_a_blank_record():
    x, y = finite_records(np.ones((2, 1)), np.array([1.0, np.nan]))
    assert x.tolist() == [[1.0], [0.0]]
    assert y.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        (Logistic(), [-1.0, 1.0]),
        (Logistic(0.5), [0.0, 2.0]),
        (HuberHinge(), [-1.0, 1.0]),
        (Softmax(3), [0, 3]),
        (Softmax(3), [-1, 1]),
        (Softmax(3), [0.0, 1.5]),
    ],
)
def test_labels_of_another_alphabet_are_refused(loss, labels):
    with pytest.raises(InvalidInput, match="targets must be"):
        Problem(np.ones((2, 1)), np.array(labels), loss, 1.0)


def test_posterior_samples_refuse_labels_of_minus_one_and_one():
    x, y = np.full((2, 1), 0.5), np.array([-1.0, 1.0])
    with pytest.raises(InvalidInput, match="targets must be 0 and 1"):
        posterior_samples(Logistic(), x, y, strength=1.0, std=1.0)


@pytest.mark.parametrize(("family", "name"), EVERY)
def test_no_method_takes_rows_that_its_sensitivity_does_not_cover(family, name):
    """Those that clip every gradient themselves may take them."""
    x = np.full((30, 2), 3.0)
    problem, method = Problem(x, np.ones(30), Logistic(), 50.0), METHODS[family][name]()
    terms = Terms(Epsilon(1.0, 1e-5), Ledger(), SeededStream(0))
    if (family, name) == ("gradient", "descent"):
        assert np.isfinite(method.release(problem, terms).theta).all()
        return
    with pytest.raises(InvalidInput, match="features must be rows of norm"):
        method.release(problem, terms)


def test_a_regression_takes_any_finite_answer():
    assert Problem(np.ones((2, 1)), np.array([1e9, -3.0]), Squared(), 1.0).records == 2
