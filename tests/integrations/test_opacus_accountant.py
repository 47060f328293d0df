"""Opacus itself trains, calibrates and saves with the accountant of `tacit`."""

import math
import warnings

import pytest
import torch
from torch import nn

import tacit
from tacit.errors import InvalidInput

opacus = pytest.importorskip("opacus")
from tacit.integrations.opacus import Accountant, register  # noqa: E402


def engine():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return opacus.PrivacyEngine(accountant=register())


def parts():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long()), batch_size=8)
    model = nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), loader


def trained(private, epochs=2):
    model, optimizer, loader = private
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()


def test_opacus_trains_with_it_and_reads_the_upper_end_of_its_bracket():
    private = engine()
    model, optimizer, loader = parts()
    trained(
        private.make_private(
            module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.2, max_grad_norm=1.0
        )
    )
    assert type(private.accountant) is Accountant
    assert private.accountant.history == [(1.2, 1 / 8, 16)]
    expected = tacit.accountant("pld")(tacit.Gaussian(1.2).poisson(1 / 8) * 16).epsilon(1e-5)
    assert private.get_epsilon(1e-5) == float(expected)
    answer = private.accountant.bracket(1e-5)
    assert 0 < answer.lower <= answer.upper <= answer.lower * (1 + 1e-6)
    assert answer.standing.value == "proven"


def test_opacus_calibrates_its_noise_with_it():
    private = engine()
    model, optimizer, loader = parts()
    _, private_optimizer, _ = private.make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=3.0,
        target_delta=1e-5,
        epochs=2,
        max_grad_norm=1.0,
    )
    sigma = private_optimizer.noise_multiplier
    epsilon = tacit.accountant("pld")(tacit.Gaussian(sigma).poisson(1 / 8) * 16).epsilon(1e-5)
    assert 2.9 <= float(epsilon) <= 3.0 + 0.01  # Opacus stops within its own tolerance of .01.


def test_its_state_is_loaded_again_and_refuses_that_of_another_accountant():
    one, other = Accountant(), Accountant()
    for sigma in (1.0, 1.0, 0.8):
        one.step(noise_multiplier=sigma, sample_rate=0.1)
    other.load_state_dict(one.state_dict())
    assert other.history == one.history == [(1.0, 0.1, 2), (0.8, 0.1, 1)]
    assert other.get_epsilon(1e-5) == one.get_epsilon(1e-5)
    with pytest.raises(ValueError, match="cannot be loaded"):
        other.load_state_dict(opacus.accountants.RDPAccountant().state_dict())


def test_its_history_may_be_set_as_opacus_does():
    steps = Accountant()
    steps.history = [(1.0, 0.01, 1000)]
    assert len(steps) == 1000
    assert steps.get_epsilon(delta=1e-5, alphas=[2, 3]) == float(
        tacit.accountant("pld")(tacit.Gaussian(1.0).poisson(0.01) * 1000).epsilon(1e-5)
    )
    assert [entry.note for entry in steps.ledger.entries] == ["trained by Opacus"]


def test_steps_that_no_accountant_covers_are_refused_or_infinite():
    steps = Accountant()
    for wrong in (
        {"noise_multiplier": math.nan, "sample_rate": 0.1},
        {"noise_multiplier": -1.0, "sample_rate": 0.1},
        {"noise_multiplier": 1.0, "sample_rate": 1.5},
        {"noise_multiplier": 1.0, "sample_rate": 0.0},
    ):
        with pytest.raises(InvalidInput):
            steps.step(**wrong)
    assert len(steps) == 0
    steps.history = [(1.0, 0.01, -20)]
    with pytest.raises(InvalidInput, match="steps must be"):
        steps.get_epsilon(1e-5)
    steps.history = []
    assert steps.get_epsilon(1e-5) == 0.0
    steps.step(noise_multiplier=0.0, sample_rate=0.5)
    assert steps.get_epsilon(1e-5) == math.inf
