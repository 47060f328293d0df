"""DP-SGD on MNIST as in Table 1, watched by the Bayesian accountant from beginning to end.

What the Bayesian accountant says along the way.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.papers.base import Item, Row
from tacit.papers.improved_accounting.counterexamples import KEY
from tacit.papers.improved_accounting.table_1 import NUMBERS
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.sweeps.task import code_fingerprint

if TYPE_CHECKING:
    from torch import Tensor
from collections.abc import Mapping

from torch import Tensor, nn

from tacit.accounting import Ledger
from tacit.gradients.inputs import Loss
from tacit.mechanisms import Gaussian
from tacit.training import Plan
from tacit.variational import BayesianObserver

_ROW = NUMBERS["table_1"]["mnist"]
_RATE = _ROW["batch_size"] / _ROW["records"]
_DELTA, _CLIP_NORM, _LEARNING_RATE = 1e-5, 1.0, 0.05
# Pairs are looked at twenty times an epoch: a look costs five steps.
_PAIRS, _EVERY = 64, 47
_EPOCHS = {"quick": 1, "full": 100}


def marks(size: str) -> tuple[int, ...]:
    """Epochs after which Figures 1 and 2 show what was spent."""
    return (1,) if size == "quick" else (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


def watched(
    epochs: int, seed: int, marks: Sequence[int], *, data_dir: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Test accuracy of the run, and epsilon by both versions of the Bayesian accountant, pairs from the test set.

    `course` has what `Course` notes at `marks` by v1. The noise is seeded, so that the result can be had again. A run
    that is killed goes on from its last epoch.
    """
    import torch
    from torch import nn

    from tacit import models
    from tacit.accounting import Ledger, accountant
    from tacit.data import load
    from tacit.noise import SeededStream
    from tacit.papers.improved_accounting.mnist import Course
    from tacit.training import fit
    from tacit.variational import BayesianObserver

    data = load("mnist", data_dir=data_dir)
    x, y, x_test, y_test = map(torch.from_numpy, (data.x_train, data.y_train, data.x_test, data.y_test))
    torch.manual_seed(seed)
    model = models.convnet((1, 28, 28), len(data.classes))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def accuracy(model: nn.Module) -> dict[str, float]:
        return {"test": float((model(x_test).argmax(1) == y_test).double().mean())}

    held_out = {"loss": loss, "pairs": _PAIRS, "every": _EVERY, "seed": seed}
    course = Course(model, x_test, y_test, marks=marks, epsilon=_ROW["moments"], delta=_DELTA, **held_out)
    observers = {"v1": course, "v2": BayesianObserver(model, x_test, y_test, version="v2", **held_out)}
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
    ran = Ledger.of(found.ledger.mechanism)
    value = {name: float(each.trade_off(ran).epsilon(_DELTA)) for name, each in observers.items()}
    value |= {name: float(accountant(name)(ran).epsilon(_DELTA)) for name in ("moments", "generic", "pld")}
    checkpoint.unlink()
    return value | {"accuracy": found.history[-1]["test"], "course": course.seen}


def tasks(size: str) -> list[Task]:
    """The one run."""
    epochs = _EPOCHS[size]
    settings = {"epochs": epochs, "seed": 0, "marks": list(marks(size))}
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
        make(f"{prefix}epsilon, Bayesian", given["bayesian"], value["v1"], None, Standing.BAYESIAN),
        make(f"{prefix}epsilon, Bayesian with Hoelder (2020)", None, value["v2"], None, Standing.BAYESIAN),
        make(f"{prefix}epsilon, exact", None, value["pld"], None, Standing.PROVEN),
    ]


ITEMS = (Item("table-1-mnist", "MNIST with DP-SGD: trained and watched by the Bayesian accountant", tasks, _rows),)


class Course(BayesianObserver):
    """Notes epsilon at `delta`, and delta at `epsilon`, at the first look at or after each of `marks` (epochs).

    `seen` has a dictionary for each, with the epoch of that look.
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
        self.seen: list[dict[str, float]] = []
        self._marks, self._epsilon, self._delta = marks, epsilon, delta
        self._rate = self._noise = 1.0

    def on_plan(self, plan: Plan) -> None:
        super().on_plan(plan)
        self._rate, self._noise = plan.sample_rate, plan.noise_at(0)

    def on_step(self, taken: int, planned: int) -> None:
        super().on_step(taken, planned)
        epoch = taken * self._rate
        if self.waiting_steps or len(self.seen) == len(self._marks) or epoch < self._marks[len(self.seen)] - 1e-9:
            return
        judged = self.trade_off(Ledger.of(Gaussian(self._noise).poisson(self._rate) * taken))
        found = {"epsilon": float(judged.epsilon(self._delta)), "delta": float(judged.delta(self._epsilon))}
        self.seen.append({"epoch": epoch} | found)

    def state(self) -> dict[str, Any]:
        return super().state() | {"seen": list(self.seen)}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.seen = list(state["seen"])
