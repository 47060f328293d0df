"""Samples around concealed parameters: what they are proven to cost, and what the paper says."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from tacit.accounting import How, Ledger, accountant
from tacit.accounting.bayesian import Bayesian
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.variational import LinearLikelihood, LogisticLikelihood
from tacit_papers.improved_accounting.concealed import infer_concealed, path_cost

LENGTH = {"clip_norm": 1.0, "steps": 40, "sample_rate": 0.1, "noise_multiplier": 20.0, "learning_rate": 2.0}


def data(n=300, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator)
    x = x / x.norm(dim=1, keepdim=True)
    return x, (x[:, 0] + 0.2 * torch.randn(n, generator=generator) > 0).long()


def test_the_whole_batch_costs_the_squared_sum_of_the_review():
    """Soundness review, S4: mu = shift sqrt(sum t^2), a sample after each of T updates; ours has T - 1 on the way."""
    paid = path_cost(noise_multiplier=100.0, sample_rate=1.0, steps=1000, samples=1)
    assert paid.mu == pytest.approx(0.01 * math.sqrt(sum(t * t for t in range(1, 1001))), rel=1e-12)
    assert (paid.missed, paid.worst_mu) == (0.0, paid.mu)
    assert paid.mechanism == Gaussian(1 / paid.mu)


def test_no_pattern_of_batches_costs_more_than_the_bound():
    """All 2^8 patterns; those of at most k batches weigh 1 - missed, and none of them has a larger mu."""
    rate, kept = 0.3, 0.8
    paid = path_cost(noise_multiplier=2.0, sample_rate=rate, steps=8, samples=3, kept=kept, failure=0.02)
    allowed, largest = 0.0, 0.0
    for code in range(256):
        pattern = [code >> s & 1 for s in range(8)]
        shift, shifts = 0.0, []
        for taken in pattern:
            shifts.append(shift)
            shift = kept * shift + taken
        mu = math.sqrt(sum(each**2 for each in shifts) + 3 * shift**2) / 2.0
        assert mu <= paid.worst_mu + 1e-12
        if sum(pattern) <= 5:
            allowed += rate ** sum(pattern) * (1 - rate) ** (8 - sum(pattern))
            largest = max(largest, mu)
    assert paid.missed == pytest.approx(1 - allowed, rel=1e-6)
    assert largest <= paid.mu
    assert paid.mu < paid.worst_mu


def test_the_closed_form_is_what_the_ledger_says():
    paid = path_cost(noise_multiplier=300.0, sample_rate=0.05, steps=500, samples=10, failure=1e-7)
    assert 0.1 < paid.mu < 5
    exact = accountant("pld")(Ledger.of(paid.mechanism)).epsilon(1e-5)
    assert paid.epsilon(1e-5) == pytest.approx(float(exact), rel=1e-4)
    assert paid.epsilon(paid.missed) == math.inf


@pytest.mark.slow
def test_the_bound_is_attained():
    """A record that is in every batch and always clipped in one direction: the best test has the mean mu, +-5 / 20."""
    x, y = torch.ones(1, 1), torch.tensor([1e6])
    values, sigma = [], 5.0
    for seed in range(400):
        found = infer_concealed(
            LinearLikelihood(1.0), x, y, clip_norm=1.0, steps=6, sample_rate=1.0, noise_multiplier=sigma,
            learning_rate=1.0, prior_std=1e6, samples=2, stream=SeededStream(seed),
        )  # fmt: skip
        seen = torch.cat([found.path, found.drawn.values]).double().numpy()[:, 0] / found.std
        shifts = np.array([0, 1, 2, 3, 4, 5, 6, 6]) / sigma
        values.append(seen @ shifts / np.linalg.norm(shifts))
    assert found.cost.mu == pytest.approx(float(np.linalg.norm(shifts)), rel=1e-9)
    # 400 standard normals around mu: five standard errors have probability below 1e-6.
    assert np.mean(values) == pytest.approx(found.cost.mu, abs=norm.isf(2.5e-7) / 20)


def test_standings_and_the_order_of_the_three_numbers():
    x, y = data()
    held = data(200, seed=1)
    found = infer_concealed(
        LogisticLikelihood(), x, y, held_out=held, pairs=20, stream=None, public_size=len(y), **LENGTH
    )
    assert found.claimed.standing is Standing.CLAIMED
    assert found.bayesian.standing is Standing.BAYESIAN
    proven = accountant("pld")(found.ledger)
    assert proven.standing is Standing.PROVEN
    assert float(found.claimed.epsilon(1e-5)) < float(proven.epsilon(1e-5)) / 2
    assert float(found.bayesian.epsilon(1e-5)) < float(proven.epsilon(1e-5))
    published = Ledger.of(Gaussian(20.0).poisson(0.1) * 50)
    assert float(found.claimed.epsilon(1e-5)) == float(accountant("generic")(published).epsilon(1e-5))
    seeded = infer_concealed(LogisticLikelihood(), x, y, stream=SeededStream(0), **LENGTH)
    assert seeded.bayesian is None
    assert {accountant("pld")(seeded.ledger).standing, seeded.claimed.standing} == {Standing.CLAIMED}


def test_the_scale_of_samples_tells_the_public_size_only():
    stds = set()
    for count in (199, 200):
        ledger = Ledger()
        found = infer_concealed(LogisticLikelihood(), *data(count), public_size=200, ledger=ledger, **LENGTH)
        stds.add(found.std)
        assert ledger.facts["settings"].how is How.DECLARED
    assert len(stds) == 1
    infer_concealed(LogisticLikelihood(), *data(200), ledger=ledger, **LENGTH)
    assert ledger.facts["settings"].how is How.ASSUMED


def test_the_bayesian_number_is_that_of_the_pairs():
    """Records with one constant gradient each way: every pair differs by 0, 1 or 2 clip norms; here by 2 or 0."""
    x = torch.tensor([[1.0], [-1.0]] * 50)
    y = torch.full((100,), 1e6)
    found = infer_concealed(LinearLikelihood(1.0), x, y, held_out=(x[:6].abs(), y[:6]), pairs=3, **LENGTH)
    judge = Bayesian()
    for _ in range(50):
        judge.observe(np.zeros(3), sample_rate=0.1, noise_multiplier=20.0, clip_norm=1.0)
    expected = judge(Ledger.of(Gaussian(20.0).poisson(0.1) * 50))
    assert float(found.bayesian.epsilon(1e-5)) == pytest.approx(float(expected.epsilon(1e-5)), rel=1e-9)


def test_it_predicts():
    x, y = data(1000)
    given = LENGTH | {"steps": 200, "noise_multiplier": 5.0}
    found = infer_concealed(LogisticLikelihood(), x, y, prior_std=5.0, stream=SeededStream(3), **given)
    assert found.std == pytest.approx(5.0 * 2.0 / 100)
    assert float((found.drawn.predict_proba(x).argmax(1) == y).double().mean()) > 0.85
    assert found.path.shape == (200, 3)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be"),
        ({"samples": 0}, "samples must be"),
        ({"learning_rate": 1e4}, "learning_rate / \\(n prior_std\\^2\\) must be"),
        ({"failure": 0.0}, "failure must be"),
        ({"held_out": data(10), "pairs": 6}, "inputs must be two held-out records"),
    ],
)
def test_bad_input_spends_nothing(change, sentence):
    ledger = Ledger()
    with pytest.raises(InvalidInput, match=sentence):
        infer_concealed(LogisticLikelihood(), *data(), ledger=ledger, **(LENGTH | change))
    assert not ledger.entries
