"""Figures 2 and 4: accuracy and optimality gap of logistic regression, proven methods beside the claimed ones."""

import os
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import mean, stdev
from typing import Any

import numpy as np

from tacit.data import Dataset
from tacit.erm import DPLogisticRegression, GradientDescent, Method, ObjectiveGaussian, PureObjective
from tacit.erm.base import LARGEST_DELTA, default_delta
from tacit.erm.design import Design, declared_bounds
from tacit.erm.losses import Logistic, Softmax
from tacit.erm.solver import Problem, minimise
from tacit.errors import LeakWarning
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import Panel, panels_svg
from tacit_papers.input_perturbation.counter_examples import KEY, PaperInput
from tacit_papers.input_perturbation.descent_methods import (
    GaussianOutput,
    GradientDescentOutput,
    NoisySGD,
    OutputPerturbation,
    Svrg,
)
from tacit_papers.input_perturbation.input_methods import Aggregate, Fukuchi, Local, Shuffled
from tacit_papers.input_perturbation.objective_methods import (
    ApproximateMinima,
    ChaudhuriObjective,
    KiferObjective,
    KiferPureObjective,
)
from tacit_papers.input_perturbation.tables import (
    IRIS,
    LARGE,
    NUMBERS,
    SMALL,
    TITLES,
    declared,
    load_table,
    optimality_gap,
    public_norm,
    resplit,
)

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
_FAMILIES = ("input", "objective", "output", "gradient")
_METHODS: tuple[type[Method], ...] = (
    *(Aggregate, Local, Shuffled, Fukuchi, PaperInput),
    *(ObjectiveGaussian, PureObjective, ChaudhuriObjective, KiferPureObjective, KiferObjective, ApproximateMinima),
    *(GaussianOutput, OutputPerturbation, GradientDescentOutput),
    *(GradientDescent, NoisySGD, Svrg),
)
METHODS = {family: {kind.name: kind for kind in _METHODS if kind.family == family} for family in _FAMILIES}
"""The library's methods and the published ones, by family and name."""
# Methods whose proof needs one score for each record.
BINARY = {("objective", "chaudhuri"), ("objective", "kifer_pure"), ("objective", "kifer"), ("input", "fukuchi")}
DATA = {"quick": tuple(IRIS), "full": (*SMALL, *LARGE)}
_SEEDS = {"quick": 2, "full": 10}
# A split of a large table takes minutes.
_LARGE_SEEDS = 3
_QUICK_EPSILONS = (0.1, 0.25, 10.0)
_TABLED = (0.1, 0.25, 10.0)
# In the order of the paper's legend, and the best of the proven modes; tables have every method.
_PAPERS = {
    "objective kifer": "Kifer, objective perturbation",
    "output zhang": "Zhang, output perturbation",
    "gradient sgd": "Bassily, noisy SGD",
    "gradient descent": "Wang, gradient perturbation",
    "claimed: input paper": "input perturbation (claimed)",
}
_OURS = {"objective exact": "objective perturbation, exact", "input aggregate": "noisy sums of statistics"}
_BARE = {"without privacy": "without privacy"}
_HIGHEST = 0.25
_COLUMNS = 4

_SCALES = {"accuracy": 100, "gap": 1}

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Fit:
    """One fit of logistic regression.

    Attributes:
        standing: of the guarantee under the secure stream (the runs themselves are seeded).
        accuracy: on the test rows. gap: (F(theta) - min F) / n on the training rows, None without privacy.
        floor_epsilon: proven leakage beside a claimed epsilon, at the same delta.
        local_epsilon: of a record's own message, where there is one.
    """

    dataset: str
    model: str
    method: str
    variant: str
    standing: str
    relation: str
    epsilon: float | None
    delta: float
    seed: int
    accuracy: float
    gap: float | None
    floor_epsilon: float | None
    local_epsilon: float | None
    seconds: float


def compared(
    dataset: str, model: str, seed: int, epsilons: Sequence[float], *, data_dir: str | os.PathLike[str] | None = None
) -> list[dict[str, Any]]:
    """`fits` on the split of one seed, replace-one, as plain rows.

    Args:
        dataset: its name.
        model: "logistic", the one that there is.
        seed: of the split and the noise.
        epsilons: targets, each > 0.
        data_dir: folder of the data files.
    """
    return [asdict(fit) for fit in fits(load_table(dataset, data_dir), epsilons, seed)]


