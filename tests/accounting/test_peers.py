"""Tests of other libraries, asked of ours: their settings and expected numbers, and who is right where they differ."""

import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from benchmarks.peer_tests import DIFFERENCES, FILES, outcomes, reason
from scipy.special import ndtr, ndtri

import tacit
from tacit.calibration import noise_multiplier
from tacit.mechanisms import Approximate, Gaussian, Laplace, ToeplitzStrategy
from tacit.relation import Relation

PLD = tacit.accountant("pld")
PAGE = Path(__file__).parents[2] / "docs" / "peers.md"
RENYI_ROWS = json.loads((Path(__file__).parent / "renyi_rows.json").read_text(encoding="utf-8"))
"""What TensorFlow Privacy says, as autodp's tests keep it: "rate noise" -> order -> divergence of one step."""


@pytest.fixture(scope="module")
def results():
    return {kind: outcomes(kind) for kind in FILES}


@pytest.mark.parametrize(("kind", "passed", "all_of_them"), [("pld", 54, 68), ("rdp", 72, 90)])
def test_dp_accounting_s_own_tests_pass_or_the_page_says_why_not(results, kind, passed, all_of_them):
    rest = {test: line for test, line in results[kind].items() if line}
    assert len(results[kind]) == all_of_them
    assert all_of_them - len(rest) >= passed
    assert {test: line for test, line in rest.items() if reason(kind, test) is None} == {}


def test_every_reason_has_its_tests_and_stands_on_the_page(results):
    page = PAGE.read_text(encoding="utf-8")
    names = [f"{kind}:{test}" for kind, found in results.items() for test in found]
    for pattern, why in DIFFERENCES.items():
        assert any(reason(*name.split(":", 1)) == why for name in names), pattern
        assert why in page


def test_the_renyi_table_of_tensorflow_privacy_is_met_in_every_row():
    count = 0
    for key, rows in RENYI_ROWS.items():
        rate, noise = map(float, key.split())
        orders = np.array([float(order) for order in rows])
        ours = Gaussian(noise).poisson(rate).rdp(orders, Relation.ADD_REMOVE)
        assert ours == pytest.approx(np.array(list(rows.values())), rel=1e-6)
        count += len(rows)
    assert count == 228


def test_dp_accounting_s_fractional_orders_are_larger_than_the_integral():
    with mpmath.workdps(30):
        density = lambda x: mpmath.npdf(x, 0, 2.5)  # noqa: E731
        ratio = lambda x: 0.99 + 0.01 * mpmath.exp((2 * x - 1) / (2 * 2.5**2))  # noqa: E731
        moment = mpmath.quad(lambda x: density(x) * ratio(x) ** 1.5, [-60, -10, 0, 10, 60])
        exact = 50 * float(mpmath.log(moment)) / 0.5
    ours = float((Gaussian(2.5).poisson(0.01) * 50).rdp(np.array([1.5]), Relation.ADD_REMOVE)[0])
    assert exact <= ours <= exact * (1 + 1e-9)
    assert exact < 0.98 * 6.70579741e-04


def gaussian_delta(epsilon, mu):
    return ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2)


@pytest.mark.parametrize("steps", [9_999, 10_000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 100.0])
def test_prv_accountant_s_homogeneous_gaussians(steps, epsilon):
    low, high = PLD(Gaussian(100.0) * steps).delta(epsilon).interval
    exact = gaussian_delta(epsilon, steps**0.5 / 100)
    assert low <= exact * (1 + 1e-9) + 1e-300
    assert exact <= high * (1 + 1e-9) + 1e-300


def test_prv_accountant_s_mixed_gaussians():
    low, high = PLD(Gaussian(10.0) * 50 + Gaussian(5.0) * 50).delta(4.0).interval
    assert low * (1 - 1e-9) <= gaussian_delta(4.0, (50 / 100 + 50 / 25) ** 0.5) <= high * (1 + 1e-9)


def test_prv_accountant_s_row_that_it_does_not_answer():
    """Rate .2606, 18,800 steps, epsilon 4: its search for the noise ends in an error."""
    settings = {"sample_rate": 0.26058631921824105, "steps": 18800}
    delta = 0.00011448277499759097
    found = noise_multiplier(tacit.Epsilon(4.0, delta=delta), **settings)
    answer = PLD(Gaussian(found.value).poisson(settings["sample_rate"]) * settings["steps"]).epsilon(delta)
    assert 3.9999 <= answer.lower <= answer.upper <= 4.0


def test_prv_accountant_s_other_calibrations():
    found = noise_multiplier(tacit.Epsilon(4.0, delta=1e-7), sample_rate=2e-3, steps=10_000)
    assert 0 < found.value < 2
    assert noise_multiplier(tacit.Epsilon(10.0, delta=1e-5), sample_rate=256 / 50_000, steps=9765).value > 0.3


def test_a_delta_that_prv_accountant_refuses_is_answered():
    low, high = PLD(Gaussian(4.0).poisson(0.00038) * 1000).epsilon(1.13e-18).interval
    assert 0 < low <= high <= low * (1 + 1e-6)


