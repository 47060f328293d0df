"""Every kind of model through the one training engine, on the data sets that are always there."""

import pytest
import torch
from torch.distributions import Normal

from tacit.accounting import accountant
from tacit.data import load
from tacit.errors import MissingData
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.tradeoff import Epsilon
from tacit.variational import LogisticLikelihood, LogJoint, SoftmaxLikelihood, infer


def rows(name):
    try:
        found = load(name)
    except MissingData:
        pytest.skip(f"{name} is not here")
    parts = []
    for x, y in ((found.x_train, found.y_train), (found.x_test, found.y_test)):
        flat = torch.from_numpy(x).float().flatten(1)
        parts += [torch.cat([flat, torch.ones(len(flat), 1)], 1), torch.from_numpy(y).long()]
    return parts


def probit(w, inputs, targets):
    chance = Normal(0.0, 1.0, validate_args=False).cdf(inputs @ w).clamp(1e-6, 1 - 1e-6)
    return torch.where(targets == 1, chance, 1 - chance).log()


def probit_chance(w, inputs):
    chance = Normal(0.0, 1.0).cdf(inputs @ w)
    return torch.stack([1 - chance, chance], 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "likelihood", "family", "accuracy", "error"),
    [
        ("breast_cancer", LogisticLikelihood(), "mean_field", 0.89, 0.15),
        # Single runs of the full-rank family vary from .65 to .91.
        pytest.param("breast_cancer", LogisticLikelihood(), "full_rank", 0.75, 0.25, marks=pytest.mark.slow),
        pytest.param(
            "breast_cancer", LogJoint(probit, 31, probit_chance), "mean_field", 0.89, 0.15, marks=pytest.mark.slow
        ),
        pytest.param("digits", SoftmaxLikelihood(10), "mean_field", 0.8, 0.25, marks=pytest.mark.slow),
    ],
)
def test_private_inference_predicts_and_is_calibrated(name, likelihood, family, accuracy, error):
    """Mean accuracy and expected calibration error of five runs on the test rows at little noise; seeded."""
    x, y, x_test, y_test = rows(name)
    right, wrong = [], []
    for seed in range(5):
        found = infer(
            likelihood, x, y, clip_norm=1.0, steps=200, sample_rate=0.2, noise_multiplier=0.5, family=family,
            prior_std=10.0, learning_rate=0.1, stream=SeededStream(seed),
        )  # fmt: skip
        assert found.ledger.mechanism == Gaussian(0.5).poisson(0.2) * 200
        right.append(float((found.posterior.predict_proba(x_test).argmax(1) == y_test).double().mean()))
        wrong.append(found.posterior.calibration(x_test, y_test).error)
    assert sum(right) / 5 > accuracy
    assert sum(wrong) / 5 < error


@pytest.mark.parametrize(("family", "accuracy"), [("mean_field", 0.72), ("full_rank", 0.7)])
def test_abalone_at_epsilon_one(family, accuracy):
    """Without privacy it is 0.76."""
    x, y, x_test, y_test = rows("abalone_over9")
    found = infer(
        LogisticLikelihood(), x, y, clip_norm=1.0, steps=200, sample_rate=0.2, target=Epsilon(1.0, 1e-5),
        family=family, prior_std=3.0, learning_rate=0.05, stream=SeededStream(0),
    )  # fmt: skip
    assert accountant("pld")(found.ledger).epsilon(1e-5) <= 1.0
    assert float((found.posterior.predict_probit(x_test).round() == y_test).double().mean()) > accuracy
