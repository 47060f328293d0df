"""Stacked shadow models against the same models trained one by one: time of one step of one model.

All ways of a network run in turn in each round of one process, and a ratio is the median over rounds of the ratio
within a round. On one thread it is of processor time. On two it is of time on the clock, to one by one with torch's own
two threads, and to half of the time of one thread, which two processes would take at best: a busy machine delays the
threads of torch, which wait for each other, but not that half. The floor is the matrix products and convolutions of the
stacked step alone, as bare calls. Data are random numbers of the shapes of the papers' data.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tacit.attacks import Recipe, train_stacked
from tacit.attacks.group_training import DTYPES
from tacit.models import convnet, mlp

ROUNDS, SEED = 3, 0
Spent = tuple[float, float]


@dataclass(frozen=True)
class Network:
    """A network of the papers.

    Attributes:
        shape: of an input.
        classes: number of logits.
        hidden: widths, of a fully connected network; None for the convolutional network of MNIST.
        batch: records in a batch.
        models: how many are trained at a time.
        steps: of one measurement.
    """

    shape: tuple[int, ...]
    classes: int
    hidden: tuple[int, ...] | None
    batch: int
    models: int
    steps: int

    def make(self, seed: int) -> nn.Module:
        """A new one."""
        torch.manual_seed(seed)
        return convnet(classes=self.classes) if self.hidden is None else mlp(50, self.classes, hidden=self.hidden)


NETWORKS = {
    "logistic": Network((50,), 100, (), 200, 64, 30),
    "mlp": Network((50,), 100, (256, 256), 200, 16, 20),
    "mnist": Network((1, 28, 28), 10, None, 256, 8, 8),
}


def shadows(data_dir: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every network on one and on two threads."""
    for name, network in NETWORKS.items():
        for threads in (1, 2):
            torch.set_num_threads(threads)
            yield f"{name}, {threads} threads", measured(network, threads)
    torch.set_num_threads(1)


def measured(network: Network, threads: int) -> dict[str, Any]:
    """Milliseconds of every way and its ratio to one by one."""
    draw = np.random.default_rng(SEED)
    records = 2000 if network.hidden is None else 10000
    data = draw.random((records, *network.shape)).astype(np.float32), draw.integers(0, network.classes, records)
    ways: dict[str, Callable[[], Spent]] = {"one by one": lambda: one_by_one(network, data, threads)}
    if threads > 1:
        ways["two processes at best"] = lambda: halved(one_by_one(network, data, 1))
    if network.hidden is None:
        ways["one by one, channels last"] = lambda: one_by_one(network, data, threads, torch.channels_last)
    for precision in ("float32", "bfloat16"):
        ways[f"stacked {precision}"] = lambda precision=precision: stacked(network, data, precision)
        ways[f"floor {precision}"] = lambda precision=precision: floor(network, precision, threads)
    rounds: list[dict[str, Spent]] = [{name: way() for name, way in ways.items()} for _ in range(ROUNDS + 1)][1:]
    clock, found = 0 if threads > 1 else 1, {"threads": threads, "rounds": ROUNDS, "torch": torch.__version__}
    for name in ways:
        spent = [each[name][clock] for each in rounds]
        figures = {"ms": round(statistics.median(spent) * 1e3, 4)}
        for rival, ratio in (("one by one", "ratio"), ("two processes at best", "to_two_processes")):
            if rival in ways:
                ratios = [each[rival][clock] / own for each, own in zip(rounds, spent, strict=True)]
                figures[ratio] = round(statistics.median(ratios), 2)
        found[name] = figures
    return found


def halved(spent: Spent) -> Spent:
    """Half of both times."""
    return spent[0] / 2, spent[1] / 2


def timed(run: Callable[[], Any], count: int) -> Spent:
    """Seconds of the clock and of the processor, over `count`."""
    start = time.perf_counter(), time.process_time()
    run()
    return (time.perf_counter() - start[0]) / count, (time.process_time() - start[1]) / count


