"""Pyro models through private variational inference."""

import pytest
import torch

from tacit.accounting import accountant
from tacit.errors import InvalidInput
from tacit.integrations.pyro import PyroModel
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.variational import LogisticLikelihood, infer, infer_nonprivate

pyro = pytest.importorskip("pyro")
dist = pytest.importorskip("pyro.distributions")

LENGTH = {"steps": 60, "sample_rate": 0.2, "learning_rate": 0.05}


def logistic(inputs, targets):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with pyro.plate("records", len(inputs)):
        pyro.sample("y", dist.Bernoulli(logits=inputs @ w), obs=targets.float())


def noisy_line(inputs, targets):
    w = pyro.sample("w", dist.Normal(0.0, 2.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with pyro.plate("records", len(inputs)):
        pyro.sample("y", dist.Normal(inputs[:, 0] * w, scale), obs=targets)


def data(n=400, d=3):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator)
    return x, (x[:, 0] + 0.5 * torch.randn(n, generator=generator) > 0).long()


def test_the_density_of_each_record_is_that_of_the_likelihood():
    x, y = data(20)
    w = torch.tensor([0.5, -1.0, 0.2])
    found = PyroModel(logistic, features=3).log_joint()
    torch.testing.assert_close(found.log_likelihood(w, x, y), LogisticLikelihood().log_likelihood(w, x, y))
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(w).sum()
    torch.testing.assert_close(found.log_prior(w), prior)


def test_private_inference_through_the_same_engine_and_ledger():
    """Clipping, noise and batches are those of the built-in likelihood; only the prior's gradient is estimated."""
    x, y = data()
    settings = LENGTH | {"clip_norm": 1.0, "noise_multiplier": 1.0, "public_size": len(x)}
    joint = PyroModel(logistic, features=3).log_joint(lambda values, x: torch.sigmoid(x @ values["w"]))
    own = infer(joint, x, y, **settings)
    assert own.ledger.mechanism == Gaussian(1.0).poisson(0.2) * 60
    assert accountant("pld")(own.ledger).standing is Standing.PROVEN
    again = infer(joint, x, y, stream=SeededStream(1), **settings)
    same = infer(LogisticLikelihood(), x, y, stream=SeededStream(1), **settings)
    torch.testing.assert_close(again.posterior.mean, same.posterior.mean, rtol=0, atol=0.15)
    assert again.posterior.predict_proba(x).shape == (400,)


def test_a_positive_variable_is_inferred_in_its_own_units():
    """w = 1.5 and scale = 0.3 from 400 records: the posterior is within 0.1 of both."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(400, 1, generator=generator)
    y = 1.5 * x[:, 0] + 0.3 * torch.randn(400, generator=generator)
    model = PyroModel(noisy_line, features=1)
    found = infer_nonprivate(
        model.log_joint(), x, y, steps=1500, sample_rate=0.3, learning_rate=0.05, stream=SeededStream(0)
    )
    values = model.values(found.posterior.mean)
    assert float(values["w"]) == pytest.approx(1.5, abs=0.1)
    assert float(values["scale"]) == pytest.approx(0.3, abs=0.1)


def test_the_prior_of_a_positive_variable_counts_the_change_of_variables():
    """log-normal(0, 1) of e^u is standard normal in u."""
    model = PyroModel(noisy_line, features=1)
    (scale,) = (site for site in model.sites if site.name == "scale")
    for u in (-1.0, 0.0, 2.0):
        w = torch.full((2,), u)
        torch.testing.assert_close(scale.log_prior(w), torch.distributions.Normal(0.0, 1.0).log_prob(torch.tensor(u)))


def local(inputs, targets):
    with pyro.plate("records", len(inputs)):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(z, 1.0), obs=targets)


def discrete(inputs, targets):
    k = pyro.sample("k", dist.Bernoulli(0.5))
    with pyro.plate("records", len(inputs)):
        pyro.sample("y", dist.Normal(k, 1.0), obs=targets)


def chained(inputs, targets):
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(a, 1.0))
    with pyro.plate("records", len(inputs)):
        pyro.sample("y", dist.Normal(b, 1.0), obs=targets)


def mixed(inputs, targets):
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    pyro.sample("y", dist.Normal(w, 1.0), obs=targets.mean())


def silent(inputs, targets):
    pyro.sample("w", dist.Normal(0.0, 1.0))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (local, "global, continuous latent variables; got \"site 'z'\""),
        (discrete, "global, continuous latent variables; got \"site 'k'\""),
        (chained, "independent a priori; got \"site 'b'\""),
        (mixed, "site 'y' must be of one log density a record"),
        (silent, "observes something of each record"),
    ],
)
def test_models_of_another_kind_are_refused(model, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        PyroModel(model, features=1)


def _variant(kind):
    """The regression of this file with one thing that its density cannot hold."""
    import pyro
    import pyro.distributions as dist
    from pyro import poutine

    def model(inputs, targets):
        centre = inputs.sum() if kind == "prior" else 0.0
        w = pyro.sample("w", dist.Normal(centre, 1.0).expand([2]).to_event(1))
        if kind == "param":
            w = w + pyro.param("shift", torch.zeros(2))
        logits = inputs @ w
        if kind == "no plate":
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=targets.float())
            return
        subsample = {"subsample_size": 1} if kind == "subsample" else {}
        with pyro.plate("records", len(inputs), **subsample) as chosen:
            pyro.sample("y", dist.Bernoulli(logits=logits[chosen]), obs=targets[chosen].float())

    if kind == "scale":
        return poutine.scale(model, scale=10.0)
    return poutine.mask(model, mask=torch.tensor(False)) if kind == "mask" else model


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("scale", "free of scales and masks"),
        ("mask", "free of scales and masks"),
        ("subsample", "free of s"),
        ("param", "free of pyro.param"),
        ("prior", "whose priors are independent of the records"),
        ("no plate", "in the plate of the records"),
    ],
)
def test_what_would_change_the_density_silently_is_refused(kind, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        PyroModel(_variant(kind), features=2)
