"""Figure 3: the paper's methods with a network, accuracy and optimality gap.

The network is not convex, so that the theorems of Kifer et al. and Zhang et al. do not hold for it, whatever noise
their formulas give: both are `claimed`. Noisy gradient descent (Wang et al.) needs no convexity once gradients are
clipped.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import check
from tacit.erm import DPMLPClassifier
from tacit.erm.base import default_delta
from tacit.erm.release import Release
from tacit.errors import LeakWarning
from tacit.mechanisms import Approximate, Gaussian
from tacit.noise import SeededStream, gaussian
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import Panel, panels_svg
from tacit_papers.input_perturbation.counter_examples import KEY, claim_in, claimed_release, published_std
from tacit_papers.input_perturbation.objective_methods import approximate, kifer_variance
from tacit_papers.input_perturbation.tables import LARGE, TITLES, declared, load_table, public_norm, resplit

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME = "figure-3"
METHODS = {
    "kifer": ("Kifer, objective perturbation", "claimed"),
    "zhang": ("Zhang, output perturbation", "claimed"),
    "sgd": ("Bassily, noisy SGD", "proven"),
    "wang": ("Wang, gradient perturbation", "conditional"),
    "paper": ("input perturbation", "claimed"),
}
"""In the order of the paper's legend: what a method is called, and the standing of its guarantee with a network.

The clipping of "wang" is compared with autograd by a test but not checked in the run; that of "sgd" is.
"""
DATA = {"quick": ("iris_setosa",), "full": LARGE}
_EPSILONS = {"quick": (0.1, 10.0), "full": (0.01, 0.05, 0.1, 0.25, 10.0)}
_HIGHEST = 0.25
# Full-batch steps with momentum, as `DPMLPClassifier` takes for the published method; Zhang's theorem has none.
_STEPS, _MOMENTUM, _PLAIN_STEPS = 50, 0.9, 100
_RATE = 1.0
# A gradient bound of 1 and smoothness of 1/4 are those of logistic regression: no constant of a network is known.
_BOUND, _SMOOTHNESS = 1.0, 0.25
_REGULARIZATION = 0.01
_CLIP = 0.5
PLAIN = {"linear": False, "features": None}
"""Settings by which `DPMLPClassifier` is the paper's network on the rows as they are."""

Line = Mapping[str, Any]
Change = Callable[[Sequence["Tensor"], Sequence["Tensor"]], Sequence["Tensor"]]


def networks(
    dataset: str, seed: int, epsilons: Sequence[float], *, data_dir: str | os.PathLike[str] | None = None
) -> list[dict[str, Any]]:
    """Every method of `METHODS` on the split of one seed, and the network without privacy, as plain rows.

    A row has "method", "epsilon" (None without privacy), "accuracy" on the test rows and "gap": the mean loss on the
    training rows less the least that any of these fits reaches, since the minimum of a network's loss is not known.

    Args:
        dataset: its name.
        seed: of the split and the noise; the initial weights are the same in all runs.
        epsilons: targets, each > 0, under replace-one, delta = min(1e-5, n^-1.1).
        data_dir: folder of the data files.
    """
    data = resplit(load_table(dataset, data_dir), seed=seed)
    descended = _Table(data).descend(_PLAIN_STEPS, momentum=0.0)
    fits: dict[tuple[str, float | None], tuple[float, float]] = {("none", None): best_mlp(data)}
    for epsilon in epsilons:
        fits |= {(method, epsilon): _fitted(data, descended, method, epsilon, seed) for method in METHODS}
    least = min(loss for _, loss in fits.values())
    return [
        {"method": method, "epsilon": epsilon, "accuracy": accuracy, "gap": loss - least}
        for (method, epsilon), (accuracy, loss) in fits.items()
    ]


