"""Totals of a grid search and of a cross-validation that share a registry, by the way in which their fits ran.

    python benchmarks/searches.py --save benchmarks/results/searches.json

Each row runs the same search (two settings, three folds) or the same validation (three folds) on a data set of its own
in a new registry, and prints how many entries were charged and the total by `pld`. Ray is left out where it is not
installed. "two shells" starts two processes that each make one half of the fits of a search at the same time.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from joblib import parallel_config
from sklearn.model_selection import GridSearchCV, cross_val_score

from tacit.budget import DatasetBudget, Registry
from tacit.erm import DPLogisticRegression
from tacit.serialization import json_text, write_text

_DELTA = 1e-5
_X = np.random.default_rng(0).uniform(-0.5, 0.5, (150, 2))
_Y = (_X[:, 0] > 0).astype(int)
_GRID = {"regularization": [0.1, 1.0]}
_HALF = "--half"


def main() -> None:
    """Run every way and print its totals; the exit status tells whether they agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, help="file for the rows")
    parser.add_argument(_HALF, nargs=2, metavar=("REGISTRY", "VALUE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.half is not None:
        _half(Registry(given.half[0]).dataset("survey"), float(given.half[1]))
        return
    rows = [row for what in ("search", "validation") for row in _rows(what)]
    for row in rows:
        print(f"{row['what']}, {row['way']}: {row['entries']} entries, epsilon {row['epsilon']:.6f}, {row['standing']}")
    if given.save is not None:
        write_text(given.save, json_text(rows))
    alike = {what: {(row["entries"], row["epsilon"]) for row in rows if row["what"] == what} for what in _ACTS}
    raise SystemExit(any(len(totals) > 1 for totals in alike.values()))


def _search(dataset: DatasetBudget, jobs: int | None) -> None:
    GridSearchCV(_model(dataset), _GRID, cv=3, n_jobs=jobs, refit=False).fit(_X, _Y)


def _validation(dataset: DatasetBudget, jobs: int | None) -> None:
    cross_val_score(_model(dataset), _X, _Y, cv=3, n_jobs=jobs)


_ACTS: dict[str, Callable[[DatasetBudget, int | None], None]] = {"search": _search, "validation": _validation}


def _rows(what: str) -> Iterator[dict[str, Any]]:
    act = _ACTS[what]
    for jobs in (1, 2):
        yield _row(what, f"n_jobs={jobs}", lambda dataset, jobs=jobs: act(dataset, jobs))
    for backend in ("loky", "multiprocessing", "threading"):

        def within(dataset: DatasetBudget, backend: str = backend) -> None:
            with parallel_config(backend=backend, n_jobs=2):
                act(dataset, None)

        yield _row(what, f"joblib {backend}", within)
    if importlib.util.find_spec("ray") is not None:
        yield _row(what, "Ray", lambda dataset: _on_ray(dataset, act))
    if what == "search":
        yield _row(what, "two shells", _two_shells)


def _row(what: str, way: str, run: Callable[[DatasetBudget], None]) -> dict[str, Any]:
    with _registry() as registry:
        run(registry.declare("survey"))
        dataset = Registry(registry.store.path).dataset("survey")
        spent = dataset.spent()
        total = round(float(spent.epsilon(_DELTA)), 9)
        entries = dataset.total().steps
    return {"what": what, "way": way, "entries": entries, "epsilon": total, "standing": spent.standing.value}


@contextmanager
def _registry() -> Iterator[Registry]:
    with tempfile.TemporaryDirectory() as folder:
        yield Registry.create(f"{folder}/budget.sqlite")


def _model(dataset: DatasetBudget, **given: Any) -> DPLogisticRegression:
    settings = {"epsilon": 0.2, "delta": 1e-6, "classes": [0, 1], "norm_bound": 1.0, "public_size": 100}
    return DPLogisticRegression(**settings, ledger=dataset.ledger("search"), **given)


def _on_ray(dataset: DatasetBudget, act: Callable[[DatasetBudget, int | None], None]) -> None:
    import ray
    from ray.util.joblib import register_ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    register_ray()
    try:
        with parallel_config(backend="ray", n_jobs=2):
            act(dataset, None)
    finally:
        ray.shutdown()


def _two_shells(dataset: DatasetBudget) -> None:
    """One process for each value of the grid."""
    command = [sys.executable, __file__, _HALF, str(dataset.store.path)]
    running = [subprocess.Popen([*command, str(value)], env=os.environ) for value in _GRID["regularization"]]
    if sum(process.wait() != 0 for process in running):
        raise RuntimeError("a shell failed")


def _half(dataset: DatasetBudget, value: float) -> None:
    cross_val_score(_model(dataset, regularization=value), _X, _Y, cv=3)


if __name__ == "__main__":
    main()
