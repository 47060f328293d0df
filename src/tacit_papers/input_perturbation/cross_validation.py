"""Each method of Figure 2 at the steps and regularisation that cross-validation chooses, as in the paper.

Figure 2 at epsilon 10, where noise is small: what more steps give to the methods that take a number of them.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from statistics import mean
from typing import Any

from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import Panel, panels_svg
from tacit_papers.input_perturbation.counter_examples import KEY
from tacit_papers.input_perturbation.tables import IRIS, SMALL, TITLES, declared, load_table, optimality_gap, resplit

NAME = "figure-2-cross-validated"
_ADULT = "adult_complete"
_BANK, _KDD = "bank_marketing", "kddcup99"
DATA = (*SMALL, _BANK, _ADULT, _KDD)
_EPSILONS = (0.1, 0.25, 0.01)
# A split of a large table takes minutes.
_SEEDS = dict.fromkeys(DATA, 3) | {_BANK: 1, _KDD: 1}
# The last fit draws other noise than the fits that choose: the choice is of a setting and not of a lucky draw.
_FRESH = 10**6
STEPS = (10, 20, 50, 100, 200, 500)
"""The specification's grid and 500; a method that is solved to its minimum has no steps."""
RATES = (0.25, 4.0)
"""Step sizes in units of the default, tried at the steps and regularisation that do best at the default.

Zhang's step size is the largest that its proof allows, and a smaller one is fewer steps.
"""
_RATED = ("paper", "wang")
REGULARIZATIONS: tuple[float | str, ...] = ("auto", 1e-3)
_SHARE = 5
METHODS = {
    "paper": "input perturbation (claimed)",
    "kifer": "Kifer, objective perturbation",
    "zhang": "Zhang, output perturbation",
    "wang": "Wang, gradient perturbation",
    "sgd": "Bassily, noisy SGD",
}
_SECONDS = {"paper": 30.0, "kifer": 10.0, "zhang": 30.0, "wang": 60.0, "sgd": 15.0}
_SMALL_SECONDS = 2.0


