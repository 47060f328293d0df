"""Posteriors with scikit-learn's interface."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput, LeakWarning
from tacit.mechanisms import Gaussian
from tacit.standing import Standing
from tacit.variational import DPBayesianLinearRegression, DPBayesianLogisticRegression
from tests.erm.test_estimators import CLASSIFIER, REGRESSOR, data


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "expected", "settings"),
    [
        (DPBayesianLogisticRegression, CLASSIFIER, {"steps": 20}),
        (DPBayesianLinearRegression, REGRESSOR, {"components": 20}),
    ],
)
def test_scikit_learn_checks(kind, expected, settings):
    """All but what noise forbids; with repeatable noise all of them, so it is noise alone that fails the rest."""
    for estimator, allowed in ((kind(**settings), expected), (kind(unsafe_seed=0, **settings), {})):
        results = check_estimator(estimator, on_fail=None)
        assert len(results) > 40
        assert {row["check_name"] for row in results if row["status"] == "failed"} <= set(allowed)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_meets_its_target_and_predicts(classes):
    x, y = data(2000, classes=classes)
    model = DPBayesianLogisticRegression(epsilon=8.0, delta=1e-5, classes=range(classes), data_bounds=(-1, 1)).fit(x, y)
    assert model.guarantee_.standing is Standing.PROVEN
    assert float(model.guarantee_.epsilon(1e-5)) <= 8.0
    assert float(accountant("pld")(model.ledger_).epsilon(1e-5)) == pytest.approx(
        float(model.guarantee_.epsilon(1e-5)), rel=1e-6
    )
    assert model.score(x, y) > 0.8
    chances = model.predict_proba(x)
    np.testing.assert_allclose(chances.sum(1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(model.predict(x), chances.argmax(1))
    ends = model.credible_intervals(0.9)
    assert ends.shape == (*model.coef_.shape, 2)
    assert np.all((ends[..., 0] < model.coef_) & (model.coef_ < ends[..., 1]))
    assert np.all(np.diff(model.credible_intervals(0.99)) > np.diff(ends))


@pytest.mark.slow
def test_a_regression_covers_its_coefficients():
    """60 fits of two slopes; at 90 % coverage fewer than 81 of 120 inside has probability below 1e-6."""
    inside = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        slopes = random.uniform(-0.8, 0.8, 2)
        x = random.uniform(-1, 1, (600, 2))
        y = np.clip(x @ slopes + 0.2 * random.standard_normal(600), -2, 2)
        model = DPBayesianLinearRegression(
            epsilon=2.0, delta=1e-5, data_bounds=(-1, 1), target_bounds=(-2, 2), noise_std=0.1, prior_std=1.0,
            components=60, unsafe_seed=seed,
        ).fit(x, y)  # fmt: skip
        ends = model.credible_intervals(0.9)
        inside += int(np.sum((ends[:, 0] <= slopes) & (slopes <= ends[:, 1])))
    assert inside > 80


def test_a_regression_by_noise_multiplier_spends_from_the_shared_ledger():
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (5000, 2))
    y = x @ [1.0, -0.5] + 0.3
    ledger = Ledger()
    model = DPBayesianLinearRegression(
        noise_multiplier=3.0, data_bounds=(-1, 1), target_bounds=(-2, 2), ledger=ledger
    ).fit(x, y)
    assert [entry.mechanism for entry in ledger.entries] == [Gaussian(3.0)]
    assert float(model.guarantee_.mu()) == pytest.approx(1 / 3, rel=1e-6)
    assert model.coef_ == pytest.approx([1.0, -0.5], abs=0.3)
    assert model.score(x, y) > 0.8
    clone(model).fit(x, y)
    assert ledger.steps == 2


@pytest.mark.slow
def test_what_is_not_declared_is_a_leak():
    x, y = data(300)
    with pytest.warns(LeakWarning):
        leaky = DPBayesianLogisticRegression(classes=(0, 1), steps=5).fit(x, y)
    assert leaky.ledger_.unsafe == ["read_from_data: data_bounds"]
    with pytest.warns(LeakWarning):
        regression = DPBayesianLinearRegression(data_bounds=(-1, 1), components=5).fit(x, y)
    assert regression.ledger_.unsafe == ["read_from_data: target_bounds"]
    for model in (leaky, regression):
        assert model.guarantee_.standing is model.ledger_.standing is Standing.CLAIMED
    with pytest.raises(InvalidInput, match="data_bounds"):
        DPBayesianLogisticRegression(classes=(0, 1), steps=5, strict=True).fit(x, y)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"family": "flow"}, "family must be one of mean_field, full_rank"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"steps": 0}, "steps must be"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be"),
    ],
)
def test_bad_input_spends_nothing(settings, sentence):
    x, y = data(300)
    ledger = Ledger()
    model = DPBayesianLogisticRegression(classes=(0, 1), data_bounds=(-1, 1), ledger=ledger, **settings)
    with pytest.raises(InvalidInput, match=sentence):
        model.fit(x, y)
    assert not ledger.entries
