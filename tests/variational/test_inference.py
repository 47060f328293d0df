"""Variational inference: the bound's gradient, the noise, the ledger, posteriors as objects."""

import math

import numpy as np
import pytest
import torch

from tacit.accounting import accountant
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.runs.decision_metrics import calibration_error
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.variational import (
    LinearLikelihood,
    LogisticLikelihood,
    LogJoint,
    Posterior,
    SoftmaxLikelihood,
    VariationalModel,
    infer,
    infer_nonprivate,
)


def data(n=400, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator)
    return x, (x[:, 0] + 0.5 * torch.randn(n, generator=generator) > 0).long()


@pytest.mark.parametrize("family", ["mean_field", "full_rank"])
def test_the_divergence_is_that_of_torch(family):
    model = VariationalModel(LogisticLikelihood(), 3, family=family, prior_std=2.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape))
    factor = model.factor()
    scale = torch.diag(factor) if factor.dim() == 1 else factor
    own = torch.distributions.MultivariateNormal(model.mean, scale_tril=scale)
    prior = torch.distributions.MultivariateNormal(torch.zeros(3), covariance_matrix=4.0 * torch.eye(3))
    expected = torch.distributions.kl_divergence(own, prior)
    torch.testing.assert_close(model.divergence(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_without_noise_the_closed_posterior_of_linear_regression_is_found():
    x, _ = data()
    y = x @ torch.tensor([1.0, -0.5, 0.2])
    found = infer_nonprivate(
        LinearLikelihood(1.0), x, y, steps=2500, sample_rate=1.0, learning_rate=0.03,
        stream=SeededStream(0),
    )  # fmt: skip
    precision = x.T @ x + torch.eye(3)
    torch.testing.assert_close(found.posterior.mean, torch.linalg.solve(precision, x.T @ y), rtol=0, atol=0.1)
    torch.testing.assert_close(found.posterior.std, torch.linalg.inv(precision).diagonal().sqrt(), rtol=0.25, atol=0)


def test_the_number_of_records_enters_nothing_but_the_sampling_where_a_size_is_declared():
    """Without noise and with everybody in each batch, twice the records of half the gradient are the same release."""
    x, y = data()
    settings = {"clip_norm": 1e-3, "steps": 3, "sample_rate": 1.0, "noise_multiplier": 1e-6, "public_size": 100}
    one = infer(LogisticLikelihood(), x, y, **settings).posterior
    twice = infer(
        LogisticLikelihood(), torch.cat([x, x]), torch.cat([y, y]), **settings | {"clip_norm": 5e-4}
    ).posterior
    torch.testing.assert_close(one.mean, twice.mean, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(one.std, twice.std, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_the_ledger_is_the_plan_and_rests_on_nothing_assumed():
    x, y = data()
    settings = {"clip_norm": 1.0, "steps": 30, "sample_rate": 0.1, "noise_multiplier": 1.5, "learning_rate": 0.05}
    found = infer(LogisticLikelihood(), x, y, public_size=900, **settings)
    assert found.plan.expected_batch_size == pytest.approx(90)
    assert found.ledger.mechanism == (Gaussian(1.5).poisson(0.1) * 30)
    assert accountant("pld")(found.ledger).standing is Standing.PROVEN
    assert [fact.id for fact in found.ledger.facts.assumed] == []
    undeclared = infer(LogisticLikelihood(), x, y, **settings).ledger
    assert accountant("pld")(undeclared).standing is Standing.CONDITIONAL
    assert [fact.id for fact in undeclared.facts.assumed] == ["settings"]
    target = infer(LogisticLikelihood(), x, y, clip_norm=1.0, steps=30, sample_rate=0.1, target=Epsilon(1.0, 1e-4))
    assert accountant("pld")(target.ledger).epsilon(1e-4) <= 1.0


@pytest.mark.slow
def test_the_divergence_enters_without_clipping_or_noise():
    """With a clip so small that data and noise hardly count, the parameters go to the prior."""
    x, y = data()
    found = infer(
        LogisticLikelihood(), x, y, clip_norm=1e-6, steps=600, sample_rate=0.1, noise_multiplier=1.0, prior_std=2.0,
        learning_rate=0.02, stream=SeededStream(1),
    )  # fmt: skip
    assert found.posterior.std == pytest.approx(2.0 * np.ones(3), rel=0.05)
    assert found.posterior.mean.abs().max() < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mean_field", "full_rank"])
def test_private_inference_predicts(family):
    x, y = data(2000)
    found = infer(
        LogisticLikelihood(), x, y, clip_norm=1.0, steps=300, sample_rate=0.1, noise_multiplier=1.0, family=family,
        learning_rate=0.05, stream=SeededStream(2),
    )  # fmt: skip
    guessed = found.posterior.predict_proba(x).argmax(1)
    assert float((guessed == y).float().mean()) > 0.8
    probit = found.posterior.predict_probit(x)
    sampled = found.posterior.predict_proba(x, samples=2000)[:, 1]
    assert float((probit - sampled).abs().max()) < 0.05
    assert calibration_error(sampled.double().numpy(), y.numpy() == 1) < 0.15


@pytest.mark.slow
def test_models_by_likelihood_and_by_log_density():
    x, y = data()
    classes = infer_nonprivate(SoftmaxLikelihood(2), x, y, steps=200, sample_rate=0.3, stream=SeededStream(3))
    assert classes.posterior.predict_proba(x).shape == (400, 2)

    def density(w, inputs, targets):
        return torch.distributions.Bernoulli(logits=inputs @ w).log_prob(targets.float())

    joint = LogJoint(density, 3, lambda w, inputs: torch.sigmoid(inputs @ w))
    own = infer(joint, x, y, clip_norm=1.0, steps=50, sample_rate=0.2, noise_multiplier=1.0, stream=SeededStream(4))
    same = infer(
        LogisticLikelihood(), x, y, clip_norm=1.0, steps=50, sample_rate=0.2, noise_multiplier=1.0,
        stream=SeededStream(4),
    )  # fmt: skip
    torch.testing.assert_close(own.posterior.mean, same.posterior.mean, rtol=1e-3, atol=1e-4)


def test_a_posterior_samples_its_own_moments():
    """20,000 draws; means within 5.6 standard errors: false alarm below 3 * 3e-8."""
    factor = torch.tensor([[1.0, 0.0], [0.5, 0.3]])
    posterior = Posterior(torch.tensor([1.0, -2.0]), factor, LogisticLikelihood())
    draws = posterior.sample(20_000, seed=1)
    assert ((draws.mean(0) - posterior.mean).abs() < 5.6 * posterior.std / math.sqrt(20_000)).all()
    torch.testing.assert_close(torch.cov(draws.T), factor @ factor.T, rtol=0.05, atol=0.01)
    interval = posterior.interval(0.9)
    inside = ((draws >= interval[:, 0]) & (draws <= interval[:, 1])).float().mean(0)
    assert inside == pytest.approx(0.9 * np.ones(2), abs=0.012)


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda x, y: infer_nonprivate(SoftmaxLikelihood(1), x, y, steps=1, sample_rate=0.1), "classes must be"),
        (lambda x, y: infer_nonprivate(LinearLikelihood(0.0), x, y, steps=1, sample_rate=0.1), "noise_std must be"),
        (lambda x, y: infer_nonprivate(LogisticLikelihood(), x, y, steps=1, sample_rate=0.1, family="flow"), "family"),
        (
            lambda x, y: infer_nonprivate(LogisticLikelihood(), x, y, steps=1, sample_rate=0.1, prior_std=-1),
            "prior_std",
        ),
        (
            lambda x, y: infer_nonprivate(LogisticLikelihood(), x, y, steps=1, sample_rate=0.1, optimizer="sgd"),
            "optimizer must be one of adam, adagrad",
        ),
        (lambda x, y: Posterior(x[0], x[0], SoftmaxLikelihood(3)).predict_probit(x), "likelihood must be logistic"),
    ],
)
def test_bad_input(act, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        act(*data())
