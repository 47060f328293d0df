"""DP-SGD on MNIST as in Table 1, observed by the Bayesian accountant from beginning to end.

Figures 1 to 3: what the accountants say of that run, by epoch and by the order of the moment.
"""

import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit import models
from tacit.accounting import Ledger, accountant
from tacit.data import load
from tacit.gradients.inputs import Loss
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.sweeps.task import code_fingerprint
from tacit.training import Plan, fit
from tacit_papers.base import Item, Row
from tacit_papers.drawing import lines_svg
from tacit_papers.improved_accounting.bayesian_observer import BayesianObserver
from tacit_papers.improved_accounting.counterexamples import KEY
from tacit_papers.improved_accounting.table_1 import NUMBERS

_ROW = NUMBERS["table_1"]["mnist"]
_RATE = _ROW["batch_size"] / _ROW["records"]
_DELTA, _CLIP_NORM, _LEARNING_RATE = 1e-5, 1.0, 0.05
# Twenty observations an epoch: one costs five steps.
_PAIRS, _EVERY = 64, 47
_EPOCHS = {"quick": 1, "full": 100}


class SpendingObserver(BayesianObserver):
    """Record epsilon at `delta`, and delta at `epsilon`, at the first observation at or after each of `marks` (epochs).

    Attributes:
        spent: a dictionary for each, with the epoch of that observation.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        *,
        marks: Sequence[float],
        epsilon: float,
        delta: float,
        loss: Loss,
        pairs: int,
        every: int,
        seed: int,
    ):
        super().__init__(model, inputs, targets, loss=loss, pairs=pairs, every=every, seed=seed)
        self.spent: list[dict[str, float]] = []
        self._marks, self._epsilon, self._delta = marks, epsilon, delta
        self._rate = self._noise = 1.0

    def on_plan(self, plan: Plan) -> None:
        """Keep the sampling rate and the noise multiplier."""
        super().on_plan(plan)
        self._rate, self._noise = plan.sample_rate, plan.noise_at(0)

    def on_step(self, taken: int, planned: int) -> None:
        """Record what is spent if this step is observed and the next mark is reached."""
        super().on_step(taken, planned)
        epoch = taken * self._rate
        if self.waiting_steps or len(self.spent) == len(self._marks) or epoch < self._marks[len(self.spent)] - 1e-9:
            return
        curve = self.trade_off(Ledger.of(Gaussian(self._noise).poisson(self._rate) * taken))
        found = {"epsilon": float(curve.epsilon(self._delta)), "delta": float(curve.delta(self._epsilon))}
        self.spent.append({"epoch": epoch} | found)

    def state(self) -> dict[str, Any]:
        """The state of the observer and the records so far, for a checkpoint."""
        return super().state() | {"spent": list(self.spent)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's `state`."""
        super().restore(state)
        self.spent = list(state["spent"])


