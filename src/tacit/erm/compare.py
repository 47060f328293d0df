"""Accuracy and optimality gap of every method over data sets and epsilons, claimed ones beside the proven."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit import check
from tacit.data import Dataset
from tacit.erm.base import LARGEST_DELTA, default_delta
from tacit.erm.classifiers import DPLogisticRegression
from tacit.erm.design import Design, declared_bounds
from tacit.erm.losses import Logistic, Softmax
from tacit.erm.methods import METHODS
from tacit.erm.mlp import VARIANTS, DPMLPClassifier
from tacit.erm.solver import Problem, minimise
from tacit.errors import LeakWarning
from tacit.serialization import json_text, write_text

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
# Methods whose proof needs one score for each record.
BINARY = {("objective", "chaudhuri"), ("objective", "kifer_pure"), ("objective", "kifer"), ("input", "fukuchi")}
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Row:
    """One fit.

    Attributes:
        standing: of the guarantee under the secure stream (the runs themselves are seeded).
        accuracy: on the test rows. gap: (F(theta) - min F) / n on the training rows, None for networks.
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


def compare(
    datasets: Mapping[str, Dataset],
    *,
    epsilons: Sequence[float] = EPSILONS,
    models: Iterable[str] = ("logistic",),
    methods: Iterable[tuple[str, str]] | None = None,
    relation: str = "replace_one",
    repeats: int = 3,
    first_seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    on_progress: Progress = lambda stage, done, total: None,
) -> tuple[Row, ...]:
    """Fit every method with seeded noise on `repeats` random 80/20 splits (seeds from `first_seed` on) of each set.

    delta = min(1e-5, n^-1.1), 0 for pure methods. Rows with epsilon None are without privacy.

    Args:
        datasets: by name; their declared bounds and classes are used, and the row norm that one-hot groups allow.
        epsilons: > 0, each.
        models: "logistic" and "mlp".
        methods: (method, variant) pairs of the logistic model; every one by default.
        relation: neighbouring relation of the guarantees.
        repeats: number of splits.
        first_seed: public seed of the first split and its noise.
        settings: further parameters of `DPLogisticRegression`.
        on_progress: called with (stage, fits done, fits in all).

    Raises:
        InvalidInput: a model is unknown, or a count out of range.
    """
    kinds = [check.choice("models", name, ("logistic", "mlp")) for name in models]
    chosen = list(methods) if methods is not None else [(m, v) for m, known in METHODS.items() for v in known]
    first = check.count("first_seed", first_seed, minimum=0)
    seeds = range(first, first + check.count("repeats", repeats))
    jobs = [(name, kind, seed) for name in datasets for kind in kinds for seed in seeds]
    rows: list[Row] = []
    for done, (name, kind, seed) in enumerate(jobs):
        on_progress("comparison", done, len(jobs))
        dataset = datasets[name].resplit(seed=seed)
        pairs = chosen if kind == "logistic" else [(m, v) for m, known in VARIANTS.items() for v in known]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeakWarning)
            rows.append(_without_privacy(dataset, kind, relation, seed))
            for method, variant in pairs:
                if kind == "logistic" and len(dataset.classes) > 2 and (method, variant) in BINARY:
                    continue
                rows += [_one(dataset, kind, method, variant, e, relation, seed, settings or {}) for e in epsilons]
    on_progress("comparison", len(jobs), len(jobs))
    return tuple(rows)


def public_norm(dataset: Dataset) -> float:
    """The largest row norm that the declared encoding allows: a one-hot group (`column=value` names) counts once."""
    low, high = (np.broadcast_to(end, dataset.x_train.shape[1:]) for end in dataset.bounds)
    ends = np.maximum(np.abs(low), np.abs(high)).astype(float) ** 2
    groups: dict[str, float] = {}
    for place, name in enumerate(dataset.feature_names or map(str, range(len(ends)))):
        group = name.partition("=")[0]
        groups[group] = max(groups.get(group, 0.0), ends[place])
    return math.sqrt(sum(groups.values()))


def save(rows: Sequence[Row], folder: Path) -> None:
    """Write `comparison.json` and one figure of accuracy over epsilon for each data set and model."""
    write_text(folder / "comparison.json", json_text([asdict(row) for row in rows]))
    for name, kind in sorted({(row.dataset, row.model) for row in rows}):
        _figure([row for row in rows if (row.dataset, row.model) == (name, kind)], folder / f"{name}-{kind}.svg")


