"""The calibrations of section 2: the noise that each asks for, and what that noise costs exactly.

What is trained and attacked: data, splits, models, and the five runs of a setting at every size.

Table 1: what k steps of epsilon cost by advanced composition, CDP, zCDP and RDP, and by the exact composition.
"""

import math
import os
import warnings
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from tacit.accounting import accountant
from tacit.attacks import Examples
from tacit.calibration import noise_multiplier
from tacit.mechanisms import Approximate, Gaussian, Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tradeoff import Epsilon
from tacit_papers.base import Item, Row, published, unpublished_rows

KEY = "evaluating-dp"
NUMBERS = published("tacit_papers.evaluating_dp")
PROTOCOL = NUMBERS["protocol"]
DELTA = PROTOCOL["delta"]
EPOCHS = PROTOCOL["epochs"]
RATE = PROTOCOL["batch_size"] / PROTOCOL["records"]

METHODS = {
    "naive": "naive_jayaraman_evans",
    "advanced": "advanced_jayaraman_evans",
    "zcdp": "zcdp",
    "rdp": "rdp_jayaraman_evans",
    "exact": "pld",
}
LABELS = {"naive": "NC", "advanced": "AC", "zcdp": "zCDP", "rdp": "RDP", "exact": "exact"}
POISSON = ("rdp", "exact")
"""Calibrated over Poisson-sampled steps; the others over passes of disjoint batches, without amplification."""

_CALIBRATION = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0)
_TRUE = (1.0, 10.0, 100.0, 1000.0)


def sigma(method: str, epsilon: float, epochs: int, rate: float) -> float:
    """The noise multiplier by which `method` means to reach (`epsilon`, 1e-5).

    Args:
        method: accountant of the paper.
        epsilon: target, at delta 1e-5.
        epochs: passes over the records.
        rate: sampling rate of a step, in (0, 1].
    """
    amplified: dict[str, Any] = {"sample_rate": rate} if method in POISSON else {}
    steps = round(epochs / rate) if method in POISSON else epochs
    return noise_multiplier(Epsilon(epsilon, DELTA), steps=steps, accountant=METHODS[method], **amplified).value


def ran(method: str, noise: float, epochs: int, rate: float) -> Mechanism:
    """What is run: Poisson-sampled steps, or as many full Gaussian steps as there are passes of disjoint batches.

    Args:
        method: accountant of the paper.
        noise: noise multiplier, > 0.
        epochs: passes over the records.
        rate: sampling rate of a step, in (0, 1].
    """
    return Gaussian(noise).poisson(rate) * round(epochs / rate) if method in POISSON else Gaussian(noise) * epochs


def cost(method: str, epsilon: float, epochs: int, rate: float) -> dict[str, float]:
    """sigma, and the exact epsilon of that noise at delta 1e-5 under both relations.

    For passes of disjoint batches add/remove means that a missing record is one that adds nothing.

    Args:
        method: accountant of the paper.
        epsilon: target, at delta 1e-5.
        epochs: passes over the records.
        rate: sampling rate of a step, in (0, 1].
    """
    noise = sigma(method, epsilon, epochs, rate)
    mechanism = ran(method, noise, epochs, rate)
    exact = {
        relation.value: float(accountant("pld")(mechanism, relation=relation).epsilon(DELTA))
        for relation in (Relation.ADD_REMOVE, Relation.REPLACE_ONE)
    }
    return {"sigma": noise, **exact}


def cost_task(method: str, epsilon: float, epochs: int = EPOCHS, rate: float = RATE) -> Task:
    """The task whose value is `cost`.

    Args:
        method: accountant of the paper.
        epsilon: target, at delta 1e-5.
        epochs: passes over the records.
        rate: sampling rate of a step, in (0, 1].
    """
    settings = {"method": method, "epsilon": epsilon, "epochs": epochs, "rate": rate}
    return Task(f"{__name__}:cost", settings, 1.0 if method in POISSON else 0.05)


def standing(method: str) -> Standing:
    """How far the calibration's own epsilon can be trusted under add/remove."""
    return accountant(METHODS[method]).standing


def _cells(size: str, epsilons: Sequence[float]) -> list[tuple[str, float]]:
    kept = [epsilon for epsilon in epsilons if size == "full" or epsilon in _TRUE]
    return [(method, epsilon) for method in METHODS for epsilon in kept]


def _tasks(epsilons: Sequence[float], size: str) -> list[Task]:
    return [cost_task(method, epsilon) for method, epsilon in _cells(size, epsilons)]


def _calibration_rows(size: str, values: Sequence[Any]) -> list[Row]:
    make, rows = partial(Row, KEY, "calibration"), []
    for (method, epsilon), value in zip(_cells(size, _CALIBRATION), values, strict=True):
        prefix = f"epsilon {epsilon:g}, {LABELS[method]}: "
        rows += [
            make(f"{prefix}noise multiplier", None, value["sigma"], standing=standing(method)),
            make(f"{prefix}exact epsilon of it", None, value["add_remove"], standing=Standing.PROVEN),
        ]
    return rows


def _true_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """At an equal nominal epsilon the methods differ by factors in the true one."""
    make, rows = partial(Row, KEY, "true-epsilon"), []
    for (method, epsilon), value in zip(_cells(size, _TRUE), values, strict=True):
        prefix = f"epsilon {epsilon:g} asked, {LABELS[method]}: "
        for relation, words in (("add_remove", "add/remove"), ("replace_one", "replace-one")):
            holds = float(value[relation] <= epsilon)
            rows += [
                make(f"{prefix}exact, {words}", None, value[relation], standing=Standing.PROVEN),
                make(f"{prefix}holds for {words} (1 yes, 0 no)", None, holds, standing=Standing.PROVEN),
            ]
    return rows


