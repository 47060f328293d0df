"""Nothing that ran on a seeded stream is proven, whichever public entry point ran it."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import Ledger, accountant
from tacit.erm import (
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPMLPClassifier,
    DPRidge,
    PrivateScaler,
)
from tacit.erm.losses import Logistic
from tacit.erm.solver import Problem
from tacit.noise import SeededStream
from tacit.opacus import PrivacyEngine
from tacit.standing import Standing
from tacit.training import fit, make_private
from tacit.variational import (
    DPBayesianLinearRegression,
    DPBayesianLogisticRegression,
    LogisticLikelihood,
    infer,
)
from tacit.variational.linear import noisy_statistics
from tacit_papers.improved_accounting.concealed import infer_concealed
from tacit_papers.improved_accounting.posterior_sampling import Schedule, posterior_samples, sgld
from tacit_papers.input_perturbation.perturbed_table import InputPerturbation, randomised_labels
from tests.tickets.test_marks import MODES, made

X = np.random.default_rng(0).uniform(-0.5, 0.5, (60, 2))
Y = (X[:, 0] > 0).astype(float)
TX, TY = torch.tensor(X).float(), torch.tensor(Y).long()


def per_example(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def parts():
    model = nn.Linear(2, 2)
    loader = DataLoader(TensorDataset(TX, TY), batch_size=20)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), loader


def fitted():
    model, optimizer, _ = parts()
    settings = {"clip_norm": 1.0, "noise_multiplier": 2.0, "sample_rate": 0.3, "steps": 2}
    return fit(model, TX, TY, loss=per_example, optimizer=optimizer, stream=SeededStream(0), **settings).ledger


def wrapped():
    private = make_private(*parts(), clip_norm=1.0, noise_multiplier=2.0, steps=2, stream=SeededStream(0))
    model, optimizer, loader, ledger = private.model, private.optimizer, private.loader, private.ledger
    for x, y in loader:
        optimizer.zero_grad()
        per_example(model(x), y).backward()
        optimizer.step()
    return ledger


def opacus():
    engine = PrivacyEngine()
    model, optimizer, loader = parts()
    generator = torch.Generator().manual_seed(0)
    settings = {"noise_multiplier": 2.0, "max_grad_norm": 1.0, "noise_generator": generator}
    model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, **settings)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return engine.ledger


def estimated(kind):
    declared = {"data_bounds": (-1, 1)} | ({"delta": 1e-4} if kind is not InputPerturbation else {"epsilon": 1.0})
    names = kind.__dataclass_fields__
    declared |= {"classes": [0, 1]} if "classes" in names else {}
    declared |= {"target_bounds": (0, 1)} if "target_bounds" in names else {}
    model = kind(unsafe_seed=0, **declared).fit(X, Y)
    if kind is InputPerturbation:
        model.transform(X)
    return model.ledger_


def labelled():
    ledger = Ledger()
    randomised_labels([0, 1], classes=[0, 1], epsilon=1.0, ledger=ledger, stream=SeededStream(0))
    return ledger


INFERENCE = {"clip_norm": 1.0, "steps": 2, "sample_rate": 0.3, "noise_multiplier": 2.0}
ESTIMATORS = [
    DPLogisticRegression,
    DPLinearSVC,
    DPLinearRegression,
    DPRidge,
    DPMLPClassifier,
    DPBayesianLogisticRegression,
    DPBayesianLinearRegression,
    PrivateScaler,
    InputPerturbation,
]
ENTRIES = {
    "fit": fitted,
    "make_private": wrapped,
    "PrivacyEngine": opacus,
    "randomised_labels": labelled,
    "infer": lambda: infer(LogisticLikelihood(), TX, TY, stream=SeededStream(0), **INFERENCE).ledger,
    "infer_concealed": lambda: (
        infer_concealed(LogisticLikelihood(), TX, TY, learning_rate=1.0, stream=SeededStream(0), **INFERENCE).ledger
    ),
    "sgld": lambda: (
        sgld(
            Problem(X, Y, Logistic(), 1.0), Schedule(1.0, 1e-5, 1.0, 1.0), batch_size=20, stream=SeededStream(0)
        ).ledger
    ),
    "posterior_samples": lambda: (
        posterior_samples(Logistic(), X, Y, strength=1.0, std=1.0, stream=SeededStream(0)).ledger
    ),
    "noisy_statistics": lambda: noisy_statistics(X, Y, noise_multiplier=1.0, stream=SeededStream(0)).ledger,
}
ENTRIES |= {kind.__name__: (lambda kind=kind: estimated(kind)) for kind in ESTIMATORS}
ENTRIES |= {f"ticket {mode}": (lambda mode=mode: made(mode, SeededStream(0)).run().ledger) for mode in MODES}


@pytest.mark.slow_cases
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_seed_leaves_nothing_proven(entry):
    ledger = ENTRIES[entry]()
    assert ledger.entries
    assert "unsafe_seeded_stream" in ledger.unsafe
    assert ledger.standing is Standing.CLAIMED
    name = "naive" if "objective" in str(ledger.spec()) else "pld"
    assert accountant(name)(ledger).standing is Standing.CLAIMED