def chosen(
    dataset: str,
    method: str,
    epsilon: float,
    seed: int,
    rates: Sequence[float] = (),
    *,
    data_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Settings that do best on a fifth of the training records, and the test accuracy with them on all of these.

    The choice reads the records and has no privacy cost counted, as in the paper: what comes out has not the epsilon
    that a single fit has. The noise is seeded.

    Args:
        dataset: its name.
        method: one of `METHODS`.
        epsilon: of each fit, > 0, at the delta of the comparison.
        seed: of the split, of the part held out, and of the noise of the fits that choose; the last one draws anew.
        rates: step sizes in units of the default, tried after steps and regularisation are chosen.
        data_dir: folder of the data files.

    Returns:
        "steps" (None without any) and "regularization" as chosen, "rate" where `rates` are given, "test" accuracy in
        [0, 1], and "tried": for every setting its accuracy on the part held out.
    """
    import numpy as np

    data = resplit(load_table(dataset, data_dir), seed=seed)
    order = np.random.default_rng(seed).permutation(len(data.y_train))
    held, rest = np.split(order, [len(order) // _SHARE])
    x, y = data.x_train, data.y_train
    score = partial(_score, data, method, epsilon)

    def tried(steps: int | None, strength: float | str, rate: float) -> dict[str, Any]:
        at = (steps, strength, rate)
        setting = {"steps": steps, "regularization": strength} | ({"rate": rate} if rates else {})
        return setting | {"held_out": score(seed, (x[rest], y[rest]), (x[held], y[held]), at)}

    grid = product(STEPS if method != "kifer" else (None,), REGULARIZATIONS)
    every = [tried(*at, 1.0) for at in grid]
    best = max(every, key=_held_out)
    every += [tried(best["steps"], best["regularization"], rate) for rate in rates]
    best = {name: value for name, value in max(every, key=_held_out).items() if name != "held_out"}
    at = (best["steps"], best["regularization"], best.get("rate", 1.0))
    return best | {"test": score(_FRESH + seed, (x, y), (data.x_test, data.y_test), at), "tried": every}


def _held_out(setting: Mapping[str, Any]) -> float:
    return setting["held_out"]


def _score(data: Any, method: str, epsilon: float, seed: int, train: Any, test: Any, at: tuple[Any, ...]) -> float:
    """Accuracy on `test` of a fit on `train`, pairs of inputs and labels, at steps, regularisation and rate `at`."""
    from tacit.erm import DPLogisticRegression
    from tacit.erm.base import default_delta
    from tacit.errors import LeakWarning

    steps, strength, rate = at
    model = DPLogisticRegression(
        method=method_at(method, steps, rate),
        epsilon=epsilon,
        delta=default_delta(len(data.y_train)),
        relation="replace_one",
        regularization=strength,
        unsafe_seed=seed,
        **declared(data),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)
        model.fit(*train)
    return float(model.score(*test))


def method_at(name: str, steps: int | None, rate: float = 1.0) -> Any:
    """A method of the paper at `steps` and, where its step size is free, at `rate` in units of the default."""
    from tacit.erm.gradient import GradientDescent
    from tacit_papers.input_perturbation.counter_examples import PaperInput
    from tacit_papers.input_perturbation.descent_methods import GradientDescentOutput, NoisySGD
    from tacit_papers.input_perturbation.objective_methods import KiferObjective

    if steps is None:
        return KiferObjective()
    if name == "zhang":
        return GradientDescentOutput(steps=steps)
    if name == "sgd":
        return NoisySGD(steps=steps)
    return {"paper": PaperInput, "wang": GradientDescent}[name](steps=steps, step_scale=rate)


def _cells(size: str) -> list[tuple[str, str, float, int]]:
    """(data set, method, epsilon, seed); all methods of a split before the next, none at quick size."""
    seeds = range(max(_SEEDS.values())) if size == "full" else ()
    return [
        (dataset, method, epsilon, seed)
        for seed in seeds
        for dataset in DATA
        if seed < _SEEDS[dataset]
        for epsilon in _EPSILONS
        for method in METHODS
    ]


def _tasks(size: str) -> list[Task]:
    return [
        Task(
            f"{__name__}:chosen",
            {"dataset": dataset, "method": method, "epsilon": epsilon, "seed": seed}
            | {"rates": list(RATES) if method in _RATED else []},
            _SMALL_SECONDS if dataset in SMALL else _SECONDS[method],
            reads_data=dataset not in IRIS,
        )
        for dataset, method, epsilon, seed in _cells(size)
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Mean accuracy over the splits, and the steps chosen, by epsilon and method; the paper has curves alone."""
    rows, cells = [], _cells(size)
    for dataset, epsilon in product(DATA if cells else (), _EPSILONS):
        for method, words in METHODS.items():
            found = [
                value
                for (table, name, at, _), value in zip(cells, values, strict=True)
                if (table, name, at) == (dataset, method, epsilon) and value is not None
            ]
            make = partial(Row, KEY, NAME, repeats=len(found))
            start = f"{dataset}, epsilon {epsilon:g}, {words}"
            test = round(100 * mean(value["test"] for value in found), 2) if found else None
            rows.append(make(f"{start}: test accuracy %", None, test))
            if method != "kifer":
                steps = mean(value["steps"] for value in found) if found else None
                rows.append(make(f"{start}: steps chosen", None, steps))
    return rows


def _drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """Panels by data set, methods in the paper's order."""
    rows = {row.quantity: row.ours for row in _rows(size, values)}
    panels, epsilons = [], sorted(_EPSILONS)
    for dataset in DATA:
        lines = {}
        for method in ("kifer", "zhang", "sgd", "wang", "paper"):
            at = [rows.get(f"{dataset}, epsilon {each:g}, {METHODS[method]}: test accuracy %") for each in epsilons]
            if None not in at:
                lines[METHODS[method]] = (epsilons, at)
        if lines:
            panels.append(Panel(TITLES[dataset], lines, "test accuracy %"))
    return {NAME: panels_svg(panels, columns=3, across="epsilon", dashed=[METHODS["paper"]])} if panels else {}


ITEM = Item(
    NAME,
    "Figure 2 with steps, step size and regularisation cross-validated without privacy",
    _tasks,
    _rows,
    _drawings,
    partial=True,
)


CONVERGENCE_NAME = "figure-2-convergence"
_STEPS = {"quick": (50,), "full": (50, 500, 3000)}
_DATA = {"quick": "iris_setosa", "full": "adult_complete"}
_EPSILON = 10.0


def converged(
    dataset: str, method: str, steps: int | None, epsilon: float, *, data_dir: str | os.PathLike[str] | None = None
) -> dict[str, float]:
    """Test accuracy and optimality gap of logistic regression by one method after so many steps, split 0.

    Args:
        dataset: its name.
        method: "paper", "kifer", "zhang" or "wang".
        steps: number of full-batch steps; None for "kifer", which is solved to its minimum.
        epsilon: > 0, under replace-one, delta = min(1e-5, n^-1.1).
        data_dir: folder of the data files.
    """
    from tacit.erm import DPLogisticRegression
    from tacit.erm.base import default_delta
    from tacit.errors import LeakWarning

    data = resplit(load_table(dataset, data_dir), seed=0)
    model = DPLogisticRegression(
        method=method_at(method, steps),
        epsilon=epsilon,
        delta=default_delta(len(data.y_train)),
        relation="replace_one",
        unsafe_seed=0,
        **declared(data),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)
        model.fit(data.x_train, data.y_train)
    accuracy = float(model.score(data.x_test, data.y_test))
    return {"accuracy": accuracy, "gap": float(optimality_gap(model, data.x_train, data.y_train))}


def _convergence_cells(size: str) -> list[tuple[str, int | None]]:
    return [(method, steps) for method in METHODS for steps in (_STEPS[size] if method != "kifer" else (None,))]


def _convergence_tasks(size: str) -> list[Task]:
    return [
        Task(
            f"{__name__}:converged",
            {"dataset": _DATA[size], "method": method, "steps": steps, "epsilon": _EPSILON},
            1.0 + 0.02 * (steps or 0) if size == "full" else 0.5,
            reads_data=size == "full",
        )
        for method, steps in _convergence_cells(size)
    ]


def _convergence_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Accuracy and gap of one fit each; the paper has curves alone."""
    make, rows = partial(Row, KEY, CONVERGENCE_NAME, repeats=1), []
    for (method, steps), value in zip(_convergence_cells(size), values, strict=True):
        if value is None:
            continue
        after = f", {steps} steps" if steps else ""
        start = f"{_DATA[size]}, epsilon {_EPSILON:g}, {METHODS[method]}{after}"
        rows.append(make(f"{start}: test accuracy %", None, round(100 * value["accuracy"], 3)))
        rows.append(make(f"{start}: optimality gap", None, value["gap"]))
    return rows


CONVERGENCE = Item(
    CONVERGENCE_NAME,
    "Figure 2 at epsilon 10 with more steps, logistic regression on Adult",
    _convergence_tasks,
    _convergence_rows,
    partial=True,
)
