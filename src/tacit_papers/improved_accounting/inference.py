"""Logistic regression on Abalone and Adult by every method of the paper: one run each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from tacit_papers.improved_accounting.concealed import Concealed

Folder = str | os.PathLike[str] | None
DELTA = 1e-5
PREDICTION_SAMPLES = 10
_CLIP_NORM, _LEARNING_RATE, _DESCENT_RATE = 1.0, 0.05, 5.0


@dataclass(frozen=True)
class Setting:
    """The paper's settings of a data set: steps and rate of inference; passes, bound and burn-in of DP-SGLD."""

    title: str
    steps: int
    sample_rate: float
    passes: float
    lipschitz: float
    burn_in: int
    last: int | None = None


SETTINGS = {
    "abalone_over9": Setting("Abalone", 1000, 0.05, 10.0, 5.0, 0, 100),
    "adult": Setting("Adult", 2000, 0.005, 2.0, 10.0, 100),
}


def variational(dataset: str, epsilon: float | None, seed: int, *, data_dir: Folder = None) -> dict[str, float]:
    """Test accuracy of private variational inference at `epsilon`, or of the same without privacy (None).

    The noise is seeded, so that the result can be had again; the epsilon is that of the same run with secure noise.

    Args:
        dataset: its name.
        epsilon: target, at the delta of the paper; None for no privacy.
        seed: of the noise and the batches.
        data_dir: folder of the data files.
    """
    from tacit.noise import SeededStream
    from tacit.runs.decision_metrics import calibration_error
    from tacit.tradeoff import Epsilon
    from tacit.variational import LogisticLikelihood, infer, infer_nonprivate

    x, y, x_test, y_test = _tensors(dataset, data_dir)
    setting, likelihood = SETTINGS[dataset], LogisticLikelihood()
    length = {"steps": setting.steps, "sample_rate": setting.sample_rate, "learning_rate": _LEARNING_RATE, "seed": seed}
    stream = SeededStream(seed)
    if epsilon is None:
        found = infer_nonprivate(likelihood, x, y, stream=stream, **length)
    else:
        target = Epsilon(epsilon, DELTA)
        found = infer(likelihood, x, y, clip_norm=_CLIP_NORM, target=target, stream=stream, **length)
    chances = found.posterior.predict_probit(x_test)
    return {
        "accuracy": float(((chances >= 0.5) == y_test).double().mean()),
        "calibration": calibration_error(chances.double().numpy(), y_test.numpy() == 1),
        "noise": found.noise_multiplier or 0.0,
    }


def langevin(dataset: str, epsilon: float, seed: int, *, data_dir: Folder = None) -> dict[str, float]:
    """Test accuracy of DP-SGLD set up for `epsilon`, its gradients clipped, and what its steps cost exactly.

    Args:
        dataset: its name.
        epsilon: target, at the delta of the paper.
        seed: of the noise and the batches.
        data_dir: folder of the data files.
    """
    from tacit.accounting import accountant
    from tacit.erm.losses import Logistic
    from tacit.erm.solver import Problem
    from tacit.noise import SeededStream
    from tacit_papers.improved_accounting.posterior_sampling import Schedule, sgld

    x, y, x_test, y_test = (part.double().numpy() for part in _tensors(dataset, data_dir))
    setting = SETTINGS[dataset]
    schedule = Schedule(epsilon, DELTA, setting.passes, setting.lipschitz)
    chain = sgld(
        Problem(x, y, Logistic(), 1.0),
        schedule,
        batch_size=setting.sample_rate * len(x),
        radius=setting.lipschitz - 1,
        stream=SeededStream(seed),
    )
    w = chain.mean(setting.last or len(chain.states) - setting.burn_in)
    exact = accountant("pld")(chain.ledger).epsilon(DELTA)
    return {"accuracy": float(np.mean((x_test @ w > 0) == y_test)), "exact": float(exact)}