def fits(dataset: Dataset, epsilons: Sequence[float], seed: int) -> list[Fit]:
    """Every method of `METHODS` with seeded noise on one random 80/20 split, and one fit without privacy.

    delta = min(1e-5, n^-1.1), 0 for pure methods; under replace-one.

    Args:
        dataset: whose declared bounds and classes are used, and the row norm that one-hot groups allow.
        epsilons: targets, each > 0.
        seed: of the split and the noise.
    """
    dataset = resplit(dataset, seed=seed)
    start = time.perf_counter()
    score = best_logistic(dataset)
    seconds, none = time.perf_counter() - start, (None, None, None)
    found = [
        Fit(dataset.name, "logistic", "none", "none", "none", "replace_one", None, 0.0, seed, score, *none, seconds)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)
        for family, methods in METHODS.items():
            for name, kind in methods.items():
                if len(dataset.classes) == 2 or (family, name) not in BINARY:
                    found += [_fit(dataset, kind, epsilon, seed) for epsilon in epsilons]
    return found


def _fit(dataset: Dataset, kind: type[Method], epsilon: float, seed: int) -> Fit:
    delta = 0.0 if kind.pure else default_delta(len(dataset.y_train))
    model = DPLogisticRegression(
        method=kind(), epsilon=epsilon, delta=delta, relation="replace_one", unsafe_seed=seed, **declared(dataset)
    )
    start = time.perf_counter()
    model.fit(dataset.x_train, dataset.y_train)
    seconds = time.perf_counter() - start
    local, at = getattr(model.release_, "local_guarantee", None), delta or LARGEST_DELTA
    floor = getattr(model.release_, "floor", None)
    return Fit(
        dataset.name,
        "logistic",
        kind.family,
        kind.name,
        "claimed" if floor is not None else "proven",
        model.guarantee_.relation.value,
        epsilon,
        delta,
        seed,
        float(model.score(dataset.x_test, dataset.y_test)),
        optimality_gap(model, dataset.x_train, dataset.y_train),
        None if floor is None else float(floor.epsilon(at)),
        None if local is None else float(local.epsilon(at)),
        seconds,
    )


def best_logistic(dataset: Dataset) -> float:
    """Test accuracy of logistic regression without privacy, hardly regularised."""
    rows, test = (np.asarray(x, dtype=float) for x in (dataset.x_train, dataset.x_test))
    low, high = declared_bounds(dataset.bounds, rows.shape[1])
    design = Design(low, high, public_norm(dataset), 0.5)
    many = len(dataset.classes) > 2
    targets = dataset.y_train if many else dataset.y_train.astype(float)
    loss = Softmax(len(dataset.classes)) if many else Logistic()
    theta = minimise(Problem(design.features(rows), targets, loss, 1e-6 * len(rows)), tolerance=1e-5)
    scores = design.features(test) @ theta
    return float(np.mean((scores.argmax(axis=1) if many else scores[:, 0] > 0) == dataset.y_test))


def _cells(size: str) -> list[tuple[str, int]]:
    """One split of every data set before the next, small sets first, so that a stopped run has all of the figures."""
    repeats = {dataset: _LARGE_SEEDS if dataset in LARGE else _SEEDS[size] for dataset in DATA[size]}
    return [(dataset, seed) for seed in range(max(repeats.values())) for dataset in repeats if seed < repeats[dataset]]


def _tasks(size: str) -> list[Task]:
    epsilons = _QUICK_EPSILONS if size == "quick" else EPSILONS
    return [
        Task(
            f"{__name__}:compared",
            {"dataset": dataset, "model": "logistic", "seed": seed, "epsilons": list(epsilons)},
            _seconds(dataset, len(epsilons)),
            reads_data=dataset not in IRIS,
        )
        for dataset, seed in _cells(size)
    ]


def _seconds(dataset: str, epsilons: int) -> float:
    """Fifteen methods of up to a second for 50,000 rows each."""
    records = 150 if dataset in IRIS else NUMBERS["sizes"][dataset]
    return epsilons * (0.3 + records / 50_000 * 15.0)


