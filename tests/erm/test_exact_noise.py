"""What exact methods release tells nothing by its low-order bits, and their noise covers the rounding of sums."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, chisquare

from tacit.accounting import How, Ledger
from tacit.erm import PrivateScaler
from tacit.erm.gradient import clipped_sum
from tacit.erm.losses import Logistic
from tacit.erm.objective import ObjectiveGaussian, PureObjective
from tacit.erm.solver import Problem, gradient_rounding, minimise, step_rounding, sum_rounding
from tacit.noise import SecureStream
from tacit.noise.rounded_gaussian import grid_of
from tacit.tradeoff import Epsilon
from tacit.variational import LogisticLikelihood
from tacit.variational.linear import noisy_statistics
from tacit_papers.improved_accounting.concealed import infer_concealed
from tacit_papers.improved_accounting.posterior_sampling import Schedule, posterior_samples, sgld
from tacit_papers.input_perturbation.descent_methods import (
    GaussianOutput,
    GradientDescentOutput,
    OutputPerturbation,
    descent_rounding,
)
from tacit_papers.input_perturbation.input_methods import Aggregate, Local
from tacit_papers.input_perturbation.objective_methods import ApproximateMinima, ChaudhuriObjective, KiferPureObjective
from tacit_papers.input_perturbation.perturbed_table import InputPerturbation, randomised_labels
from tests.erm.cases import problem, terms

PURE = (PureObjective(), ChaudhuriObjective(), KiferPureObjective(), OutputPerturbation())


def on_grid(values, std):
    steps = np.asarray(values) / grid_of(std)[1]
    return np.array_equal(steps, np.rint(steps))


def test_released_parameters_are_multiples_of_the_grid():
    case = problem(Logistic(), records=60)
    for method in (GaussianOutput(), ObjectiveGaussian(), ApproximateMinima(), GradientDescentOutput(), *PURE):
        given = terms(1.0, 0.0 if method.pure else 1e-5)
        theta = method.release(case, given).theta
        # Whatever the standard deviation is, the grid is a power of two not far below it.
        assert on_grid(theta, 2.0**-24)
        assert given.ledger.facts["arithmetic"].how is How.ENFORCED


def test_messages_statistics_and_tables_are_multiples_of_the_grid():
    case = problem(Logistic(), records=60)
    rows, answers = Local().messages(case, terms(), 3.0)
    paid = 3.0 * (1 + sum_rounding(1))
    assert on_grid(rows[:, : case.private_columns], paid)
    assert on_grid(answers, paid)
    assert on_grid(Aggregate().statistics(case, terms(), 3.0)[1], 1.0)
    found = noisy_statistics(case.features, np.zeros(60), noise_multiplier=2.0, stream=SecureStream())
    assert on_grid(found.gram, 1.0)
    assert on_grid(found.cross, 2.0)
    table = InputPerturbation(epsilon=1.0, delta=1e-5, data_bounds=(0, 1)).fit(np.zeros((40, 2)))
    assert on_grid(table.transform(np.full((40, 2), 1 / 3)), table.noise_std_ * (1 + sum_rounding(1)))


@pytest.mark.parametrize("steps", [2, 4, 8])
def test_residues_do_not_follow_the_value(steps):
    """The attack on low-order bits: with floats, sums that a value cannot give tell which value it was."""
    table = InputPerturbation(epsilon=1.0, delta=1e-5, data_bounds=(0, 1)).fit(np.zeros((20_000, 1)))
    grid = grid_of(table.noise_std_ * (1 + sum_rounding(1)))[1]
    counts = []
    for value in (0.0, 1 / 3):
        released = table.transform(np.full((20_000, 1), value)) / grid
        counts.append(np.bincount(np.mod(released, steps).astype(int).ravel(), minlength=steps))
    # Each uniform over the residues: false alarms below 1e-6 a test.
    assert min(chisquare(count).pvalue for count in counts) > 1e-6


def test_a_full_gradient_step_errs_by_less_than_its_noise_pays_for():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 7))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    case = Problem(rows, (rng.random(3000) < 0.5).astype(float), Logistic(), 1.0)
    theta = 30 * rng.normal(size=case.shape)
    computed = clipped_sum(case, theta, 0.5)
    exact = np.array([[math.fsum(column)] for column in _contributions(case, theta, 0.5).T])
    assert np.linalg.norm(computed - exact) * 2 <= step_rounding(case, theta, 0.5) * 0.5


def _contributions(case, theta, bound):
    slopes = case.loss.slopes(case.features @ theta, case.targets)
    rows = case.features * slopes
    return rows * np.minimum(1.0, bound / np.linalg.norm(rows, axis=1, keepdims=True))


def test_the_solvers_gradient_errs_by_less_than_its_bound():
    case = problem(Logistic(), records=500).with_strength(2.0)
    theta = minimise(case, tolerance=1e-8)
    slopes = np.array(case.loss.slopes(case.features @ theta, case.targets), dtype=np.longdouble)
    exact = case.features.astype(np.longdouble).T @ slopes + np.longdouble(2.0) * theta
    assert float(np.linalg.norm(case.gradient(theta) - exact)) <= gradient_rounding(case, 1.0)


def test_iterates_err_by_less_than_their_bound():
    """Gradient descent in extended precision, from the same data."""
    case, method = problem(Logistic(), records=300, width=4), GradientDescentOutput(steps=40)
    rows, theta = case.features.astype(np.longdouble), np.zeros(case.shape, np.longdouble)
    eta, signs = np.longdouble(method.step_size(case)), (2 * case.targets - 1)[:, None]
    for _ in range(40):
        slopes = -signs / (1 + np.exp(signs * (rows @ theta)))
        theta = theta - eta / case.records * (rows.T @ slopes + np.longdouble(case.strength) * theta)
    error = float(np.linalg.norm(method.iterate(case) - theta))
    assert error <= descent_rounding(case, 1.0, 40, method.step_size(case)) < 1e-6


def test_samples_and_states_are_multiples_of_their_grids():
    """Posterior samples, and what a Langevin step adds to a state that is known: (state' - state) + drift."""
    case = problem(Logistic(), records=60, strength=20.0)
    drawn = posterior_samples(Logistic(), case.features, case.targets, strength=20.0, std=0.3, count=50)
    assert on_grid(drawn.samples, 0.3)
    assert drawn.ledger.facts["arithmetic"].how is How.ENFORCED
    settings = {"clip_norm": 1.0, "steps": 3, "sample_rate": 0.2, "noise_multiplier": 5.0, "learning_rate": 0.05}
    x, y = torch.randn(50, 2), torch.arange(50) % 2
    found = infer_concealed(LogisticLikelihood(), x, y, **settings)
    assert on_grid(found.path, found.std / 2)
    assert found.ledger.facts["arithmetic"].how is How.ENFORCED
    chain = sgld(case, Schedule(1.0, 1e-5, 1.0, 1.0), batch_size=60)
    assert chain.ledger.facts["arithmetic"].how is How.ENFORCED


def test_rounding_costs_little():
    """Of a million records: less than a part in a thousand of the noise."""
    assert sum_rounding(10**6) < 1e-3
    assert sum_rounding(1) < 1e-8


def test_a_scaler_of_more_records_than_declared_is_refused():
    with pytest.raises(Exception, match="public_size must be at least 1/2"):
        PrivateScaler(delta=1e-5, public_size=5).fit(np.zeros((30, 1)))


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 0.1), (3, 1.0), (10, 2.0)])
def test_randomised_labels_follow_their_law(classes, epsilon):
    """100,000 labels: kept with probability e^epsilon / (e^epsilon + k - 1), else uniform; false alarms below 1e-6."""
    count = 100_000
    labels = randomised_labels(np.zeros(count, int), classes=range(classes), epsilon=epsilon, ledger=Ledger())
    keep = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    kept = int((labels == 0).sum())
    assert min(binom(count, keep).cdf(kept), binom(count, keep).sf(kept - 1)) > 5e-7
    if classes > 2:
        assert chisquare(np.bincount(labels, minlength=classes)[1:]).pvalue > 1e-6


def test_an_exact_fit_is_proven_and_says_how():
    given = terms(1.0, 1e-5)
    assert isinstance(given.target, Epsilon)
    released = ObjectiveGaussian().release(problem(Logistic(), records=80), given)
    assert [fact.id for fact in given.ledger.facts.assumed] == (["randomness"] if not given.stream.secure else [])
    assert released.facts["noise_std"] > 0