def reported_epochs(size: str) -> tuple[int, ...]:
    """Epochs after which Figures 1 and 2 show the Bayesian epsilon and delta."""
    return (1,) if size == "quick" else (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


def watched(
    epochs: int, seed: int, marks: Sequence[int], *, data_dir: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Test accuracy of the run, and epsilon by both versions of the Bayesian accountant, pairs from the test set.

    `course` has what `SpendingObserver` records at `marks` by v1. The noise is seeded, so that the result can be had
    again. A run that is killed goes on from its last epoch.

    Args:
        epochs: passes over the records.
        seed: of the weights, the batches and the noise.
        marks: numbers of steps after which epsilon is recorded.
        data_dir: folder of the data files.
    """
    data = load("mnist", data_dir=data_dir)
    x, y, x_test, y_test = map(torch.from_numpy, (data.x_train, data.y_train, data.x_test, data.y_test))
    torch.manual_seed(seed)
    model = models.convnet((1, 28, 28), len(data.classes))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def accuracy(model: nn.Module) -> dict[str, float]:
        return {"test": float((model(x_test).argmax(1) == y_test).double().mean())}

    held_out = {"loss": loss, "pairs": _PAIRS, "every": _EVERY, "seed": seed}
    spending = SpendingObserver(model, x_test, y_test, marks=marks, epsilon=_ROW["moments"], delta=_DELTA, **held_out)
    observers = {"v1": spending, "v2": BayesianObserver(model, x_test, y_test, version="v2", **held_out)}
    checkpoint = Path(tempfile.gettempdir()) / f"tacit-mnist-{code_fingerprint()[:16]}-{epochs}-{seed}.safetensors"
    found = fit(
        model,
        x,
        y,
        loss=loss,
        optimizer=torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE),
        clip_norm=_CLIP_NORM,
        noise_multiplier=_ROW["sigma"],
        sample_rate=_RATE,
        steps=round(epochs / _RATE),
        callbacks=list(observers.values()),
        stream=SeededStream(seed),
        evaluate=accuracy,
        checkpoint=checkpoint,
        resume=True,
    )
    ran = found.ledger
    value = {name: float(each.trade_off(ran).epsilon(_DELTA)) for name, each in observers.items()}
    value |= {name: float(accountant(name)(ran).epsilon(_DELTA)) for name in ("moments", "generic", "pld")}
    checkpoint.unlink()
    return value | {"accuracy": found.history[-1]["test"], "course": spending.spent}


def tasks(size: str) -> list[Task]:
    """The one run."""
    epochs = _EPOCHS[size]
    settings = {"epochs": epochs, "seed": 0, "marks": list(reported_epochs(size))}
    return [Task(f"{__name__}:watched", settings, 14.0 * epochs, reads_data=True)]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Only the full size is the published run; of what was measured there the published value is shown beside."""
    (value,), make = values, partial(Row, KEY, "table-1-mnist")
    full = size == "full"
    given = {name: _ROW[name] if full else None for name in ("moments", "generic", "bayesian")}
    tolerance = _ROW["tolerance"] if full else None
    prefix = f"{_EPOCHS[size]} epochs: "
    return [
        make(f"{prefix}test accuracy", None, value["accuracy"]),
        make(f"{prefix}epsilon, moments", given["moments"], value["moments"], tolerance, Standing.PROVEN),
        make(f"{prefix}epsilon, generic", given["generic"], value["generic"], tolerance, Standing.CLAIMED),
        make(f"{prefix}epsilon, Bayesian", given["bayesian"], value["v1"], tolerance, Standing.BAYESIAN),
        make(f"{prefix}epsilon, Bayesian with Hoelder (2020)", None, value["v2"], None, Standing.BAYESIAN),
        make(f"{prefix}epsilon, exact", None, value["pld"], None, Standing.PROVEN),
    ]


ITEMS = (Item("table-1-mnist", "MNIST with DP-SGD: trained and observed by the Bayesian accountant", tasks, _rows),)


_SIGMA = _ROW["sigma"]
_STANDINGS = {"moments": Standing.PROVEN, "generic": Standing.CLAIMED, "pld": Standing.PROVEN}
_WORDS = {"moments": "moments accountant", "generic": "generic accountant", "pld": "exact"}
_AT_PUBLISHED = f"delta at epsilon {_ROW['generic']:g}"
_BAYESIAN = "Bayesian accountant"
# A smaller delta is not drawn: it would leave the others no room.
_LEAST = 1e-40
_ORDERS = (1.0, 2.0, 4.0, 8.0, 14.7, 32.0)


def spent(epoch: float) -> dict[str, dict[str, float]]:
    """Epsilon at delta 1e-5, and delta at the moments accountant's epsilon of the whole run, after `epoch` epochs."""
    ran = Ledger.of(Gaussian(_SIGMA).poisson(_RATE) * round(epoch / _RATE))
    curves = {name: accountant(name)(ran) for name in _WORDS}
    return {
        "epsilon": {name: float(found.epsilon(1e-5)) for name, found in curves.items()},
        "delta": {name: float(found.delta(_ROW["moments"])) for name, found in curves.items()},
    }


def by_order(epoch: float, order: float) -> float:
    """Epsilon of the generic accountant at one order: q^2 T (order + 1) / (2 sigma^2) + log(1 / delta) / order."""
    steps = round(epoch / _RATE)
    return _RATE**2 * steps * (order + 1) / (2 * _SIGMA**2) + math.log(1e5) / order


def _epochs(size: str) -> tuple[int, ...]:
    return (1, 10, 100) if size == "quick" else reported_epochs(size)


def _figure_tasks(size: str) -> list[Task]:
    return [*(Task(f"{__name__}:spent", {"epoch": epoch}, 0.5) for epoch in _epochs(size)), *tasks(size)]


def _figure_rows(item: str, quantity: str, size: str, values: Sequence[Any]) -> list[Row]:
    where = "" if quantity == "epsilon" else f" at epsilon {_ROW['moments']:g}"
    make, (*accounted, run) = partial(Row, KEY, item), values
    rows = [
        make(f"{epoch} epochs: {quantity}{where}, {words}", None, value[quantity][name], None, _STANDINGS[name])
        for epoch, value in zip(_epochs(size), accounted, strict=True)
        for name, words in _WORDS.items()
        if value is not None
    ]
    return rows + [
        make(f"{epoch} epochs: {quantity}{where}, {_BAYESIAN}", None, found[quantity], None, Standing.BAYESIAN)
        for epoch, found in zip(reported_epochs(size), run["course"] if run else (), strict=False)
    ]


def _drawing(item: str, quantity: str, size: str, values: Sequence[Any]) -> Mapping[str, str]:
    *accounted, run = values
    done = [(epoch, value) for epoch, value in zip(_epochs(size), accounted, strict=True) if value is not None]
    lines = {
        words: [(epoch, value[quantity][name]) for epoch, value in done if value[quantity][name] > _LEAST]
        for name, words in _WORDS.items()
    }
    if run:
        lines[_BAYESIAN] = [(found["epoch"], found[quantity]) for found in run["course"]]
    points = {label: ([x for x, _ in line], [y for _, y in line]) for label, line in lines.items() if line}
    return {item: lines_svg(points, across="epoch", up=quantity, log_up=quantity == "delta")}


def _order_epochs(size: str) -> tuple[int, ...]:
    return (1, 10, 100) if size == "quick" else (1, 10, 30, 60, 100)


def _order_tasks(size: str) -> list[Task]:
    return [
        Task(f"{__name__}:by_order", {"epoch": epoch, "order": order}, 0.01)
        for epoch in _order_epochs(size)
        for order in _ORDERS
    ]


def _order_rows(size: str, values: Sequence[Any]) -> list[Row]:
    return [
        Row(
            KEY,
            "figure-3",
            f"{task.settings['epoch']} epochs, lambda {task.settings['order']:g}: epsilon, generic accountant",
            None,
            value,
            None,
            Standing.CLAIMED,
        )
        for task, value in zip(_order_tasks(size), values, strict=True)
    ]


def _order_drawing(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """Epsilon at delta 1e-5, and delta at the published epsilon: the bound of an order holds for every pair."""
    width, drawn = len(_ORDERS), {}
    epochs = enumerate(_order_epochs(size))
    lines = {f"epoch {epoch}": values[width * k : width * (k + 1)] for k, epoch in epochs}
    for name, up, of in (("epsilon", "epsilon", lambda epsilon, order: epsilon), ("delta", _AT_PUBLISHED, _delta)):
        points = {label: (_ORDERS, list(map(of, found, _ORDERS))) for label, found in lines.items()}
        drawn[f"figure-3-{name}"] = lines_svg(points, across="lambda", up=up, log_across=True, log_up=True)
    return drawn


def _delta(epsilon: float, order: float) -> float:
    """Delta at the published epsilon by the order whose epsilon at delta 1e-5 is known: log delta is linear in both."""
    return min(1.0, 1e-5 * math.exp(min(order * (epsilon - _ROW["generic"]), 700.0)))


FIGURES = (
    *(
        Item(
            item,
            title,
            _figure_tasks,
            partial(_figure_rows, item, quantity),
            partial(_drawing, item, quantity),
            partial=True,
        )
        for item, quantity, title in (
            ("figure-1", "epsilon", "MNIST: epsilon by epoch"),
            ("figure-2", "delta", "MNIST: delta by epoch at a fixed epsilon"),
        )
    ),
    Item(
        "figure-3",
        "MNIST: epsilon and delta of the generic accountant by lambda",
        _order_tasks,
        _order_rows,
        _order_drawing,
    ),
)