def _lines(size: str, values: Sequence[Any], quantity: str) -> dict[str, dict[str, dict[float, float]]]:
    """Dataset -> method -> epsilon -> mean over the seeds; epsilon 0 stands for the fit without privacy."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for (dataset, _), rows in zip(_cells(size), values, strict=True):
        for row in rows or ():
            if row[quantity] is not None:
                at = found.setdefault(dataset, {}).setdefault(_label(row), {})
                at.setdefault(row["epsilon"] or 0.0, []).append(row[quantity])
    return {
        dataset: {name: {epsilon: mean(cell) for epsilon, cell in at.items()} for name, at in methods.items()}
        for dataset, methods in found.items()
    }


def _label(row: Line) -> str:
    if row["epsilon"] is None:
        return "without privacy"
    return f"{'claimed: ' if row['standing'] == 'claimed' else ''}{row['method']} {row['variant']}"


def _rows(item: str, quantity: str, words: str, size: str, values: Sequence[Any]) -> list[Row]:
    """Means over the splits at a few epsilons; the figures store no values to compare with."""
    make, rows, scale = partial(Row, KEY, item), [], _SCALES[quantity]
    ran = Counter(dataset for (dataset, _), found in zip(_cells(size), values, strict=True) if found)
    for dataset, methods in _lines(size, values, quantity).items():
        for name, at in methods.items():
            for epsilon in at:
                if epsilon in (0.0, *_TABLED):
                    where = f", epsilon {epsilon:g}" if epsilon else ""
                    rows.append(
                        make(f"{dataset}{where}, {name}: {words}", None, scale * at[epsilon], repeats=ran[dataset])
                    )
    return rows + (_fluctuations(make, size, values) if quantity == "accuracy" else [])


def _fluctuations(make: Any, size: str, values: Sequence[Any]) -> list[Row]:
    """By how much accuracy changes from split to split: of noisy SGD the paper says that it fluctuates."""
    found: dict[str, dict[tuple[str, float], list[float]]] = {name: {} for name in _PAPERS}
    for row in (row for rows in values for row in rows or ()):
        if _label(row) in _PAPERS and row["epsilon"] <= _HIGHEST:
            found[_label(row)].setdefault((row["dataset"], row["epsilon"]), []).append(100 * row["accuracy"])
    spreads = {name: [stdev(each) for each in cells.values() if len(each) > 1] for name, cells in found.items()}
    words = f"standard deviation over splits, average over tables and epsilons up to {_HIGHEST:g}, points"
    return [make(f"{_PAPERS[name]}: {words}", None, round(mean(each), 2)) for name, each in spreads.items() if each]


def _drawings(item: str, quantity: str, words: str, size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """One figure of the paper's epsilons and methods, and one of all epsilons with the best proven modes."""
    found = _lines(size, values, quantity)
    if not found:
        return {}
    wide = partial(_panels, found, quantity, words)
    draw = partial(panels_svg, columns=_COLUMNS, across="epsilon", dashed=[_PAPERS["claimed: input paper"]])
    return {
        item: draw(wide({**_PAPERS, **_BARE}, _HIGHEST)),
        f"{item}-all-epsilons": draw(wide({**_PAPERS, **_OURS, **_BARE}, EPSILONS[-1]), log_across=True),
    }


def _panels(
    found: Mapping[str, Mapping[str, Mapping[float, float]]],
    quantity: str,
    words: str,
    labels: Mapping[str, str],
    highest: float,
) -> list[Panel]:
    panels = []
    for dataset, methods in found.items():
        lines, epsilons = {}, sorted({epsilon for at in methods.values() for epsilon in at if 0 < epsilon <= highest})
        for name in (name for name in labels if name in methods):
            at = methods[name]
            own = [epsilon for epsilon in epsilons if epsilon in at] or epsilons
            lines[labels[name]] = (own, [_SCALES[quantity] * at[epsilon if epsilon in at else 0.0] for epsilon in own])
        panels.append(Panel(TITLES[dataset], lines, words, log_up=quantity == "gap"))
    return panels


def _item(item: str, quantity: str, words: str) -> Item:
    return Item(
        item,
        f"{words} against epsilon, logistic regression",
        _tasks,
        partial(_rows, item, quantity, words),
        partial(_drawings, item, quantity, words),
        partial=True,
    )


ITEMS = {
    "figure-2": _item("figure-2", "accuracy", "test accuracy %"),
    "figure-4": _item("figure-4", "gap", "optimality gap"),
}