def means(rows: Sequence[Row]) -> dict[tuple[str, str, str, str, float | None], float]:
    """Mean accuracy over seeds by (dataset, model, method, variant, epsilon)."""
    found: dict[tuple[str, str, str, str, float | None], list[float]] = {}
    for row in rows:
        found.setdefault((row.dataset, row.model, row.method, row.variant, row.epsilon), []).append(row.accuracy)
    return {key: float(np.mean(values)) for key, values in found.items()}


def declared(dataset: Dataset) -> dict[str, Any]:
    """What an estimator is told of a data set: its bounds, the public row norm and its classes."""
    return {
        "data_bounds": dataset.bounds,
        "norm_bound": public_norm(dataset),
        "classes": range(len(dataset.classes)),
    }


def _one(
    dataset: Dataset,
    kind: str,
    method: str,
    variant: str,
    epsilon: float,
    relation: str,
    seed: int,
    settings: Mapping[str, Any],
) -> Row:
    pure = kind == "logistic" and METHODS[method][variant].pure
    delta = 0.0 if pure else default_delta(len(dataset.y_train))
    estimator = DPLogisticRegression if kind == "logistic" else DPMLPClassifier
    model = estimator(
        method=method,
        variant=variant,
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        unsafe_seed=seed,
        **declared(dataset),
        **(settings if kind == "logistic" else {}),
    )
    start = time.perf_counter()
    model.fit(dataset.x_train, dataset.y_train)
    seconds = time.perf_counter() - start
    floor, local, at = model.leakage_floor_, model.local_guarantee_, delta or LARGEST_DELTA
    proven = "claimed" if floor is not None else "proven"
    return Row(
        dataset.name,
        kind,
        method,
        variant,
        proven,
        model.guarantee_.relation.value,
        epsilon,
        delta,
        seed,
        float(model.score(dataset.x_test, dataset.y_test)),
        model.optimality_gap(dataset.x_train, dataset.y_train) if kind == "logistic" else None,
        None if floor is None else float(floor.epsilon(at)),
        None if local is None else float(local.epsilon(at)),
        seconds,
    )


def _without_privacy(dataset: Dataset, kind: str, relation: str, seed: int) -> Row:
    start = time.perf_counter()
    score = best_logistic(dataset) if kind == "logistic" else best_mlp(dataset)[0]
    seconds = time.perf_counter() - start
    none = (None, None, None)
    return Row(dataset.name, kind, "none", "none", "none", relation, None, 0.0, seed, score, *none, seconds)


def best_logistic(dataset: Dataset) -> float:
    """Test accuracy of logistic regression without privacy, hardly regularised."""
    rows, test = (np.asarray(x, dtype=float) for x in (dataset.x_train, dataset.x_test))
    low, high = declared_bounds(dataset.bounds, rows.shape[1])
    design = Design(low, high, public_norm(dataset), 0.5)
    many = len(dataset.classes) > 2
    targets = dataset.y_train if many else dataset.y_train.astype(float)
    loss = Softmax(len(dataset.classes)) if many else Logistic()
    theta = minimise(Problem(design.features(rows), targets, loss, 1e-6 * len(rows)), tolerance=1e-5).theta
    scores = design.features(test) @ theta
    return float(np.mean((scores.argmax(axis=1) if many else scores[:, 0] > 0) == dataset.y_test))


def best_mlp(dataset: Dataset) -> tuple[float, float]:
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


def _figure(rows: Sequence[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5))
    averages = means(rows)
    for method, variant in dict.fromkeys((row.method, row.variant) for row in rows if row.epsilon is not None):
        points = sorted((k[4], v) for k, v in averages.items() if k[2:4] == (method, variant) and k[4] is not None)
        dashed = any(row.standing == "claimed" and (row.method, row.variant) == (method, variant) for row in rows)
        style = "--" if dashed else "-"
        label = f"{method} {variant}{' (claimed)' if dashed else ''}"
        axes.semilogx(*zip(*points, strict=True), style, marker=".", label=label)
    axes.axhline(max(row.accuracy for row in rows if row.epsilon is None), color="black", lw=0.8, label="no privacy")
    axes.set(xlabel="epsilon", ylabel="test accuracy", title=f"{rows[0].dataset}, {rows[0].model}")
    axes.legend(fontsize=7, ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