def concealed(dataset: str, sigma: float, seed: int, *, data_dir: Folder = None) -> dict[str, float]:
    """Test accuracy of the paper's inference with concealed parameters, and its three epsilons.

    `sigma` is the std of a sample over what one record moves in a step; 64 pairs of test records for the Bayesian
    accountant, and ten samples for predictions, all of them accounted.

    Args:
        dataset: its name.
        sigma: std of a sample over the sensitivity of a step, > 0.
        seed: of the samples and the batches.
        data_dir: folder of the data files.
    """
    found, accuracy, _ = _concealed(dataset, sigma, seed, _CLIP_NORM, data_dir)
    return {
        "accuracy": accuracy,
        "claimed": float(found.claimed.epsilon(DELTA)),
        "bayesian": float(found.bayesian.epsilon(DELTA)) if found.bayesian is not None else float("nan"),
        "proven": found.cost.epsilon(DELTA),
    }


def unclipped(dataset: str, sigma: float, seed: int, bound: float, *, data_dir: Folder = None) -> dict[str, float]:
    """`concealed` with a bound that no gradient reaches, its step size smaller by as much: pairs differ by less of it.

    "largest" is the largest norm of a row, which bounds the gradients of logistic regression.

    Args:
        dataset: its name.
        sigma: std of a sample over the sensitivity of a step, > 0.
        seed: of the samples and the batches.
        bound: on the norm of a record's gradient, > 0.
        data_dir: folder of the data files.
    """
    found, accuracy, largest = _concealed(dataset, sigma, seed, bound, data_dir)
    bayesian = float(found.bayesian.epsilon(DELTA)) if found.bayesian is not None else float("nan")
    return {"accuracy": accuracy, "bayesian": bayesian, "largest": largest}


def _concealed(dataset: str, sigma: float, seed: int, bound: float, data_dir: Folder) -> tuple[Concealed, float, float]:
    """The inference, the test accuracy of its predictions, and the largest norm of a row."""
    from tacit.noise import SeededStream
    from tacit.variational import LogisticLikelihood
    from tacit_papers.improved_accounting.concealed import infer_concealed

    x, y, x_test, y_test = _tensors(dataset, data_dir)
    setting = SETTINGS[dataset]
    found = infer_concealed(
        LogisticLikelihood(),
        x,
        y,
        clip_norm=bound,
        steps=setting.steps,
        sample_rate=setting.sample_rate,
        noise_multiplier=sigma,
        learning_rate=_DESCENT_RATE / bound,
        samples=PREDICTION_SAMPLES,
        held_out=(x_test, y_test),
        stream=SeededStream(seed),
        seed=seed,
    )
    guessed = found.drawn.predict_proba(x_test).argmax(1)
    return found, float((guessed == y_test).double().mean()), float(x.norm(dim=1).max())


def observed(dataset: str, sigma: float, seed: int, delta: float, *, data_dir: Folder = None) -> dict[str, float]:
    """The Bayesian accountant's epsilon for DP-SGD logistic regression, from 64 held-out pairs a step (v1).

    Args:
        dataset: its name.
        sigma: noise multiplier, > 0.
        seed: of the noise and the batches.
        delta: in (0, 1).
        data_dir: folder of the data files.
    """
    import torch
    from torch import nn

    from tacit.noise import SeededStream
    from tacit.training import fit
    from tacit_papers.improved_accounting.bayesian_observer import BayesianObserver

    x, y, x_test, y_test = _tensors(dataset, data_dir)
    model, setting = nn.Linear(x.shape[1], 1, bias=False), SETTINGS[dataset]
    nn.init.zeros_(model.weight)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.float(), reduction="none")

    observer = BayesianObserver(model, x_test, y_test, loss=loss, seed=seed)
    found = fit(
        model,
        x,
        y,
        loss=loss,
        optimizer=torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE),
        clip_norm=_CLIP_NORM,
        noise_multiplier=sigma,
        sample_rate=setting.sample_rate,
        steps=setting.steps,
        callbacks=(observer,),
        stream=SeededStream(seed),
    )
    return {"epsilon": float(observer.trade_off(found.ledger).epsilon(delta))}


def _tensors(dataset: str, data_dir: Folder) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows with a column of ones, and labels, of training and test."""
    import torch

    from tacit.data import load

    found = load(dataset, data_dir=data_dir)
    x, x_test = (
        torch.cat([torch.from_numpy(part), torch.ones(len(part), 1)], dim=1) for part in (found.x_train, found.x_test)
    )
    return x, torch.from_numpy(found.y_train), x_test, torch.from_numpy(found.y_test)
