"""Figure 1a: clipping the mean gradient of a batch instead of every record's gradient.

One record can move the clipped mean by 2 C, not by C / B: the noise lies on the mean itself, and even so the published
sigma is half of what the calibration needs.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import mean
from typing import Any

import numpy as np

from tacit.accounting import accountant
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.evaluating_dp.privacy import (
    CLASSES,
    DELTA,
    EPSILONS,
    KEY,
    LABELS,
    POISSON,
    PROTOCOL,
    Folder,
    cost,
    protocol,
    ran,
    split,
)

_Batches = Callable[[int, int, np.random.Generator], Iterator[np.ndarray]]
_METHODS = ("naive", "advanced", "zcdp", "rdp")


def batch_clipped(
    method: str, epsilon: float, *, records: int, batch_size: int, epochs: int, runs: int, data_dir: Folder = None
) -> dict[str, Any]:
    """Softmax regression on CIFAR-100 by Adam on clip(mean gradient of a batch, 1) + N(0, sigma^2 I).

    Batches are disjoint, for RDP drawn by Poisson sampling. Returns "test", the accuracy of every run, and for a
    private `method` (not "none") "sigma" and "exact": the exact epsilon when one record moves its steps by 2.

    Args:
        method: accountant of the noise, or "none" for no privacy.
        epsilon: target, at delta 1e-5.
        records: of the training set.
        batch_size: records in a batch.
        epochs: passes over the records.
        runs: repetitions with different seeds.
        data_dir: folder of the data files.
    """
    parts = split("cifar100_pca50", records, data_dir)
    spent = {} if method == "none" else cost(method, epsilon, epochs, batch_size / records)
    draw = _poisson if method in POISSON else _disjoint
    tests = [_accuracy(parts, spent.get("sigma"), draw, batch_size, epochs, seed) for seed in range(runs)]
    return {"test": tests} | (_exact(method, spent, epochs, batch_size / records) if spent else {})


def _exact(method: str, spent: dict[str, float], epochs: int, rate: float) -> dict[str, float]:
    """Add/remove over Poisson batches, replace-one over disjoint ones: in both a record moves a mean by at most 2."""
    exact = spent["replace_one"]
    if method in POISSON:
        exact = float(accountant("pld")(ran(method, spent["sigma"] / 2, epochs, rate)).epsilon(DELTA))
    return {"sigma": spent["sigma"], "exact": exact}


def _disjoint(records: int, batch_size: int, order: np.random.Generator) -> Iterator[np.ndarray]:
    yield from np.array_split(order.permutation(records), range(batch_size, records, batch_size))


def _poisson(records: int, batch_size: int, order: np.random.Generator) -> Iterator[np.ndarray]:
    for _ in range(round(records / batch_size)):
        yield np.flatnonzero(order.random(records) < batch_size / records)


def _accuracy(
    parts: dict[str, Any], sigma: float | None, draw: _Batches, batch_size: int, epochs: int, seed: int
) -> float:
    import torch
    from torch.nn.functional import cross_entropy

    (x, y), (x_test, y_test) = ([torch.from_numpy(each) for each in parts[name]] for name in ("members", "others"))
    weights = torch.zeros(x.shape[1] + 1, CLASSES, requires_grad=True)
    x, x_test = (torch.nn.functional.pad(rows, (0, 1), value=1.0) for rows in (x, x_test))
    optimizer, stream = torch.optim.Adam([weights], lr=PROTOCOL["learning_rate"]), SeededStream(seed)
    order = np.random.default_rng(seed)
    for _ in range(epochs):
        for rows in draw(len(y), batch_size, order):
            batch = torch.from_numpy(rows)
            (gradient,) = torch.autograd.grad(cross_entropy(x[batch] @ weights, y[batch]), weights)
            if sigma is not None:
                noise = torch.empty(gradient.numel())
                stream.fill_normal(noise.numpy())
                gradient = gradient / max(1.0, float(gradient.norm())) + sigma * noise.view_as(gradient)
            weights.grad = gradient
            optimizer.step()
    return float(((x_test @ weights).argmax(1) == y_test).float().mean())


def _cells(size: str) -> list[tuple[str, float]]:
    return [("none", 0.0), *((method, epsilon) for method in _METHODS for epsilon in EPSILONS[size])]


def _tasks(size: str) -> list[Task]:
    sizes = {name: value for name, value in protocol(size).items() if name != "shadows"}
    seconds = 0.5 if size == "quick" else 10.0 * sizes["runs"]
    return [
        Task(f"{__name__}:batch_clipped", {"method": m, "epsilon": e} | sizes, seconds, reads_data=True)
        for m, e in _cells(size)
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    """The paper: no model learns at any epsilon."""
    make, rows = partial(Row, KEY, "figure-1a"), []
    open_accuracy = mean(values[0]["test"])
    for (method, epsilon), value in zip(_cells(size), values, strict=True):
        if method == "none":
            rows.append(make("without privacy: test accuracy", None, open_accuracy))
            continue
        prefix = f"batch clipping, {LABELS[method]}, epsilon {epsilon:g}: "
        lost = 1 - mean(value["test"]) / open_accuracy
        rows += [
            make(f"{prefix}accuracy loss", None, lost),
            make(f"{prefix}epsilon as claimed", None, epsilon, standing=Standing.CLAIMED),
            make(f"{prefix}exact epsilon", None, value["exact"], standing=Standing.PROVEN),
        ]
    return rows


ITEM = Item("figure-1a", "CIFAR-100, logistic regression, clipping the batch instead of the record", _tasks, _rows)