@pytest.mark.parametrize("steps", [10_000, 100_000])
@pytest.mark.parametrize("delta", [1e-5, 1e-6])
def test_prv_accountant_s_laplace_steps_are_below_advanced_composition(steps, delta):
    assert PLD(Laplace(100.0) * steps).epsilon(delta).upper < 0.01 * steps * math.sqrt(2 * math.log(1 / delta))


@pytest.mark.parametrize("steps", [10_000, 100_000])
@pytest.mark.parametrize("delta", [1e-7, 1e-8])
def test_prv_accountant_s_steps_of_delta_alone(steps, delta):
    low, high = PLD(Approximate(0.0, delta) * steps).delta(0.0).interval
    exact = -math.expm1(steps * math.log1p(-delta))
    assert low * (1 - 1e-9) <= exact <= high * (1 + 1e-9)


def test_prv_accountant_s_composition_of_three_kinds():
    steps = Gaussian(0.8).poisson(5e-3) * 100 + Gaussian(8.0) * 200 + Laplace(10.0) * 100
    low, high = PLD(steps).epsilon(1e-6).interval
    assert 0 < low <= high <= low * (1 + 1e-6)


@pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (0.01, 100)])
@pytest.mark.parametrize("advantage", [0.01, 0.05, 0.1])
def test_riskcal_s_calibration_to_an_advantage(rate, steps, advantage):
    sigma = noise_multiplier(tacit.Advantage(advantage), sample_rate=rate, steps=steps).value
    found = PLD(Gaussian(sigma).poisson(rate) * steps).advantage()
    assert advantage * (1 - 1e-4) <= float(found) <= advantage  # Theirs: within .01.


@pytest.mark.slow_cases("0.33")
@pytest.mark.parametrize("beta", [0.33, 0.5, 0.7])
def test_riskcal_s_calibration_to_error_rates(beta):
    sigma = noise_multiplier(tacit.Errors(alpha=0.1, beta=beta), sample_rate=0.01, steps=100).value
    found = PLD(Gaussian(sigma).poisson(0.01) * 100).beta(0.1)
    assert beta <= float(found) <= beta + 1e-4  # Theirs: within .01.


def test_riskcal_s_closed_forms_of_a_gaussian():
    curve = PLD(Gaussian(0.5))
    for alpha in (0.1, 0.2, 0.3):
        assert float(curve.beta(alpha)) == pytest.approx(ndtr(ndtri(1 - alpha) - 2), rel=1e-6)
    assert float(curve.advantage()) == pytest.approx(2 * ndtr(1) - 1, rel=1e-9)
    for prior in (0.1, 0.2, 0.25):
        assert float(curve.bayes_risk(prior)) == pytest.approx(float(curve.bayes_risk(1 - prior)), rel=1e-6)


def squared(coefficients, n, often, apart):
    """The squared sensitivity of the matrix itself, which ours scales to columns of norm 1."""
    strategy = ToeplitzStrategy(n, tuple(coefficients)[:n], normalised=False)
    return (strategy.sensitivity(participations=often, separation=apart) * strategy.scales[0]) ** 2


@pytest.mark.parametrize("n", [1, 2, 3, 5, 11])
@pytest.mark.parametrize("often", [1, 4, 11])
def test_jax_privacy_s_sensitivities_of_the_identity_and_the_triangle(n, often):
    assert squared([1.0], n, often, 1) == pytest.approx(min(n, often), rel=1e-8)
    triangle = np.tri(n)[:, :often].sum(axis=1)
    assert squared(np.ones(n), n, often, 1) == pytest.approx(float(triangle @ triangle), rel=1e-8)


@pytest.mark.parametrize("n_and_epochs", [(1, 1), (2, 1), (2, 2), (10, 1), (10, 5), (10, 10)])
@pytest.mark.parametrize("bands", [2, 10, 11, 13])
def test_jax_privacy_s_sensitivities_of_fixed_epochs(n_and_epochs, bands):
    n, epochs = n_and_epochs
    coefficients = np.linspace(1.0, 0.001, bands)
    columns = sum(value * np.eye(n, k=-k) for k, value in enumerate(coefficients[:n]))
    expected = max(np.linalg.norm(columns[:, start :: n // epochs].sum(axis=1)) for start in range(n // epochs)) ** 2
    for often in (epochs, epochs + 10):
        assert squared(coefficients, n, often, n // epochs) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("n", [1, 5, 50])
@pytest.mark.parametrize("often", [1, 2, 5, 50])
def test_jax_privacy_s_sensitivities_of_adjacent_steps(n, often):
    coefficients = np.sqrt(np.linspace(1.0, 0.001, n))
    columns = sum(value * np.eye(n, k=-k) for k, value in enumerate(coefficients))
    expected = np.linalg.norm(columns[:, :often].sum(axis=1)) ** 2
    assert squared(coefficients, n, often, 1) == pytest.approx(expected, rel=1e-7)
