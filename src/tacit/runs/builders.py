"""The parts of a run that a configuration names: data, network, loss, optimizer, predictions."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from tacit import check, models
from tacit.data import Dataset, load, table
from tacit.gradients import examine
from tacit.models.named import module_at
from tacit.noise import SeededStream, Stream
from tacit.runs.config import Config, TableConfig
from tacit.runs.metrics import measure_of
from tacit.training.optimizers import AdamBC

_ROWS_AT_ONCE = 4096


def dataset_of(
    config: Config,
    data_dir: str | os.PathLike[str] | None,
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Dataset:
    """The data that `config` names, encoded by declared public knowledge."""
    on_progress("loading data", 0, 1)
    dataset = _dataset(config, data_dir)
    on_progress("loading data", 1, 1)
    return dataset


def _dataset(config: Config, data_dir: str | os.PathLike[str] | None) -> Dataset:
    if config.table is None:
        return load(config.dataset, data_dir=data_dir, strict=config.strict)
    given = {name: value for name, value in asdict(config.table).items() if value not in (None, (), {})}
    del given["path"]
    return table(table_path(config.table, data_dir), strict=config.strict, **given)


def table_path(section: TableConfig, data_dir: str | os.PathLike[str] | None) -> str:
    """Where the file of a [table] section lies: relative to `data_dir`, where one is given."""
    return section.path if data_dir is None else os.path.join(data_dir, section.path)


def network_of(config: Config, dataset: Dataset) -> nn.Module:
    """The network that `config` names for the shapes of `dataset`, its weights drawn from the public `init_seed`.

    Raises `UnsupportedModel` for one that cannot be trained privately.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.init_seed)
        model = module_at(config.model) if ":" in config.model else _NETWORKS[config.model](config, dataset)
    examine(model)
    return model


def _dense(config: Config, dataset: Dataset) -> nn.Module:
    shape = dataset.x_train.shape[1:]
    _features(config, dataset)
    body = models.mlp(int(np.prod(shape)), _outputs(dataset), hidden=config.hidden if config.model == "mlp" else ())
    return nn.Sequential(nn.Flatten(), body) if len(shape) > 1 else body


def _convnet(config: Config, dataset: Dataset) -> nn.Module:
    _features(config, dataset)
    shape = dataset.x_train.shape[1:]
    if len(shape) != 3:
        raise check.fail("model", "mlp or linear for a table", config.model)
    return models.convnet(shape, _outputs(dataset))


def _text(config: Config, dataset: Dataset) -> nn.Module:
    if dataset.task != "classification" or dataset.x_train.dtype != np.int64:
        raise check.fail("model", "one for features that are no numbers of words", config.model)
    words = int(np.max(dataset.bounds[1])) + 1
    return models.MeanOfWords(words, _outputs(dataset), count_padding=config.count_padding)


def _recommender(config: Config, dataset: Dataset) -> nn.Module:
    if dataset.task != "ratings":
        raise check.fail("model", "another for data that are no ratings of items by users", config.model)
    users, items = (int(highest) + 1 for highest in np.asarray(dataset.bounds[1]))
    return models.Recommender(users, items, _outputs(dataset))


_NETWORKS = {
    "linear": _dense,
    "mlp": _dense,
    "convnet": _convnet,
    "text": _text,
    "recommender": _recommender,
}


def _outputs(dataset: Dataset) -> int:
    return 1 if dataset.task == "regression" else len(dataset.classes)


def _features(config: Config, dataset: Dataset) -> None:
    if dataset.x_train.dtype == np.int64:
        raise check.fail("model", "text for numbers of words, recommender for users and items", config.model)


def optimizer_of(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """A fresh optimizer for `model`."""
    if config.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    if config.optimizer == "adam_bc":
        return AdamBC(model.parameters(), lr=config.learning_rate, floor=config.adam_floor)
    if config.optimizer == "adagrad":
        return torch.optim.Adagrad(model.parameters(), lr=config.learning_rate)
    return torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)


def scheduler_of(config: Config, optimizer: torch.optim.Optimizer, steps: int) -> LRScheduler | None:
    """How the learning rate goes on from step to step; None where it stays."""
    if config.learning_rate_schedule == "cosine":
        return CosineAnnealingLR(optimizer, T_max=steps)
    if config.learning_rate_schedule == "linear":
        return LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
    return None


def stream_of(config: Config) -> Stream | None:
    """The seeded stream that a configuration asks for; None for the secure one."""
    return None if config.unsafe_seed is None else SeededStream(config.unsafe_seed)


def loss_of(dataset: Dataset) -> Callable[[Tensor, Tensor], Tensor]:
    """One value per example, shape (batch,): cross-entropy, or squared error on a regression's unit scale."""
    if dataset.task != "regression":
        return cross_entropy
    low, high = dataset.target_range
    return lambda outputs, targets: (outputs.squeeze(-1) - (targets - low) / (high - low)) ** 2


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """-log softmax probability of the label, one value per example, shape (batch,)."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def tested(dataset: Dataset) -> Callable[[nn.Module], dict[str, float]]:
    """Measures `test` on the held-out rows; see `measure_of`."""
    measure = measure_of(dataset)
    return lambda model: {"test": measure(predictor(model, dataset)(dataset.x_test), dataset.y_test)}


def predictor(model: nn.Module, dataset: Dataset) -> Callable[[np.ndarray], np.ndarray]:
    """`model` in evaluation mode: inputs (n, ...) to class probabilities (n, classes), or to values of a regression."""

    def answer(inputs: np.ndarray) -> np.ndarray:
        training = model.training
        model.eval()
        with torch.no_grad():
            chunks = [
                model(torch.from_numpy(inputs[start : start + _ROWS_AT_ONCE])).double()
                for start in range(0, len(inputs), _ROWS_AT_ONCE)
            ]
        model.train(training)
        outputs = torch.cat(chunks)
        if dataset.task != "regression":
            return torch.softmax(outputs, dim=1).numpy()
        low, high = dataset.target_range
        return low + (high - low) * outputs.squeeze(-1).clamp(0, 1).numpy()

    return answer