class _Table:
    """Training and test rows of a split as tensors, in the unit ball."""

    def __init__(self, data: Any):
        import torch

        norm = public_norm(data)
        rows = (torch.from_numpy(np.asarray(part, dtype=np.float32) / norm) for part in (data.x_train, data.x_test))
        self.x, self.x_test = rows
        self.y, self.y_test = torch.from_numpy(data.y_train), torch.from_numpy(data.y_test)

    def network(self) -> nn.Module:
        """The network of the paper, one hidden layer as wide as the rows, with the initial weights of seed 0."""
        import torch

        from tacit.models import mlp

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return mlp(self.x.shape[1], int(self.y.max()) + 1, hidden=(self.x.shape[1],))

    def descend(
        self, steps: int, *, momentum: float, clip: float | None = None, change: Change = lambda found, _: found
    ) -> nn.Module:
        """The network after full-batch steps on `change(gradients of the sum, weights)`."""
        import torch

        network = self.network()
        weights = list(network.parameters())
        velocity = [torch.zeros_like(weight) for weight in weights]
        with torch.no_grad():
            for _ in range(steps):
                gradients = change(clipped_gradients(weights, self.x, self.y, clip), weights)
                for weight, moved, gradient in zip(weights, velocity, gradients, strict=True):
                    moved.mul_(momentum).add_(gradient, alpha=1 / len(self.y))
                    weight.sub_(moved, alpha=_RATE)
        return network

    def result(self, network: nn.Module) -> tuple[float, float]:
        """Test accuracy and mean training loss."""
        import torch
        from torch.nn.functional import cross_entropy

        with torch.no_grad():
            right = network(self.x_test).argmax(dim=1) == self.y_test
            return float(right.float().mean()), float(cross_entropy(network(self.x), self.y))


def clipped_gradients(weights: Sequence[Tensor], x: Tensor, y: Tensor, clip: float | None) -> list[Tensor]:
    """Sum over the records of the gradients of the cross-entropy, each scaled down to norm <= `clip`.

    A record's gradient in a layer is the outer product of the layer's input (with a 1 for the bias) and the gradient
    of its output, so that its norm is the product of theirs.

    Args:
        weights: of a network with one hidden ReLU layer: weight and bias of the first layer, then of the second.
        x: (n, columns).
        y: (n,), classes.
        clip: > 0, or None for no clipping.
    """
    import torch

    first, first_bias, second, second_bias = weights
    hidden = torch.relu(torch.addmm(first_bias, x, first.T))
    above = torch.softmax(torch.addmm(second_bias, hidden, second.T), dim=1)
    above[torch.arange(len(y)), y] -= 1.0
    below = (above @ second) * (hidden > 0)
    if clip is not None:
        squares = above.square().sum(1) * (hidden.square().sum(1) + 1)
        squares += below.square().sum(1) * (x.square().sum(1) + 1)
        factors = clip / squares.sqrt().clamp(min=clip)
        above, below = above * factors[:, None], below * factors[:, None]
    return [below.T @ x, below.sum(0), above.T @ hidden, above.sum(0)]


def _fitted(data: Any, descended: nn.Module, method: str, epsilon: float, seed: int) -> tuple[float, float]:
    """Test accuracy and mean training loss of one method; `descended` is gradient descent without noise."""
    if method in ("sgd", "paper"):
        return _estimated(data, method, epsilon, seed)
    table, stream = _Table(data), SeededStream(seed)
    delta = default_delta(len(data.y_train))
    train = {"kifer": _kifer, "wang": _wang}
    if method in train:
        return table.result(train[method](table, epsilon, delta, stream))
    return table.result(_zhang(table, descended, epsilon, delta, stream))


def _estimated(data: Any, method: str, epsilon: float, seed: int) -> tuple[float, float]:
    """The library's own estimator: DP-SGD, or the published method."""
    from sklearn.metrics import log_loss

    model = (DPMLPClassifier if method == "sgd" else PublishedMLP)(
        epsilon=epsilon,
        delta=default_delta(len(data.y_train)),
        relation="replace_one",
        learning_rate=1.0,
        unsafe_seed=seed,
        **(PLAIN | {"epochs": 10.0, "batch_size": 1024, "hidden": data.x_train.shape[1]} if method == "sgd" else {}),
        **declared(data),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)
        model.fit(data.x_train, data.y_train)
    loss = log_loss(data.y_train, model.predict_proba(data.x_train))
    return float(model.score(data.x_test, data.y_test)), float(loss)


