"""Figures 1 to 13: accuracy loss and leakage of each calibration, against epsilon asked, exact epsilon and sigma."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean
from typing import Any

from scipy.stats import binom

from tacit.attacks import approximate_bound
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import lines_svg
from tacit_papers.evaluating_dp.privacy import DELTA, EPSILONS, KEY, LABELS, METHODS, NUMBERS, protocol, standing

_DATA = {"cifar": "cifar100_pca50", "purchase": "purchase_standin"}
_QUANTITIES = {
    "accuracy_loss": "accuracy loss",
    "yeom": "advantage, loss threshold (Yeom et al.)",
    "shokri": "advantage, shadow models (Shokri et al.)",
    "attribute": "advantage, attribute inference (Yeom et al.)",
}
_MORE = {
    "train": "training accuracy",
    "test": "test accuracy",
    "yeom_ppv": "PPV of the loss threshold",
    "yeom_ppv_10": "PPV of the loss threshold where a tenth of the records are members",
    "yeom_ppv_1": "PPV of the loss threshold where a hundredth of the records are members",
    "found": "members that a run flags",
    "flagged": "records that a run flags",
    "first_two_flagged": "records flagged in both of the first two runs",
    "first_two": "members flagged in both of the first two runs",
    "first_two_ppv": "PPV of those flagged in both of the first two runs",
    "all_runs": "members flagged in every run",
    "all_runs_ppv": "PPV of those flagged in every run",
}
_ACROSS = {"nominal": "epsilon asked", "exact": "exact epsilon", "sigma": "noise multiplier"}
_SECONDS = {"lr": 4.0, "nn": 12.0}
_ENGINES = {"quick": {"lr": "eager", "nn": "eager"}, "full": {"lr": "recorded", "nn": "compiled"}}

Cell = tuple[str, float]
_OPEN: Cell = ("none", 0.0)


def _cells(model: str, size: str) -> list[Cell]:
    """(method, epsilon), the run without privacy first; networks at quick size by one calibration alone."""
    epsilons = EPSILONS[size]
    if size == "quick" and model == "nn":
        return [_OPEN, ("rdp", epsilons[-1])]
    return [_OPEN, *((method, epsilon) for method in METHODS for epsilon in epsilons)]


def _planned(data: str, model: str, size: str) -> list[Cell]:
    """The cells that run: the stand-in's labels take too long for quick size."""
    return [] if size == "quick" and data == "purchase" else _cells(model, size)


def _tasks(data: str, model: str, size: str) -> list[Task]:
    """Full size: five runs of a setting and the shadow models."""
    sizes, engine = protocol(size), {"engine": _ENGINES[size][model]}
    seconds = 1.0 if size == "quick" else _SECONDS[model] * sizes["runs"]
    return [
        Task(
            "tacit_papers.evaluating_dp.leakage:leakage",
            {"dataset": _DATA[data], "model": model, "method": method, "epsilon": epsilon} | sizes | engine,
            seconds,
            reads_data=True,
        )
        for method, epsilon in _planned(data, model, size)
    ]


def _summary(cells: Sequence[Cell], values: Sequence[Any], records: int) -> dict[Cell, dict[str, float]]:
    """Means over the runs of every cell that has run; the accuracy loss is against the first, without privacy."""
    done = {cell: _means(value, records) for cell, value in zip(cells, values, strict=True) if value is not None}
    if _OPEN in done:
        for row in done.values():
            row["accuracy_loss"] = 1 - row["test"] / done[_OPEN]["test"]
    return done


def _means(value: Mapping[str, Any], records: int) -> dict[str, float]:
    """What `leakage` found, each quantity as one number; `records` members were attacked, and as many others."""
    several = len(value["overlap"]) > 1
    shared = {"first_two": value["first_two"], "all_runs": value["overlap"][-1]} if several else {}
    found = {name: each for name, each in value.items() if name not in ("first_two", "overlap", "at_fpr")}
    rows = {"repeats": float(len(value["test"]))}
    rows |= {name: mean(each) if isinstance(each, list) else each for name, each in found.items()}
    rows |= {name: float(members) for name, (members, _) in shared.items()}
    rows |= {f"{name}_flagged": float(members + others) for name, (members, others) in shared.items()}
    rows |= {f"{name}_ppv": members / max(1, members + others) for name, (members, others) in shared.items()}
    tpr, fpr = rows["yeom_tpr"], rows["yeom_fpr"]
    rows |= {"found": records * tpr, "flagged": records * (tpr + fpr)}
    return rows | {"yeom_ppv_10": _ppv(tpr, fpr, 0.1), "yeom_ppv_1": _ppv(tpr, fpr, 0.01)}


def _ppv(tpr: float, fpr: float, prior: float) -> float:
    """PPV where a fraction `prior` of the records are members (section 5.4 of the paper)."""
    flagged = prior * tpr + (1 - prior) * fpr
    return prior * tpr / flagged if flagged else 0.0


