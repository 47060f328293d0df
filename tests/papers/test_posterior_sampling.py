"""Posterior samples by convexity, Langevin dynamics, and regression that knows its noise."""

import math

import numpy as np
import pytest

from tacit.accounting import accountant
from tacit.erm.losses import Logistic
from tacit.erm.solver import Problem, minimise
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.variational.linear import SENSITIVITY, noise_aware, noisy_statistics
from tacit_papers.improved_accounting.accuracy import naive_posterior
from tacit_papers.improved_accounting.posterior_sampling import Schedule, Smeared, posterior_samples, sgld


def unit_rows(n=200, d=3, seed=0):
    random = np.random.default_rng(seed)
    x = random.standard_normal((n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True) * (1 + 1e-12)
    return x, (x[:, 0] > 0).astype(np.int64)


def test_samples_cost_sqrt_count_times_the_sensitivity_over_the_spread():
    x, y = unit_rows()
    found = posterior_samples(Logistic(), x, y, strength=20.0, std=0.3, count=4, stream=SeededStream(0))
    assert found.samples.shape == (4, 3)
    assert float(accountant("pld")(found.mechanism).mu()) == pytest.approx(2 * 1.0 / (20.0 * 0.3), rel=1e-5)
    assert found.ledger.standing is Standing.CLAIMED  # seeded


def test_no_neighbour_moves_the_mean_by_more_than_the_sensitivity():
    x, y = unit_rows(60)
    strength, random = 5.0, np.random.default_rng(1)
    loss = Smeared(Logistic(), 0.3)
    whole = minimise(Problem(x, y, loss, strength))
    moves = [
        np.linalg.norm(minimise(Problem(np.delete(x, i, 0), np.delete(y, i), loss, strength)) - whole)
        for i in random.choice(60, 12, replace=False)
    ]
    worst = whole[:, 0] / np.linalg.norm(whole)
    for label in (0, 1):
        more = Problem(np.vstack([x, worst * (1 - 2 * label)]), np.append(y, label), loss, strength)
        moves.append(np.linalg.norm(minimise(more) - whole))
    assert max(moves) <= loss.lipschitz / strength
    assert max(moves) > 0.3 * loss.lipschitz / strength


def test_short_rows_are_smeared_by_less():
    """100,000 parameter draws against the quadrature of each score, 5.6 standard errors: false alarm 2e-8 each."""
    x, y = unit_rows(30)
    x *= np.linspace(0.1, 1.0, 30)[:, None]
    loss = Smeared(Logistic(), 3.0 * np.linalg.norm(x, axis=1, keepdims=True))
    mean = np.array([0.5, -0.2, 0.1])
    draws = mean + 3.0 * np.random.default_rng(0).standard_normal((100_000, 3))
    values = loss.values(x @ mean[:, None], y)
    for k in (0, 15, 29):
        each = Logistic().values((draws @ x[k])[:, None], np.full(len(draws), y[k]))
        assert values[k] == pytest.approx(each.mean(), abs=5.6 * each.std() / 316)


def test_the_average_of_a_loss_is_that_of_many_draws():
    scores, targets = np.array([[0.3], [-2.0]]), np.array([1, 0])
    draws = np.random.default_rng(0).standard_normal((200_000, 1))
    smeared = Smeared(Logistic(), 0.7)
    for k in range(2):
        values = Logistic().values(scores[k] + 0.7 * draws, np.full(len(draws), targets[k]))
        assert smeared.values(scores, targets)[k] == pytest.approx(values.mean(), abs=5.6 * values.std() / 447)


def test_langevin_steps_are_accounted_as_they_ran():
    x, y = unit_rows()
    schedule = Schedule(epsilon=1.0, delta=1e-3, passes=2.0, lipschitz=1.0)
    chain = sgld(Problem(x, y, Logistic(), 1.0), schedule, batch_size=50, radius=3.0, stream=SeededStream(1))
    assert chain.states.shape == (8, 3)
    assert np.linalg.norm(chain.states, axis=1).max() <= 3.0 + 1e-9
    first = chain.ledger.entries[0].mechanism
    eta = 1.0 / 200
    assert first == Gaussian(math.sqrt(schedule.variance(eta, 200, 50)) * 0.25 / eta).poisson(0.25)
    assert chain.ledger.steps == 8
    assert chain.mean(4) == pytest.approx(chain.states[-4:].mean(0))


def covered(n, noise_multiplier, repeats):
    """Share of true coefficients inside 90 % intervals, noise-aware and naive; 3 coefficients a repeat."""
    inside = np.zeros(2)
    for seed in range(repeats):
        random = np.random.default_rng(seed)
        theta = 0.3 * random.standard_normal(3)
        x = random.uniform(-1, 1, (n, 3)) / math.sqrt(3)
        y = np.clip(x @ theta + 0.1 * random.standard_normal(n), -1, 1)
        released = noisy_statistics(x, y, noise_multiplier=noise_multiplier, stream=SeededStream(seed))
        for k, posterior in enumerate(
            (
                noise_aware(released, noise_std=0.1, prior_std=0.3, components=150),
                naive_posterior(released, noise_std=0.1, prior_std=0.3),
            )
        ):
            interval = posterior.interval(0.9, samples=1000)
            inside[k] += np.mean((interval[:, 0] <= theta) & (theta <= interval[:, 1]))
    return inside / repeats


@pytest.mark.slow
def test_noise_aware_intervals_cover_and_naive_ones_do_not():
    """120 repeats of three coefficients; at 90 % coverage below 81 % has probability under 1e-6."""
    aware, naive = covered(500, 2.0, 120)
    assert 0.81 < aware < 0.98
    assert naive < 0.6


@pytest.mark.slow
@pytest.mark.parametrize(("n", "noise_multiplier"), [(500, 2.0), (2000, 5.0)])
def test_coverage_over_a_thousand_simulations(n, noise_multiplier):
    aware, _ = covered(n, noise_multiplier, 1000)
    assert 0.87 <= aware <= 0.93


def test_statistics_move_by_at_most_their_sensitivity():
    x, y = unit_rows(50)
    targets = 2.0 * y - 1.0
    random = np.random.default_rng(3)
    for _ in range(50):
        row = random.standard_normal(3)
        row, answer = row / np.linalg.norm(row), random.choice([-1.0, 1.0])
        gram, cross = np.outer(row, row), answer * row
        assert math.sqrt(np.sum(gram**2) + np.sum(cross**2)) <= SENSITIVITY + 1e-12
    released = noisy_statistics(x, targets, noise_multiplier=1.0, stream=SeededStream(0))
    assert released.std == pytest.approx(SENSITIVITY)
    assert np.array_equal(released.gram, released.gram.T)


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda x, y: posterior_samples(Logistic(), 3 * x, y, strength=1.0, std=1.0), "features must be rows of norm"),
        (lambda x, y: posterior_samples(Logistic(), x, y, strength=0.0, std=1.0), "strength must be in"),
        (lambda x, y: posterior_samples(Logistic(), x, y, strength=1.0, std=1.0, count=0), "count must be"),
        (lambda x, y: noisy_statistics(2 * x, 1.0 * y, noise_multiplier=1.0), "features must have rows of norm <= 1"),
        (lambda x, y: Schedule(1.0, 0.0, 1.0, 1.0), "delta must be in"),
    ],
)
def test_bad_input(act, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        act(*unit_rows())