@dataclass(kw_only=True, eq=False, repr=False)
class PublishedMLP(DPMLPClassifier):
    """`DPMLPClassifier` on features perturbed as Kang et al. calibrate them: claimed, refuted if T is small against n.

    Args:
        steps: full-batch steps.
        learning_rate: > 0.
        pl_constant: > 0, of the Polyak-Lojasiewicz condition, which cannot be checked.

    All other parameters as in `DPMLPClassifier`.
    """

    steps: int = 50
    learning_rate: float | None = 1.0
    pl_constant: float = 0.01
    linear: bool = False
    features: str | None = None

    def _unread(self) -> tuple[str, ...]:
        return (*super()._unread(), "epochs", "batch_size", "clip_norm", *PLAIN, "categorical")

    def _fit(self, X: np.ndarray, targets: np.ndarray) -> Release:
        import torch

        from tacit.training import fit_nonprivate

        terms = self._terms(X, self._target(len(X)))
        columns = X.shape[1]
        self.model_, rows = self._network(columns, self.hidden or columns), self.design_.features(X)
        epsilon, delta = approximate(terms, "paper")
        learning_rate = check.positive("learning_rate", self.learning_rate)
        sigma = published_std(
            lipschitz=1.0,
            steps=self.steps,
            records=len(rows),
            convexity=self.pl_constant,
            epsilon=epsilon,
            delta=delta,
        )
        mechanism = Approximate(epsilon, delta)
        claim_in(terms, mechanism)
        fit_nonprivate(
            self.model_,
            rows + gaussian(terms.stream, rows.shape, std=sigma),
            targets.astype(np.int64),
            loss=torch.nn.CrossEntropyLoss(reduction="none"),
            optimizer=torch.optim.SGD(self.model_.parameters(), lr=learning_rate, momentum=_MOMENTUM),
            sample_rate=1.0,
            steps=self.steps,
        )
        return claimed_release(self._weights(), mechanism, terms, sigma, len(rows), self.steps)


def best_mlp(dataset: Any) -> tuple[float, float]:
    """Test accuracy and mean training loss of a network without privacy: thirty epochs of Adam."""
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    rows = np.asarray(dataset.x_train, dtype=float) / public_norm(dataset)
    model = MLPClassifier((rows.shape[1],), max_iter=30, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows, dataset.y_train)
    accuracy = model.score(np.asarray(dataset.x_test, dtype=float) / public_norm(dataset), dataset.y_test)
    return float(accuracy), float(log_loss(dataset.y_train, model.predict_proba(rows)))


