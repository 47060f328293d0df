"""The Bayesian accountant while a model is trained."""

import numpy as np
import pytest
import torch
from torch import nn

from tacit.accounting import Ledger, accountant
from tacit.accounting.bayesian import Bayesian
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.training import fit
from tacit.training.callbacks import Callback
from tacit_papers.improved_accounting.bayesian_observer import BayesianObserver


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


OBSERVER = ("pairs", "every", "version", "clipped")


def watched(steps=12, callbacks=(), **settings):
    own = {name: settings.pop(name) for name in OBSERVER if name in settings}
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    y = (x[:, 0] > 0).long()
    model = nn.Linear(4, 2)
    observer = BayesianObserver(model, x[200:], y[200:], loss=loss, **{"pairs": 20} | own)
    found = fit(
        model, x[:200], y[:200], loss=loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.3), clip_norm=0.5,
        sample_rate=0.1, steps=steps, callbacks=(observer, *callbacks), stream=SeededStream(0),
        **{"noise_multiplier": 1.5} | settings,
    )  # fmt: skip
    return observer, found


def test_every_step_is_watched_from_where_it_started():
    """Against a replay: gradients by autograd, one record at a time, at the parameters before each step."""
    observer, found = watched(steps=1, pairs=10)
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    y = (x[:, 0] > 0).long()
    model = nn.Linear(4, 2)
    chosen = 200 + torch.randperm(100, generator=torch.Generator().manual_seed(0))[:20]
    rows = []
    for i in chosen:
        found_gradients = torch.autograd.grad(loss(model(x[i][None]), y[i][None]).sum(), list(model.parameters()))
        row = torch.cat([value.flatten() for value in found_gradients])
        rows.append(row * min(1.0, 0.5 / float(row.norm())))
    judge = Bayesian()
    gaps = (torch.stack(rows[:10]) - torch.stack(rows[10:])).norm(dim=1).numpy()
    judge.observe(gaps, sample_rate=0.1, noise_multiplier=1.5, clip_norm=0.5)
    expected = judge(Ledger.of(Gaussian(1.5).poisson(0.1) * 1)).epsilon(1e-5)
    assert float(observer.trade_off(found.ledger).epsilon(1e-5)) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_estimate_is_bayesian_and_no_bound(version):
    observer, found = watched(version=version)
    answer = observer.trade_off(found.ledger)
    assert answer.standing is Standing.CLAIMED  # seeded noise: weaker still than bayesian
    again = Ledger.of(Gaussian(1.5).poisson(0.1) * 12)
    assert observer.trade_off(again).standing is Standing.BAYESIAN
    assert 0 < float(observer.trade_off(again).epsilon(1e-5)) < np.inf
    assert accountant("pld")(again).standing is Standing.PROVEN


def test_hoelder_costs_more():
    values = [float(each.trade_off(run.ledger).epsilon(1e-5)) for each, run in (watched(), watched(version="v2"))]
    assert values[0] < values[1]


@pytest.mark.slow_cases
@pytest.mark.parametrize("every", [4, 5, 100])
def test_what_was_seen_counts_for_all_steps_up_to_the_next_look(every):
    """12 steps by looks at 0, every, 2 every: each look's cost times the steps that it stands for."""
    observer, found = watched(every=every)
    ran = Ledger.of(Gaussian(1.5).poisson(0.1) * 12)
    value = float(observer.trade_off(ran).epsilon(1e-5))
    assert found.ledger.steps == 12
    assert 0 < value < np.inf
    each, _ = watched()
    assert value == pytest.approx(float(each.trade_off(ran).epsilon(1e-5)), rel=0.5)


class StopAfter(Callback):
    """Ctrl-C after some steps."""

    def __init__(self, steps):
        self.steps = steps

    def on_step(self, taken, planned):
        if taken == self.steps:
            raise KeyboardInterrupt


def test_a_resumed_run_is_watched_as_if_it_had_not_stopped(tmp_path):
    whole, _ = watched(every=5)
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        watched(every=5, callbacks=(StopAfter(8),), checkpoint=path, checkpoint_every=1)
    resumed, found = watched(every=5, callbacks=(StopAfter(99),), checkpoint=path, resume=True)
    ran = Ledger.of(Gaussian(1.5).poisson(0.1) * 12)
    assert found.ledger.steps == 12
    assert float(resumed.trade_off(ran).epsilon(1e-5)) == float(whole.trade_off(ran).epsilon(1e-5))


def test_a_noise_schedule_is_watched_at_every_step_only():
    with pytest.raises(InvalidInput, match="one for all steps where every is above 1"):
        watched(every=2, noise_multiplier=[1.5] * 11 + [2.0])
    watched(noise_multiplier=[1.5] * 11 + [2.0])


def test_a_run_that_was_not_watched_whole_is_refused():
    observer, _ = watched()
    with pytest.raises(Refused, match="12 were observed"):
        observer.trade_off(Ledger.of(Gaussian(1.5).poisson(0.1) * 13))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"pairs": 2}, "pairs must be"),
        ({"pairs": 51}, "inputs must be two held-out records for each pair"),
        ({"version": "v3"}, "version must be one of v1, v2"),
    ],
)
def test_bad_input(settings, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        watched(**settings)


def test_no_answer_before_a_run():
    x = torch.randn(8, 4)
    observer = BayesianObserver(nn.Linear(4, 2), x, torch.zeros(8).long(), loss=loss, pairs=3)
    with pytest.raises(InvalidInput, match="a run with this callback"):
        observer.trade_off(Ledger())
