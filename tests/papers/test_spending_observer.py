"""What the Bayesian accountant says along the way of a run."""

import pytest
import torch
from torch import nn

from tacit.noise import SeededStream
from tacit.training import fit
from tacit_papers.improved_accounting.bayesian_observer import BayesianObserver
from tacit_papers.improved_accounting.mnist import SpendingObserver

RATE, NOISE, DELTA, EPSILON = 0.1, 1.0, 1e-5, 2.0


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def run(steps, watch):
    torch.manual_seed(0)
    x, model = torch.randn(120, 4), nn.Linear(4, 2)
    y = (x[:, 0] > 0).long()
    observer = watch(model, x[100:], y[100:], loss=loss, pairs=8, every=3, seed=5)
    found = fit(
        model,
        x[:100],
        y[:100],
        loss=loss,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        clip_norm=1.0,
        noise_multiplier=NOISE,
        sample_rate=RATE,
        steps=steps,
        callbacks=[observer],
        stream=SeededStream(1),
    )
    return observer, found.ledger


def test_the_observation_after_a_mark_records_what_a_run_of_that_length_spends():
    observer, _ = run(
        24, lambda *data, **own: SpendingObserver(*data, marks=(1, 2, 9), epsilon=EPSILON, delta=DELTA, **own)
    )
    # Every third step is observed; ten steps make an epoch.
    assert [found["epoch"] for found in observer.spent] == pytest.approx([1.2, 2.1])
    assert observer.spent[0]["epsilon"] < observer.spent[1]["epsilon"]
    for found, steps in zip(observer.spent, (12, 21), strict=True):
        alone, ledger = run(steps, BayesianObserver)
        assert found["epsilon"] == pytest.approx(float(alone.trade_off(ledger).epsilon(DELTA)), rel=1e-12)
        assert found["delta"] == pytest.approx(float(alone.trade_off(ledger).delta(EPSILON)), rel=1e-12)


def test_a_checkpoint_keeps_the_records():
    observer, _ = run(12, lambda *data, **own: SpendingObserver(*data, marks=(1,), epsilon=EPSILON, delta=DELTA, **own))
    again, _ = run(3, lambda *data, **own: SpendingObserver(*data, marks=(1,), epsilon=EPSILON, delta=DELTA, **own))
    again.restore(observer.state())
    assert again.spent == observer.spent != []
