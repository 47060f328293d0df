"""Figure 1a: clipping the mean gradient of a batch instead of every record's gradient.

One record can move the clipped mean by 2 C, not by C / B: the noise lies on the mean itself, and even so the published
sigma is half of what the calibration needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import mean
from typing import Any

import numpy as np

from tacit.attacks import accuracy_loss
from tacit.noise import SeededStream
from tacit.papers.base import Item, Row
from tacit.papers.evaluating_dp.privacy import KEY, LABELS, PROTOCOL, cost
from tacit.papers.evaluating_dp.settings import CLASSES, EPSILONS, Folder, protocol, split
from tacit.standing import Standing
from tacit.sweeps import Task

_METHODS = ("naive", "advanced", "zcdp")


def batch_clipped(
    method: str, epsilon: float, *, records: int, batch_size: int, epochs: int, runs: int, data_dir: Folder = None
) -> dict[str, Any]:
    """Softmax regression on CIFAR-100 by Adam on clip(mean gradient of a batch, 1) + N(0, sigma^2 I), disjoint batches.

    Returns "test", the accuracy of every run, and for a private `method` (not "none") "sigma" and "exact": the exact
    epsilon when one record in a pass moves a step by 2.
    """
    parts = split("cifar100_pca50", records, data_dir)
    spent = {} if method == "none" else cost(method, epsilon, epochs, batch_size / records)
    tests = [_accuracy(parts, spent.get("sigma", 0.0), method != "none", batch_size, epochs, k) for k in range(runs)]
    exact = {"sigma": spent["sigma"], "exact": spent["replace_one"]} if spent else {}
    return {"test": tests} | exact


def _accuracy(parts: dict[str, Any], sigma: float, private: bool, batch_size: int, epochs: int, seed: int) -> float:
    import torch
    from torch.nn.functional import cross_entropy

    (x, y), (x_test, y_test) = ([torch.from_numpy(each) for each in parts[name]] for name in ("members", "others"))
    weights = torch.zeros(x.shape[1] + 1, CLASSES, requires_grad=True)
    x, x_test = (torch.nn.functional.pad(rows, (0, 1), value=1.0) for rows in (x, x_test))
    optimizer, stream = torch.optim.Adam([weights], lr=PROTOCOL["learning_rate"]), SeededStream(seed)
    order = np.random.default_rng(seed)
    for _ in range(epochs):
        for batch in torch.from_numpy(order.permutation(len(y))).split(batch_size):
            (gradient,) = torch.autograd.grad(cross_entropy(x[batch] @ weights, y[batch]), weights)
            if private:
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
        lost = accuracy_loss(private=mean(value["test"]), nonprivate=open_accuracy)
        rows += [
            make(f"{prefix}accuracy loss", None, lost),
            make(f"{prefix}epsilon as claimed", None, epsilon, standing=Standing.CLAIMED),
            make(f"{prefix}exact epsilon", None, value["exact"], standing=Standing.PROVEN),
        ]
    return rows


ITEM = Item("figure-1a", "CIFAR-100, logistic regression, clipping the batch instead of the record", _tasks, _rows)
