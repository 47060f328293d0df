"""Adult logistic regression: accuracy, time of one fit, and diffprivlib's LogisticRegression at the same guarantee.

    python benchmarks/erm.py --table pure [--data-dir DIR] [--repeats 10]     every pure method, replace-one
    python benchmarks/erm.py --table proven [--variants exact ...]            the other proven ones at .1 and .25
    python benchmarks/erm.py --table all --repeats 3                          every method, every epsilon
    python benchmarks/erm.py --strengths --repeats 3                          output perturbation, other strengths
    python benchmarks/erm.py --solver                                         500,000 rows x 100 columns
    python benchmarks/erm.py --write FOLDER --repeats 10                      the splits as .npz, for --peer
    python benchmarks/erm.py --peer FOLDER                                    diffprivlib, in an environment that has it
    python benchmarks/erm.py --compare FILE                                   stored pure methods less diffprivlib

`--store FILE` adds the result to a JSON file of results; benchmarks/results/erm.json is ours. All settings are the
defaults: declared bounds, the row norm that one-hot groups allow, delta min(1e-5, n^-1.1) or 0. `--features centred`
subtracts public constants (1 / m from a one-hot group of m, 1/2 from a scaled number) and takes logarithms of the two
capital columns. diffprivlib gets the same splits as unit rows, the constant inside, and data_norm=1: with longer rows
its volume term takes ||x|| for ||x||^2, and its proof does not hold. `--write --features ball` are the rows that our
estimators make of the declared bounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from tacit_papers.input_perturbation.tables import resplit

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
TARGETED = (0.1, 0.25)
CONSTANT = 0.5
STRENGTHS = (0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--features", choices=("plain", "ball", "centred"), default="plain")
    parser.add_argument("--relation", default="add_remove")
    parser.add_argument("--table", choices=("pure", "proven", "all"))
    parser.add_argument("--variants", nargs="*", help="only these of the table")
    parser.add_argument("--strengths", action="store_true")
    parser.add_argument("--solver", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--store", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.compare is not None:
        compare(json.loads(given.compare.read_text()))
        return
    if given.write is not None:
        write(given)
        return
    if given.solver:
        name, found = "solver", solver()
    elif given.strengths:
        name, found = "output chaudhuri, multiples of the automatic strength", strengths(given)
    elif given.peer is not None:
        name, found = f"diffprivlib, {given.peer.name} rows", peer(given.peer)
    elif given.table is not None:
        name, found = f"{given.table}, {given.features} features", table(given)
        name += f", {' and '.join(given.variants)}" if given.variants else ""
    else:
        parser.print_help()
        return
    if given.store is not None:
        store(given.store, name, found)


def store(path, name, found):
    """Put one result beside those that are there, with its command and versions."""
    known = json.loads(path.read_text()) if path.exists() else {}
    versions = {}
    for package in ("tacit", "diffprivlib", "numpy", "scipy", "scikit-learn"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    command = " ".join(["python benchmarks/erm.py", *(Path(word).name for word in sys.argv[1:])])
    known[name] = {"command": command, "versions": versions, "result": found}
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def adult(data_dir, *, centred):
    """The 45,222 complete rows of Adult."""
    from tacit.data import load

    dataset = load("adult_complete", data_dir=data_dir)
    return centre(dataset) if centred else dataset


def centre(dataset):
    """The "centred" features; every constant is declared."""
    names = dataset.feature_names
    groups = [name.partition("=")[0] if "=" in name else None for name in names]
    shift = np.array([1 / groups.count(group) if group else 0.5 for group in groups])
    top = {"capital-gain": 99_999.0, "capital-loss": 5_000.0}

    def moved(x):
        x = x.astype(float)
        for column, high in top.items():
            place = names.index(column)
            x[:, place] = np.log1p(x[:, place] * high) / np.log1p(high)
        return (x - shift).astype(np.float32)

    bounds = (-shift, 1 - shift)
    return replace(dataset, x_train=moved(dataset.x_train), x_test=moved(dataset.x_test), bounds=bounds)


def norm_of(dataset):
    """The longest row: a group of m has norm^2 (1 - s)^2 + (m - 1) s^2, s what was subtracted."""
    low, high = (np.broadcast_to(end, dataset.x_train.shape[1:]) for end in dataset.bounds)
    total, groups = 0.0, {}
    for place, name in enumerate(dataset.feature_names):
        groups.setdefault(name.partition("=")[0], []).append(place)
    for places in groups.values():
        rest = float((low[places] ** 2).sum())
        total += max(rest - low[p] ** 2 + max(high[p] ** 2, low[p] ** 2) for p in places)
    return float(np.sqrt(total))


def estimator(split, seed, method, **settings):
    from tacit.erm import DPLogisticRegression

    return DPLogisticRegression(
        method=method,
        data_bounds=split.bounds,
        norm_bound=norm_of(split),
        classes=[0, 1],
        unsafe_seed=seed,
        **settings,
    )


def strengths(given):
    """Mean accuracy of output perturbation at multiples of the strength that it chooses itself."""
    from tacit_papers.input_perturbation.descent_methods import OutputPerturbation

    dataset = adult(given.data_dir, centred=given.features == "centred")
    splits = [resplit(dataset, seed=seed) for seed in range(given.repeats)]
    pure = {"method": OutputPerturbation(), "delta": 0.0, "relation": "replace_one"}
    found = {}
    for epsilon in (2.0, 5.0, 10.0):
        scores = {factor: [] for factor in STRENGTHS}
        for seed, split in enumerate(splits):
            model = estimator(split, seed, epsilon=epsilon, **pure).fit(split.x_train, split.y_train)
            for factor in STRENGTHS:
                other = estimator(split, seed, epsilon=epsilon, regularization=factor * model.regularization_, **pure)
                other.fit(split.x_train, split.y_train)
                scores[factor].append(100 * other.score(split.x_test, split.y_test))
        found[f"{epsilon:g}"] = {f"{factor:g}": float(np.mean(cell)) for factor, cell in scores.items()}
        print(
            f"epsilon {epsilon:g}: " + "  ".join(f"{k}: {v:.2f}" for k, v in found[f"{epsilon:g}"].items()), flush=True
        )
    return found


def table(given):
    from tacit_papers.input_perturbation.comparison import METHODS, best_logistic

    dataset = adult(given.data_dir, centred=given.features == "centred")
    splits = [resplit(dataset, seed=seed) for seed in range(given.repeats)]
    found = {"without privacy": {"scores": [100 * best_logistic(split) for split in splits]}}
    print(f"without privacy {np.mean(found['without privacy']['scores']):.2f}")
    epsilons = TARGETED if given.table == "proven" else EPSILONS
    print(f"{'method':28s}" + "".join(f"{epsilon:>8g}" for epsilon in epsilons) + "   CPU s, median")
    for method, known in METHODS.items():
        for variant, kind in known.items():
            wanted = {"pure": kind.pure, "proven": kind.standing == "proven" and not kind.pure, "all": True}
            if not wanted[given.table] or variant not in (given.variants or known):
                continue
            scores, times = {}, []
            for epsilon in epsilons:
                scores[f"{epsilon:g}"] = cell = []
                for seed, split in enumerate(splits):
                    relation = "replace_one" if kind.pure else given.relation
                    delta = 0.0 if kind.pure else None
                    model = estimator(split, seed, kind(), epsilon=epsilon, delta=delta, relation=relation)
                    start = time.process_time()
                    model.fit(split.x_train, split.y_train)
                    times.append(time.process_time() - start)
                    cell.append(100 * model.score(split.x_test, split.y_test))
            mark = "" if kind.standing == "proven" else " (claimed)"
            name = f"{method} {variant}{mark}"
            found[name] = {"scores": scores, "cpu_seconds": float(np.median(times))}
            cells = "".join(f"{np.mean(cell):8.2f}" for cell in scores.values())
            print(f"{name:28s}{cells}{np.median(times):8.2f}", flush=True)
    return found


def compare(known):
    """Mean differences on the same splits, with the standard error of the mean."""
    peers = {name: entry["result"] for name, entry in known.items() if name.startswith("diffprivlib")}
    for peer_name, theirs in peers.items():
        print(f"less {peer_name}")
        pure = [entry["result"] for name, entry in known.items() if name.startswith("pure, plain")]
        for name, entry in (pair for result in pure for pair in result.items()):
            if name == "without privacy":
                continue
            cells = []
            for epsilon in map("{:g}".format, EPSILONS):
                scores = entry["scores"][epsilon]
                both = min(len(scores), len(theirs[epsilon]))
                lead = np.subtract(scores[:both], theirs[epsilon][:both])
                cells.append(f"{epsilon}: {lead.mean():+.2f} ({lead.std(ddof=1) / np.sqrt(len(lead)):.2f})")
            print(f"  {name:20s}{both:3d} splits  " + "  ".join(cells))


def solver():
    from tacit.erm.losses import Logistic
    from tacit.erm.solver import Problem, minimise

    rng = np.random.default_rng(0)
    x = rng.normal(size=(500_000, 100))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = (x @ rng.normal(size=100) * 10 + rng.normal(size=500_000) > 0).astype(float)
    start, used = time.perf_counter(), time.process_time()
    problem = Problem(x, y, Logistic(), 50.0)
    theta = minimise(problem)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    norm = float(np.linalg.norm(problem.gradient(theta)))
    print(f"{seconds:.2f} s, CPU {used:.2f} s, gradient norm {norm:.1e}")
    return {"seconds": seconds, "cpu_seconds": used, "gradient_norm": norm}


def write(given):
    """Unit rows with the constant inside."""
    from tacit.erm.design import Design, smallest_ball

    dataset = adult(given.data_dir, centred=given.features == "centred")
    given.write.mkdir(parents=True, exist_ok=True)
    norm, columns = norm_of(dataset), dataset.x_train.shape[1]
    low, high = (np.broadcast_to(end, (columns,)) for end in dataset.bounds)
    ball = smallest_ball(low, high, norm, columns) if given.features == "ball" else (0.0, norm)
    design = Design(low, high, norm, CONSTANT, *ball)
    for seed in range(given.repeats):
        split = resplit(dataset, seed=seed)
        rows, test = design.features(split.x_train), design.features(split.x_test)
        np.savez(given.write / f"{seed}.npz", x=rows, x_test=test, y=split.y_train, y_test=split.y_test)


def peer(folder):
    from diffprivlib.models import LogisticRegression

    found = {}
    for epsilon in EPSILONS:
        found[f"{epsilon:g}"] = scores = []
        for seed, path in enumerate(sorted(folder.glob("*.npz"))):
            data = np.load(path)
            model = LogisticRegression(
                epsilon=epsilon, data_norm=1.0, fit_intercept=False, max_iter=1000, random_state=seed
            ).fit(data["x"], data["y"])
            scores.append(100 * model.score(data["x_test"], data["y_test"]))
        print(f"{epsilon:g}: {np.mean(scores):.2f}", flush=True)
    return found


if __name__ == "__main__":
    main()
