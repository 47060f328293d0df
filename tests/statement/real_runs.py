"""Small runs of every method that writes a ledger: name -> function of a folder that runs it and gives its ledger."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from tacit import Epsilon, PrivacyEngine, erm, fit, make_private, variational
from tacit.accounting import Ledger
from tacit.budget import Registry
from tacit.clipping import AdaptiveClip, AutomaticClip, PerLayerClip
from tacit.erm.losses import Logistic
from tacit.runs import read_config, train
from tacit.sampling import (
    BalancedIterationSampling,
    CyclicPoissonSampling,
    FixedSizeSampling,
    GroupedPoissonSampling,
    PoissonSampling,
    RandomAllocationSampling,
    ShuffledSampling,
    TruncatedPoissonSampling,
)
from tacit.tuning import PrivateSearchCV
from tacit_papers.improved_accounting.concealed import infer_concealed
from tacit_papers.improved_accounting.posterior_sampling import posterior_samples
from tacit_papers.input_perturbation.comparison import METHODS

Run = Callable[[Path], Ledger]
ROWS = np.random.default_rng(0).uniform(-1, 1, (240, 3))
CLASS = (ROWS[:, 0] > 0).astype(int)
UNIT = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
X, Y = torch.as_tensor(ROWS, dtype=torch.float32), torch.as_tensor(CLASS)


def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs, targets, reduction="none")


def network() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def loader() -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=24)


def fitted(
    home: Path, *, relation: str = "add_remove", unit: str = "record", times: int = 1, **given: object
) -> Ledger:
    settings = {"noise_multiplier": 1.3, "batch_size": 24, "steps": 10}
    settings |= {"clip_norm": None if "clipping" in given else 1.0} | given
    ledger = Ledger(relation=relation, unit=unit)
    for _ in range(times):
        model, optimizer = network()
        fit(model, X, Y, loss=losses, optimizer=optimizer, ledger=ledger, **settings)
    return ledger


def looped(home: Path, **given: object) -> Ledger:
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.1, "steps": 10}
    private = make_private(*network(), loader(), **settings | given)
    for x, y in private.loader:
        losses(private.model(x), y).backward()
        private.optimizer.step()
    return private.ledger


def engine(home: Path) -> Ledger:
    ledger = Ledger()
    model, optimizer = network()
    model, optimizer, batches = PrivacyEngine(ledger=ledger).make_private(
        module=model, optimizer=optimizer, data_loader=loader(), noise_multiplier=1.2, max_grad_norm=1.0
    )
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return ledger


def classified(home: Path, kind: type = erm.DPLogisticRegression, *, epsilon: float = 2.0, **given: object) -> Ledger:
    settings = {"delta": 1e-5, "classes": [0, 1], "data_bounds": (-1, 1)}
    return kind(epsilon=epsilon, **settings | given).fit(ROWS, CLASS).ledger_


def regressed(home: Path, kind: type = erm.DPLinearRegression, **given: object) -> Ledger:
    settings = {"epsilon": 2.0, "delta": 1e-5, "data_bounds": (-1, 1), "target_bounds": (-1, 1), "public_size": 240}
    return kind(**settings | given).fit(ROWS, ROWS[:, 0] / 2).ledger_


def quantiles(home: Path, **given: object) -> Ledger:
    return (
        erm.PrivateQuantiles(epsilon=1.0, delta=1e-5, data_bounds=(-1, 1), public_size=240, **given).fit(ROWS).ledger_
    )


def one_column(home: Path, function: Callable[..., object]) -> Ledger:
    ledger = Ledger()
    settings = {"epsilon": 1.0, "delta": 1e-5, "data_bounds": (-1, 1), "public_size": 240, "ledger": ledger}
    function(ROWS[:, 0], **settings)
    return ledger


def scaled(home: Path) -> Ledger:
    return erm.PrivateScaler(epsilon=1.0, delta=1e-5, data_bounds=(-1, 1), public_size=240).fit(ROWS).ledger_


def searched(home: Path) -> Ledger:
    model = erm.DPLogisticRegression(classes=[0, 1], data_bounds=(-1, 1), public_size=240)
    search = PrivateSearchCV(model, {"regularization": [0.01, 0.1]}, epsilon=3.0, delta=1e-5, trials=3)
    return search.fit(ROWS, CLASS).ledger_


def inferred(home: Path) -> Ledger:
    settings = {"clip_norm": 1.0, "steps": 5, "sample_rate": 0.1, "noise_multiplier": 1.5, "public_size": 240}
    return variational.infer(variational.LogisticLikelihood(), X, Y, **settings).ledger


def concealed(home: Path) -> Ledger:
    settings = {"clip_norm": 1.0, "steps": 3, "sample_rate": 0.1, "noise_multiplier": 5.0, "learning_rate": 1.0}
    return infer_concealed(variational.LogisticLikelihood(), X, Y, public_size=240, **settings).ledger


def sampled(home: Path) -> Ledger:
    return posterior_samples(Logistic(), UNIT, CLASS.astype(float), strength=5.0, std=1.0, count=3).ledger


def configured(home: Path, name: str = "digits", **given: object) -> Ledger:
    settings = {"epochs": 1.0, "batch_size": 200, "attacks": (), "delta": 1e-4} | given
    if "epsilon" not in settings:
        settings["noise_multiplier"] = settings.get("noise_multiplier", 2.0)
    train(read_config(name, settings), out=home / "run")
    return Ledger.load(home / "run" / "ledger.json")


def budgeted(home: Path, runs: int = 2, **given: object) -> Ledger:
    dataset = Registry.create(home / "budget.sqlite").declare("patients", **given)
    for number in range(runs):
        model, optimizer = network()
        ledger = dataset.ledger(f"run {number}")
        settings = {"clip_norm": 1.0, "noise_multiplier": 2.0, "batch_size": 24, "steps": 5}
        fit(model, X, Y, loss=losses, optimizer=optimizer, ledger=ledger, **settings)
    return dataset.total()


USERS = np.repeat(np.arange(60), 4)
_VARIANTS = {
    f"{family} {name}": (family, name) for family, known in METHODS.items() for name in known if name != "shuffled"
}
RUNS: dict[str, Run] = {
    "fit": fitted,
    "fit to a target": partial(fitted, noise_multiplier=None, target=Epsilon(2.0, 1e-5)),
    "fit, replace one": partial(fitted, relation="replace_one"),
    "fit, zero out": partial(fitted, relation="zero_out"),
    "fit twice": partial(fitted, times=2),
    "fit, noise by step": partial(fitted, noise_multiplier=[1.0 + 0.1 * k for k in range(10)]),
    "fit, truncated batches": partial(fitted, sampling=TruncatedPoissonSampling(40)),
    "fit, fixed size": partial(fitted, sampling=FixedSizeSampling(), relation="replace_one"),
    "fit, shuffled": partial(fitted, sampling=ShuffledSampling(), relation="zero_out"),
    "fit, allocation": partial(fitted, sampling=RandomAllocationSampling()),
    "fit, balanced": partial(fitted, sampling=BalancedIterationSampling(iterations=10)),
    "fit, cyclic": partial(fitted, sampling=CyclicPoissonSampling(2)),
    "fit, bands": partial(fitted, sampling=CyclicPoissonSampling(2), noise="banded:2"),
    "fit, bins": partial(fitted, sampling="balls_and_bins"),
    "fit, tree": partial(fitted, sampling="balls_and_bins", noise="tree"),
    "fit, users": partial(fitted, sampling=GroupedPoissonSampling(USERS), unit="user", batch_size=10),
    "fit, layers": partial(fitted, clipping=PerLayerClip(1.0)),
    "fit, automatic clip": partial(fitted, clipping=AutomaticClip(1.0)),
    "fit, adaptive clip": partial(fitted, clipping=AdaptiveClip(1.0)),
    "loop": looped,
    "loop, poisson by name": partial(looped, sampling=PoissonSampling()),
    "opacus engine": engine,
    **{
        name: partial(classified, method=METHODS[family][variant](), delta=0.0 if "pure" in variant else 1e-5)
        for name, (family, variant) in _VARIANTS.items()
    },
    "support vectors": partial(classified, kind=erm.DPLinearSVC),
    "logistic, replace one": partial(classified, relation="replace_one"),
    "perceptron": partial(classified, kind=erm.DPMLPClassifier),
    "boosted trees": partial(classified, kind=erm.DPBoostedTrees, trees=20, depth=3),
    "linear regression": regressed,
    "ridge": partial(regressed, kind=erm.DPRidge),
    "quantiles": quantiles,
    "quantiles, replace one": partial(quantiles, relation="replace_one"),
    "median": partial(one_column, function=erm.private_median),
    "histogram": partial(one_column, function=erm.private_histogram),
    "scaler": scaled,
    "search": searched,
    "variational inference": inferred,
    "concealed path": concealed,
    "posterior samples": sampled,
    "digits": configured,
    "digits to a target": partial(configured, epsilon=3.0),
    "digits, objective": partial(configured, method="objective", model="linear", epsilon=3.0),
    "digits, posterior": partial(configured, method="vi", model="linear"),
    "digits, ticket": partial(configured, method="ticket", epsilon=3.0, ticket={"mode": "T1", "density": 0.5}),
    "digits, private ticket": partial(
        configured, method="ticket", epsilon=3.0, ticket={"mode": "T2", "search_epochs": 1.0, "densities": (0.5, 0.2)}
    ),
    "digits, private validation": partial(configured, epochs=2.0, epsilon=3.0, validation={"type": "private"}),
    "budget": budgeted,
    "budget of one run": partial(budgeted, runs=1),
    "budget, fixed beforehand": partial(budgeted, scope="fixed"),
}


def ledger_of(name: str, home: Path) -> Ledger:
    """The ledger of a run in the folder `home`."""
    home.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        return RUNS[name](home)