def one_by_one(
    network: Network,
    data: tuple[np.ndarray, np.ndarray],
    threads: int,
    layout: torch.memory_format = torch.contiguous_format,
) -> Spent:
    """One step of an ordinary module and Adam."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    x, y = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    model, x = network.make(SEED), x.contiguous(memory_format=layout)
    model.to(memory_format=layout)  # pyright: ignore[reportCallIssue]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def steps() -> None:
        for _ in range(network.steps):
            index = torch.randint(0, len(y), (network.batch,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()

    spent = timed(steps, network.steps)
    torch.set_num_threads(before)
    return spent


def stacked(network: Network, data: tuple[np.ndarray, np.ndarray], precision: str) -> Spent:
    """One step of one model of a group, by the whole call that trains the group."""
    records = len(data[1])
    recipe = Recipe(
        hidden=network.hidden or (),
        batch_size=network.batch,
        epochs=network.steps * network.batch / records,
        precision=precision,
    )
    make = network.make if network.hidden is None else None

    def train() -> None:
        included = np.ones((network.models, records), bool)
        train_stacked(
            data, included, recipe=recipe, classes=network.classes, network=make, group=network.models, seed=SEED
        )

    return timed(train, network.steps * network.models)


def floor(network: Network, precision: str, threads: int) -> Spent:
    """The products of one step of one model, the models shared evenly among the threads."""
    calls = products(network, network.models // threads, DTYPES[precision])

    def steps() -> None:
        torch.set_num_threads(1)
        with torch.no_grad():
            for _ in range(network.steps):
                for call in calls:
                    call()

    if threads == 1:
        return timed(steps, network.steps * network.models)
    with ThreadPoolExecutor(threads) as pool:
        spent = timed(lambda: [each.result() for each in [pool.submit(steps) for _ in range(threads)]], network.steps)
    torch.set_num_threads(threads)
    return spent[0] / network.models, spent[1] / network.models


def products(network: Network, models: int, dtype: torch.dtype) -> list[Callable[[], Any]]:
    """Bare calls of the matrix products of dense layers, all models at once, and the convolutions of each model."""
    calls: list[Callable[[], Any]] = []
    widths = [*network.shape, *network.hidden, network.classes] if network.hidden is not None else [512, 32, 10]
    for layer, (a, b) in enumerate(pairwise(widths)):
        h, weight = torch.randn(models, network.batch, a, dtype=dtype), torch.randn(models, a, b, dtype=dtype)
        delta = torch.randn(models, network.batch, b, dtype=dtype)
        calls += [lambda h=h, weight=weight: torch.bmm(h, weight), lambda h=h, delta=delta: torch.bmm(h.mT, delta)]
        if layer or network.hidden is None:
            calls.append(lambda delta=delta, weight=weight: torch.bmm(delta, weight.mT))
    if network.hidden is None:
        for shape, kernel in (((1, 34, 34), (16, 1, 8, 8)), ((16, 13, 13), (32, 16, 4, 4))):
            calls += convolutions(shape, kernel, network.batch, dtype) * models
    return calls


def convolutions(
    shape: tuple[int, ...], kernel: tuple[int, ...], batch: int, dtype: torch.dtype
) -> list[Callable[[], Any]]:
    """A convolution of stride 2, its weight gradient, and its input gradient unless it is the first, channels last."""
    last = torch.channels_last
    x, weight = (torch.randn(size).to(dtype).to(memory_format=last) for size in ((batch, *shape), kernel))
    delta = F.conv2d(x, weight, stride=2)

    def backward() -> Any:
        wanted = [shape[0] > 1, True, False]
        setting = ([2, 2], [0, 0], [1, 1], False, [0, 0], 1)
        return torch.ops.aten.convolution_backward(delta, x, weight, None, *setting, wanted)

    return [lambda: F.conv2d(x, weight, stride=2), backward]
