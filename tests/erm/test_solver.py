import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tacit.erm import solver
from tacit.erm.losses import Logistic, Softmax
from tacit.erm.solver import minimise
from tacit.errors import InvalidInput, TacitError
from tests.erm.cases import LOSSES, problem


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_certificate_is_true_and_the_point_is_minimal(loss):
    rng = np.random.default_rng(1)
    for trial in range(20):
        case = problem(loss, strength=10.0 ** rng.uniform(-4, 3), seed=trial)
        linear = rng.normal(size=case.shape) * 10.0 ** rng.uniform(-2, 4)
        found = minimise(case, linear=linear)
        assert np.linalg.norm(case.gradient(found) + linear) <= solver.TOLERANCE
        value = case.value(found) + (linear * found).sum()
        for _ in range(5):
            other = found + rng.normal(size=case.shape) * 10.0 ** rng.uniform(-3, 2)
            assert value <= case.value(other) + (linear * other).sum() + 1e-9 * abs(value)


def test_agrees_with_scikit_learn():
    case = problem(Logistic(), records=300, width=5, strength=0.5)
    other = LogisticRegression(C=1 / 0.5, fit_intercept=False, tol=1e-10, max_iter=10_000)
    other.fit(case.features, case.targets)
    np.testing.assert_allclose(minimise(case)[:, 0], other.coef_[0], atol=1e-5)


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=str)
def test_large_problems_take_the_other_road_to_the_same_place(loss, monkeypatch):
    case = problem(loss, records=200, width=6)
    direct = minimise(case)
    monkeypatch.setattr(solver, "_DENSE", 0)
    np.testing.assert_allclose(minimise(case), direct, atol=1e-8)


def test_refusals():
    with pytest.raises(InvalidInput, match="strength must be in"):
        minimise(problem(Logistic(), strength=0.0))
    with pytest.raises(TacitError, match="within reach of double precision"):
        minimise(problem(Logistic()), tolerance=1e-300)