ITEMS = (
    Item("calibration", "the noise of every calibration", partial(_tasks, _CALIBRATION), _calibration_rows),
    Item("true-epsilon", "true epsilon at equal nominal epsilon", partial(_tasks, _TRUE), _true_rows),
)


SEED = 21312
WIDTHS: dict[str, tuple[int, ...]] = {"lr": (), "nn": (256, 256)}
CLASSES = 100
EPSILONS = {"quick": (10.0, 1000.0), "full": tuple(PROTOCOL["epsilons"])}
Folder = str | os.PathLike[str] | None


def protocol(size: str) -> dict[str, int]:
    """Records of the target, batch, epochs, runs of a setting and shadow models."""
    if size == "full":
        names = {"records": "records", "batch_size": "batch_size", "epochs": "epochs", "runs": "repeats"}
        return {name: PROTOCOL[key] for name, key in names.items()} | {"shadows": 5}
    return {"records": 1000, "batch_size": 200, "epochs": 20, "runs": 1, "shadows": 0}


@cache
def split(dataset: str, records: int, data_dir: Folder) -> dict[str, Examples]:
    """The target's training ("members") and test ("others") records, stratified, and the rest ("pool"); rows of norm 1.

    The paper's code draws its split without a fixed seed.
    """
    from sklearn.model_selection import train_test_split

    x, y = _rows(dataset, data_dir)
    members, rest = train_test_split(np.arange(len(y)), train_size=records, stratify=y, random_state=SEED)
    others, pool = train_test_split(rest, train_size=records, stratify=y[rest], random_state=SEED)
    return {name: (x[part], y[part]) for name, part in (("members", members), ("others", others), ("pool", pool))}


def _rows(dataset: str, data_dir: Folder) -> Examples:
    from tacit.data import data_folder, load
    from tacit.data.published import clustered, source

    if dataset == "purchase_standin":
        folder = data_folder(data_dir)
        return clustered([file.content(folder, dataset=dataset) for file in source(dataset).files])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load("cifar100_pca50", data_dir=data_dir)
    x = np.concatenate([data.x_train, data.x_test]).astype(np.float32)
    y = np.concatenate([data.y_train, data.y_test]).astype(np.int64)
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


_CELLS = ((0.01, 100), (0.1, 100), (0.5, 100), (0.01, 5000))
_WORDS = {
    "advanced": ("advanced composition", Standing.PROVEN),
    "cdp": ("CDP", Standing.PROVEN),
    "zcdp": ("zCDP", Standing.PROVEN),
    "rdp": ("RDP, where log(1/delta) >= k epsilon^2", Standing.PROVEN),
    "exact": ("exact composition of pure steps", Standing.PROVEN),
    "advanced_loss": ("bound on the expected loss of a step, advanced composition", Standing.PROVEN),
    "cdp_loss": ("bound on the expected loss of a step, CDP", Standing.PROVEN),
    "zcdp_loss": ("bound on the expected loss of a step, zCDP", Standing.PROVEN),
    "rdp_loss": ("bound on the expected loss of a step, RDP", Standing.PROVEN),
    "exact_loss": ("expected privacy loss of a step of randomised response", Standing.PROVEN),
    "variance": ("bound on the variance of the loss of a step, all four", Standing.PROVEN),
    "exact_variance": ("variance of the loss of a step of randomised response", Standing.PROVEN),
}


def composed(epsilon: float, steps: int) -> dict[str, float | None]:
    """The table's formulas at (epsilon, k = `steps`), delta 1e-5; None where a formula does not apply.

    All are bounds for pure steps: Dwork & Rothblum 2016 (CDP), Bun & Steinke 2016, Propositions 1.3 and 1.4 (zCDP),
    Mironov 2017, Proposition 10 (RDP, epsilon <= 1).
    """
    root = epsilon * math.sqrt(2 * steps * math.log(1 / DELTA))
    drift = epsilon * math.expm1(epsilon)
    exact = accountant("optimal")(Approximate(epsilon, 0.0) * steps).epsilon(DELTA)
    return {
        "advanced": root + steps * drift,
        "cdp": root + steps * drift / 2,
        "zcdp": root + steps * epsilon**2 / 2,
        "rdp": 4 * root if math.log(1 / DELTA) >= steps * epsilon**2 else None,
        "exact": float(exact),
        "advanced_loss": drift,
        "cdp_loss": drift / 2,
        "zcdp_loss": epsilon**2 / 2,
        "rdp_loss": 2 * epsilon**2,
        "exact_loss": epsilon * math.tanh(epsilon / 2),
        "variance": epsilon**2,
        "exact_variance": (epsilon / math.cosh(epsilon / 2)) ** 2,
    }


def _theory_tasks(size: str) -> list[Task]:
    return [Task(f"{__name__}:composed", {"epsilon": epsilon, "steps": steps}, 0.2) for epsilon, steps in _CELLS]


def _theory_rows(size: str, values: Sequence[Any]) -> list[Row]:
    return [
        row
        for (epsilon, steps), value in zip(_CELLS, values, strict=True)
        for row in unpublished_rows(KEY, "table-theory", f"epsilon {epsilon:g} a step, {steps} steps: ", value, _WORDS)
    ]


THEORY = Item("table-theory", "composition by the paper's theory table", _theory_tasks, _theory_rows)
