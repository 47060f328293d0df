"""The parts of a run that a configuration names: data, network, optimizer, attack target."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor, nn

from tacit import check, models
from tacit.data import Dataset, load, table
from tacit.runs.config import Config

_ROWS_AT_ONCE = 4096


def dataset_of(config: Config, data_dir: str | os.PathLike[str] | None) -> Dataset:
    """The data that `config` names, encoded by declared public knowledge."""
    if config.table is None:
        return load(config.dataset, data_dir=data_dir, strict=config.strict)
    given = {name: value for name, value in asdict(config.table).items() if value not in (None, (), {})}
    path = given.pop("path")
    if data_dir is not None and not os.path.isabs(path):
        path = os.path.join(data_dir, path)
    return table(path, strict=config.strict, **given)


def network_of(config: Config, dataset: Dataset) -> nn.Module:
    """The network that `config` names for the shapes of `dataset`, its weights drawn from the public `init_seed`."""
    shape, classes = dataset.x_train.shape[1:], len(dataset.classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.init_seed)
        if config.model == "convnet":
            if len(shape) != 3:
                raise check.fail("model", "mlp or linear for a table", config.model)
            return models.convnet(shape, classes)
        hidden = config.hidden if config.model == "mlp" else ()
        body = models.mlp(int(np.prod(shape)), classes, hidden=hidden)
        return nn.Sequential(nn.Flatten(), body) if len(shape) > 1 else body


def optimizer_of(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """A fresh optimizer for `model`."""
    if config.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    return torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """-log softmax probability of the label, one value per example, shape (batch,)."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def accuracy_on(dataset: Dataset) -> Callable[[nn.Module], dict[str, float]]:
    """Measures `test`, the fraction of held-out rows whose label is predicted."""

    def evaluate(model: nn.Module) -> dict[str, float]:
        guessed = probabilities(model)(dataset.x_test).argmax(axis=1)
        return {"test": float(np.mean(guessed == dataset.y_test))}

    return evaluate


def probabilities(model: nn.Module) -> Callable[[np.ndarray], np.ndarray]:
    """`model` as attacks see it: inputs (n, ...) to class probabilities (n, classes), in evaluation mode."""

    def answer(inputs: np.ndarray) -> np.ndarray:
        training = model.training
        model.eval()
        with torch.no_grad():
            chunks = [
                torch.softmax(model(torch.from_numpy(inputs[start : start + _ROWS_AT_ONCE])).double(), dim=1)
                for start in range(0, len(inputs), _ROWS_AT_ONCE)
            ]
        model.train(training)
        return torch.cat(chunks).numpy()

    return answer