def _kifer(table: _Table, epsilon: float, delta: float, stream: SeededStream) -> nn.Module:
    """Gradient descent on the loss plus <b, theta> and a ridge; the theorem needs the minimum of a convex loss."""
    std = math.sqrt(kifer_variance(2 * _BOUND, epsilon, delta))
    strength = max(2 * _SMOOTHNESS / epsilon, _REGULARIZATION * len(table.y))
    linear = _noise(list(table.network().parameters()), std, stream)

    def perturbed(gradients: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        return [g + b + strength * w for g, b, w in zip(gradients, linear, weights, strict=True)]

    return table.descend(_STEPS, momentum=_MOMENTUM, change=perturbed)


def _zhang(table: _Table, descended: nn.Module, epsilon: float, delta: float, stream: SeededStream) -> nn.Module:
    """Noise on the last iterate by the published sensitivity for convex losses, 3 G T eta / n.

    Without convexity neighbouring iterates move apart from step to step; all that clipping would prove is 2 T eta C.
    """
    import copy

    sensitivity = 3 * _BOUND * _PLAIN_STEPS * _RATE / len(table.y)
    network = copy.deepcopy(descended)
    weights = list(network.parameters())
    noise = _noise(weights, sensitivity * _multiplier(1, epsilon, delta) / 2, stream)
    for weight, drawn in zip(weights, noise, strict=True):
        weight.data += drawn
    return network


def _wang(table: _Table, epsilon: float, delta: float, stream: SeededStream) -> nn.Module:
    """Full-batch gradient descent on clipped and noisy sums, by the exact composition of T Gaussian steps."""
    std = _multiplier(_STEPS, epsilon, delta) * _CLIP

    def noisy(gradients: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        return [g + b for g, b in zip(gradients, _noise(weights, std, stream), strict=True)]

    return table.descend(_STEPS, momentum=_MOMENTUM, clip=_CLIP, change=noisy)


def _multiplier(steps: int, epsilon: float, delta: float) -> float:
    """Noise multiplier of `steps` Gaussian steps under replace-one, where a clipped sum moves by 2 C."""
    from tacit.calibration import smallest
    from tacit.tradeoff import Epsilon

    found = smallest("noise_multiplier", lambda m: Gaussian(m) * steps, Epsilon(epsilon, delta), relation="replace_one")
    return found.value


def _noise(weights: Sequence[Tensor], std: float, stream: SeededStream) -> list[Tensor]:
    """Gaussian noise in the shapes of the weights."""
    import torch

    draws = [gaussian(stream, tuple(weight.shape), std=std) for weight in weights]
    return [torch.from_numpy(np.asarray(each, dtype=np.float32)) for each in draws]


def _tasks(size: str) -> list[Task]:
    return [
        Task(
            f"{__name__}:networks",
            {"dataset": dataset, "seed": 0, "epsilons": list(_EPSILONS[size])},
            {"iris_setosa": 5.0, "bank_marketing": 120.0, "adult_complete": 200.0, "kddcup99": 450.0}[dataset],
            reads_data=dataset in LARGE,
        )
        for dataset in DATA[size]
    ]


def _label(row: Line) -> str:
    if row["epsilon"] is None:
        return "without privacy"
    words, standing = METHODS[row["method"]]
    return words if standing == "proven" else f"{words} ({standing})"


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Accuracy and gap of every fit; the paper has curves alone."""
    make, rows = partial(Row, KEY, NAME, repeats=1), []
    for dataset, found in zip(DATA[size], values, strict=True):
        for row in found or ():
            where = f", epsilon {row['epsilon']:g}" if row["epsilon"] else ""
            start = f"{dataset}{where}, {_label(row)}"
            rows.append(make(f"{start}: test accuracy %", None, round(100 * row["accuracy"], 3)))
            rows.append(make(f"{start}: optimality gap", None, row["gap"]))
    return rows


def _lines(found: Sequence[Line], quantity: str, scale: float) -> dict[str, tuple[list[float], list[float]]]:
    """Label -> (epsilons, means) up to the paper's largest epsilon."""
    epsilons = sorted({row["epsilon"] for row in found if row["epsilon"] and row["epsilon"] <= _HIGHEST})
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for method in (*METHODS, "none"):
        own = [row for row in found if row["method"] == method]
        if method == "none" and quantity == "gap":
            continue
        at = {row["epsilon"]: scale * row[quantity] for row in own}
        lines[_label(own[0])] = (epsilons, [at.get(epsilon, at.get(None, math.nan)) for epsilon in epsilons])
    return lines


def _drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """Panels by data set, accuracy above the gap."""
    done = [(dataset, found) for dataset, found in zip(DATA[size], values, strict=True) if found]
    panels = [
        Panel(TITLES[dataset], _lines(found, quantity, scale), words, log_up=quantity == "gap")
        for quantity, scale, words in (("accuracy", 100.0, "test accuracy %"), ("gap", 1.0, "optimality gap"))
        for dataset, found in done
    ]
    dashed = [f"{words} ({standing})" for words, standing in METHODS.values() if standing == "claimed"]
    return {NAME: panels_svg(panels, columns=len(done), across="epsilon", dashed=dashed)} if done else {}


ITEM = Item(NAME, "test accuracy % and optimality gap against epsilon, network", _tasks, _rows, _drawings, partial=True)
