"""The rule of `method="auto"` on public tables: what every method reaches, what the rule loses, what it warns of.

    python -m benchmarks.tables run fitted     cells that are missing, one line of the CSV each
    python -m benchmarks.tables run judged
    python -m benchmarks.tables peer           diffprivlib, in an environment of its own
    python -m benchmarks.tables show           fit the rule, cross-validate it, and write the tables of docs/auto.md

A split trains on 80 % of the records. Scores are accuracies, or R2 of a regression; the constant answer is that of
the training records, and the error is the standard error of the lead over it on the test records.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.public_tables import CLASSES, FITTED, JUDGED, Table, outwards, read

RESULTS = Path(__file__).parent / "results" / "tables.csv"
FIELDS = ("table", "epsilon", "method", "seed", "score", "constant", "error", "warned")
METHODS = ("objective", "gradient", "output", "input", "cosines")
PEERS = ("linear", "bayes", "forest")
EPSILONS = {"fitted": (0.3, 1.0, 3.0, 8.0), "judged": (0.5, 1.0, 3.0)}
SEEDS = 3

Key = tuple[str, str, str, str]


def split(table: Table, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of the training and of the test records."""
    order = np.random.default_rng(seed).permutation(len(table.rows))
    train, test = np.split(order, [len(order) * 4 // 5])
    return train, test


def ours(table: Table, train: np.ndarray, epsilon: float, method: str) -> Any:
    """An estimator of `tacit.erm`, as it comes but for the method."""
    from tacit.erm import DPLinearRegression, DPLogisticRegression
    from tacit_papers.input_perturbation.descent_methods import GaussianOutput
    from tacit_papers.input_perturbation.input_methods import Aggregate

    x, low, high = table.features()
    published = {"output": GaussianOutput(), "input": Aggregate()}
    how: dict[str, Any] = {"method": published.get(method, method), "features": None}
    if method == "cosines":
        how = {"features": "cosines"}
    elif method == "auto":
        how = {}
    box = {"epsilon": epsilon, "data_bounds": (low, high)}
    if table.task == CLASSES:
        model: Any = DPLogisticRegression(classes=range(int(table.labels.max()) + 1), **box, **how)
    else:
        model = DPLinearRegression(target_bounds=outwards(table.labels), **box, **how)
    return model.fit(x[train], table.labels[train])


def peer(table: Table, train: np.ndarray, epsilon: float, method: str) -> Any:
    """A model of diffprivlib as it comes, with the bounds that it asks for."""
    from diffprivlib import models

    x, low, high = table.features()
    if table.task != CLASSES:
        model: Any = models.LinearRegression(epsilon=epsilon, bounds_X=(low, high), bounds_y=outwards(table.labels))
    elif method == "linear":
        norm = float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high))))
        model = models.LogisticRegression(epsilon=epsilon, data_norm=norm)
    elif method == "bayes":
        model = models.GaussianNB(epsilon=epsilon, bounds=(low, high))
    else:
        classes = list(range(int(table.labels.max()) + 1))
        model = models.RandomForestClassifier(epsilon=epsilon, bounds=(low, high), classes=classes)
    return model.fit(x[train], table.labels[train])


def plain(table: Table, train: np.ndarray) -> Any:
    """scikit-learn without privacy, on columns scaled by their boxes."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    model = LogisticRegression(max_iter=2000) if table.task == CLASSES else LinearRegression()
    return model.fit(table.encoded()[train], table.labels[train])


def scores(table: Table, train: np.ndarray, test: np.ndarray, answers: np.ndarray) -> tuple[float, float, float]:
    """Score, score of the constant answer, and standard error of the lead over it."""
    labels, truth = table.labels[train], table.labels[test]
    if table.task == CLASSES:
        right, usual = answers == truth, truth == np.bincount(labels.astype(int)).argmax()
        lead = right.astype(float) - usual
        found = float(right.mean()), float(usual.mean())
    else:
        spread = float(truth.var()) or 1.0
        wrong, usual = (truth - answers) ** 2 / spread, (truth - labels.mean()) ** 2 / spread
        lead = usual - wrong
        found = 1 - float(wrong.mean()), 1 - float(usual.mean())
    return *found, float(lead.std(ddof=1) / np.sqrt(len(lead)))


def stored() -> dict[Key, dict[str, str]]:
    """Cells by table, epsilon, method and seed."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return {(row["table"], row["epsilon"], row["method"], row["seed"]): row for row in csv.DictReader(file)}


def add(key: Key, found: Sequence[float]) -> None:
    """Append a cell."""
    new = not RESULTS.exists()
    with RESULTS.open("a", encoding="utf-8", newline="") as file:
        written = csv.writer(file, lineterminator="\n")
        if new:
            written.writerow(FIELDS)
        written.writerow([*key, *(f"{each:.4f}" for each in found[:3]), *found[3:]])
    print(*key, *found, flush=True)


def run(arguments: argparse.Namespace) -> None:
    """Fill the cells that are missing."""
    kind = "judged" if arguments.what == "peer" else arguments.kind
    known = stored()
    for name in arguments.tables or (FITTED if kind == "fitted" else JUDGED):
        table = read(name)
        for seed in range(SEEDS):
            train, test = split(table, seed)
            for method, level in _cells(arguments.what, kind, table):
                key = (name, level, method, str(seed))
                if key not in known:
                    add(key, _measured(arguments.what, table, (train, test), method, level))


def _cells(what: str, kind: str, table: Table) -> list[tuple[str, str]]:
    if what == "peer":
        methods: tuple[str, ...] = PEERS if table.task == CLASSES else PEERS[:1]
        return [(f"diffprivlib {each}", f"{level:g}") for level in EPSILONS[kind] for each in methods]
    return [("plain", "inf"), *((each, f"{level:g}") for level in EPSILONS[kind] for each in (*METHODS, "auto"))]


def _measured(
    what: str, table: Table, places: tuple[np.ndarray, np.ndarray], method: str, level: str
) -> tuple[float, ...]:
    train, test = places
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if method == "plain":
            return scores(table, train, test, plain(table, train).predict(table.encoded()[test]))
        fit = peer if what == "peer" else ours
        model = fit(table, train, float(level), method.removeprefix("diffprivlib "))
    found = scores(table, train, test, model.predict(table.features()[0][test]))
    warned = any(each.category.__name__ == "UtilityWarning" for each in caught)
    return (*found, int(warned)) if method == "auto" else found


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "peer", "show"))
    parser.add_argument("kind", nargs="?", choices=tuple(EPSILONS), default="fitted")
    parser.add_argument("--tables", nargs="+", choices=[*FITTED, *JUDGED])
    arguments = parser.parse_args()
    if arguments.what == "show":
        from benchmarks.tables_page import show

        show()
    else:
        run(arguments)


if __name__ == "__main__":
    main()
