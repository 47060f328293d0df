"""Logistic regression on Abalone and Adult: accuracy against epsilon, by DPVI and by Langevin dynamics."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.papers.base import Item, Row
from tacit.papers.drawing import lines_svg
from tacit.papers.improved_accounting.counterexamples import KEY
from tacit.standing import Standing
from tacit.sweeps import Task

if TYPE_CHECKING:
    from torch import Tensor

Folder = str | os.PathLike[str] | None
DELTA = 1e-5
EPSILONS = {"quick": (0.3, 1.0), "full": (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)}
REPEATS = {"quick": 1, "full": 10}
_CLIP_NORM, _LEARNING_RATE = 1.0, 0.05


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
    """
    from tacit.noise import SeededStream
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
    guessed = (found.posterior.predict_probit(x_test) >= 0.5).long()
    return {"accuracy": float((guessed == y_test).double().mean()), "noise": found.noise_multiplier or 0.0}


def langevin(dataset: str, epsilon: float, seed: int, *, data_dir: Folder = None) -> dict[str, float]:
    """Test accuracy of DP-SGLD set up for `epsilon`, its gradients clipped, and what its steps cost exactly."""
    from tacit.accounting import Ledger, accountant
    from tacit.erm.losses import Logistic
    from tacit.erm.problem import Problem
    from tacit.noise import SeededStream
    from tacit.variational import Schedule, sgld

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
    exact = accountant("pld")(Ledger.of(chain.ledger.mechanism)).epsilon(DELTA)
    return {"accuracy": float(np.mean((x_test @ w > 0) == y_test)), "exact": float(exact)}


def observed(dataset: str, sigma: float, seed: int, *, data_dir: Folder = None) -> dict[str, float]:
    """The Bayesian accountant's epsilon for DP-SGD logistic regression, from 64 held-out pairs a step (v1)."""
    import torch
    from torch import nn

    from tacit.accounting import Ledger
    from tacit.noise import SeededStream
    from tacit.training import fit
    from tacit.variational import BayesianObserver

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
    return {"epsilon": float(observer.trade_off(Ledger.of(found.ledger.mechanism)).epsilon(DELTA))}


def _tensors(dataset: str, data_dir: Folder) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows with a column of ones, and labels, of training and test."""
    import torch

    from tacit.data import load

    found = load(dataset, data_dir=data_dir)
    x, x_test = (
        torch.cat([torch.from_numpy(part), torch.ones(len(part), 1)], dim=1) for part in (found.x_train, found.x_test)
    )
    return x, torch.from_numpy(found.y_train), x_test, torch.from_numpy(found.y_test)


def _tasks(dataset: str, size: str) -> list[Task]:
    seeds, make = range(REPEATS[size]), partial(Task, reads_data=True)
    plain = [make(f"{__name__}:variational", _given(dataset, None, seed), 3.0) for seed in seeds]
    private = [
        make(f"{__name__}:{method}", _given(dataset, epsilon, seed), 5.0)
        for method in ("variational", "langevin")
        for epsilon in EPSILONS[size]
        for seed in seeds
    ]
    return plain + private


def _given(dataset: str, epsilon: float | None, seed: int) -> dict[str, Any]:
    return {"dataset": dataset, "epsilon": epsilon, "seed": seed}


def _means(size: str, values: Sequence[Any], key: str) -> tuple[float, list[float], list[float]]:
    """(non-private, by epsilon of variational inference, by epsilon of DP-SGLD), averaged over the repeats."""
    found = np.array([value.get(key, np.nan) for value in values]).reshape(-1, REPEATS[size]).mean(axis=1).tolist()
    count = len(EPSILONS[size])
    return found[0], found[1 : 1 + count], found[1 + count :]


def _rows(number: int, dataset: str, size: str, values: Sequence[Any]) -> list[Row]:
    make, title = partial(Row, KEY, f"figure-{number}"), SETTINGS[dataset].title
    plain, private, chain = _means(size, values, "accuracy")
    exact = _means(size, values, "exact")[2]
    rows = [make(f"{title}: accuracy without privacy", None, plain)]
    for k, epsilon in enumerate(EPSILONS[size]):
        rows += [
            make(f"{title}, epsilon {epsilon:g} (proven): accuracy of DPVI", None, private[k]),
            make(f"{title}, epsilon {epsilon:g} (claimed): accuracy of DP-SGLD", None, chain[k]),
            make(f"{title}, DP-SGLD set up for {epsilon:g}: epsilon, exact", None, exact[k], None, Standing.PROVEN),
        ]
    return rows


def _drawings(number: int, dataset: str, size: str, values: Sequence[Any]) -> Mapping[str, str]:
    plain, private, chain = _means(size, values, "accuracy")
    epsilons = EPSILONS[size]
    lines = {
        "DPVI": (epsilons, private),
        "DP-SGLD": (epsilons, chain),
        "non-private": (epsilons, [plain] * len(epsilons)),
    }
    return {f"figure-{number}": lines_svg(lines, across="epsilon at delta 1e-5", up="test accuracy", log_across=True)}


ITEMS = tuple(
    Item(
        f"figure-{number}",
        f"{SETTINGS[dataset].title}: accuracy of logistic regression against epsilon",
        partial(_tasks, dataset),
        partial(_rows, number, dataset),
        partial(_drawings, number, dataset),
    )
    for number, dataset in ((4, "abalone_over9"), (5, "adult"))
)