def _rows(data: str, model: str, size: str, values: Sequence[Any]) -> list[Row]:
    """What was measured at every setting; where the paper states a value, it is compared at full size."""
    make, rows, cells = partial(Row, KEY, f"{data}-{model}"), [], _planned(data, model, size)
    stated = _stated(data, model) if size == "full" else {}
    done = _summary(cells, values, protocol(size)["records"])
    for method, epsilon in cells:
        prefix = "without privacy: " if method == "none" else f"{LABELS[method]}, epsilon {epsilon:g}: "
        found = done.get((method, epsilon), {})
        repeats = int(found.get("repeats", 0))
        for name, words in (_QUANTITIES | _MORE).items():
            cell = stated.get((method, epsilon, name), {})
            value, note = cell.get("value"), " (published value derived)" if cell.get("derived") else ""
            if name in found or value is not None:
                compared = (value, found.get(name), cell.get("tolerance"))
                rows.append(make(f"{prefix}{words}{note}", *compared, repeats=repeats))
        if found and method != "none":
            exact = found["add_remove"]
            most = approximate_bound(exact, DELTA)
            rows.append(make(f"{prefix}noise multiplier", None, found["sigma"], standing=standing(method)))
            rows.append(make(f"{prefix}exact epsilon", None, exact, standing=Standing.PROVEN))
            rows.append(make(f"{prefix}largest advantage it allows", None, most, standing=Standing.PROVEN))
    return rows


def _stated(data: str, model: str) -> dict[tuple[str, float, str], Mapping[str, Any]]:
    """Published cells by method, epsilon and quantity."""
    cells = NUMBERS["stated"][f"{data}-{model}"]["cells"]
    return {(cell["method"], cell.get("epsilon", 0.0), cell["quantity"]): cell for cell in cells}


def _drawings(data: str, model: str, size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """Every quantity against the epsilon asked, as in the paper, and against the exact epsilon and sigma."""
    cells, drawn = _planned(data, model, size), {}
    done = _summary(cells, values, protocol(size)["records"])
    if len({method for method, _ in done}) <= len(METHODS):
        return {}
    for quantity, words in _QUANTITIES.items():
        if any(quantity not in found for found in done.values()):
            continue
        for across, axis in _ACROSS.items():
            lines = {}
            for method in METHODS:
                points = [
                    (epsilon, done[name, epsilon])
                    for name, epsilon in cells
                    if name == method and (name, epsilon) in done
                ]
                xs = [_place(across, epsilon, point) for epsilon, point in points]
                lines[LABELS[method]] = (xs, [point[quantity] for _, point in points])
            svg = lines_svg(lines, across=axis, up=words, log_across=True)
            drawn[f"{data}-{model}-{quantity.replace('_', '-')}-by-{across}"] = svg
    overlap = _overlap_svg(dict(zip(cells, values, strict=True)), size)
    return drawn | ({f"{data}-{model}-overlap": overlap} if overlap else {})


def _overlap_svg(values: Mapping[Cell, Any], size: str) -> str:
    """Who the loss threshold flags in at least k runs, and how often fair coins would (Figures 4, 8, 11b, 13b)."""
    records = protocol(size)["records"]
    cells = {"without privacy": _OPEN, "RDP, largest epsilon": ("rdp", EPSILONS[size][-1])}
    if any(values.get(cell) is None or len(values[cell]["overlap"]) < 2 for cell in cells.values()):
        return ""
    runs = len(values[_OPEN]["overlap"])
    times = list(range(1, runs + 1))
    lines: dict[str, Any] = {}
    for label, cell in cells.items():
        overlap = values[cell]["overlap"]
        lines[f"members, {label}"] = (times, [members / records for members, _ in overlap])
        lines[f"others, {label}"] = (times, [others / records for _, others in overlap])
    lines["fair coins"] = (times, [float(binom.sf(least - 1, runs, 0.5)) for least in times])
    return lines_svg(lines, across="flagged in at least so many runs", up="fraction of the records", dashed="others")


def _place(across: str, epsilon: float, found: Mapping[str, float]) -> float:
    return {"nominal": epsilon, "exact": found["add_remove"], "sigma": found["sigma"]}[across]


def _item(data: str, model: str, title: str) -> Item:
    return Item(
        f"{data}-{model}",
        title,
        partial(_tasks, data, model),
        partial(_rows, data, model),
        partial(_drawings, data, model),
        partial=True,
    )


ITEMS = (
    _item("cifar", "lr", "CIFAR-100, logistic regression: accuracy loss and leakage (Figures 1 to 4)"),
    _item("purchase", "lr", "Stand-in for Purchase-100, logistic regression (Figures 5 to 8)"),
    _item("cifar", "nn", "CIFAR-100, neural network (Figures 9 to 11)"),
    _item("purchase", "nn", "Stand-in for Purchase-100, neural network (Figures 12 and 13)"),
)
