"""The rule of `method="auto"` fitted on `FITTED` and judged on `JUDGED`: the tables of docs/auto.md."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.public_tables import CLASSES, FITTED, JUDGED, read
from benchmarks.tables import EPSILONS, METHODS, PEERS, stored
from tacit.calibration import smallest
from tacit.data.answers import EXPECTED
from tacit.erm.base import default_delta
from tacit.erm.gradient import MORE, NUMBERS, TWO, Shape
from tacit.mechanisms import Gaussian
from tacit.serialization import write_text
from tacit.tradeoff import Epsilon

PAGE = Path(__file__).parents[1] / "docs" / "auto.md"
_SIGNALS = (0.0, 3.0, 5.0, 8.0, 12.0, 20.0, 40.0, 60.0, 100.0)
_LEAST = -0.5  # a regression that is worse counts as this: useless is useless

Thresholds = tuple[float, float]
"""Signal of a column from which cosines are taken, and below which, for numbers, objective perturbation is."""


@dataclass(frozen=True)
class Cell:
    """What every method reaches on one table at one epsilon, means over splits."""

    table: str
    shape: Shape
    scores: dict[str, float]
    constant: float
    error: float
    warned: float

    def regret(self, method: str) -> float:
        """What the best of `METHODS` has more than `method`."""
        known = {each: max(self.scores[each], _LEAST) for each in METHODS}
        return max(known.values()) - known[method]


@cache
def shape_of(name: str, epsilon: float) -> Shape:
    """Public shape of the training part of a table."""
    table = read(name)
    records = len(table.rows) * 4 // 5
    kind = NUMBERS if table.task != CLASSES else TWO if table.labels.max() < 2 else MORE
    multiplier = smallest("noise_multiplier", Gaussian, Epsilon(epsilon, default_delta(records))).value
    return Shape(records, table.features()[0].shape[1], 1 / multiplier, kind)


def cells(names: Iterable[str], kind: str) -> list[Cell]:
    """The stored cells of these tables."""
    groups = defaultdict(list)
    for (table, level, method, _), row in stored().items():
        groups[table, level, method].append(row)
    found = []
    for name, level in itertools.product(names, (f"{each:g}" for each in EPSILONS[kind])):
        methods = {method: groups[table, at, method] for table, at, method in groups if (table, at) == (name, level)}
        scores = {method: fmean(float(row["score"]) for row in rows) for method, rows in methods.items()}
        scores["plain"] = fmean(float(row["score"]) for row in groups[name, "inf", "plain"])
        auto = methods["auto"]
        constant, error = (fmean(float(row[each]) for row in auto) for each in ("constant", "error"))
        warned = fmean(float(row["warned"]) for row in auto)
        found.append(Cell(name, shape_of(name, float(level)), scores, constant, error, warned))
    return found


def choice(shape: Shape, thresholds: Thresholds) -> str:
    """The rule with other thresholds."""
    cosines, gradient = thresholds
    if shape.signal >= cosines:
        return "cosines"
    return "gradient" if shape.kind == MORE or (shape.kind == NUMBERS and shape.signal >= gradient) else "objective"


def chosen(shape: Shape) -> str:
    """The rule as it is."""
    return "cosines" if shape.cosines() else shape.method()


def mean_regret(known: Sequence[Cell], rule: Callable[[Shape], str]) -> float:
    """Mean of `Cell.regret`."""
    return fmean(each.regret(rule(each.shape)) for each in known)


def fitted(known: Sequence[Cell]) -> Thresholds:
    """The thresholds of least mean regret; of those alike the largest."""
    grid = itertools.product(_SIGNALS, _SIGNALS)
    return min(grid, key=lambda each: (round(mean_regret(known, lambda shape: choice(shape, each)), 5), -sum(each)))


def left_out(known: Sequence[Cell]) -> float:
    """Mean regret on each table of the thresholds fitted on the others."""
    found = []
    for name in dict.fromkeys(each.table for each in known):
        rule = fitted([each for each in known if each.table != name])
        found += [each.regret(choice(each.shape, rule)) for each in known if each.table == name]
    return fmean(found)


def regrets(known: Sequence[Cell]) -> list[str]:
    """A line for the classifications and one for the regressions."""
    lines = ["| answers | tables | the rule | cross-validated | always " + " | always ".join(METHODS) + " |"]
    lines.append("|---" * (len(METHODS) + 4) + "|")
    for told, kinds in (("classes", (TWO, MORE)), ("numbers", (NUMBERS,))):
        some = [each for each in known if each.shape.kind in kinds]
        always = [mean_regret(some, lambda _, method=method: method) for method in METHODS]
        numbers = [mean_regret(some, chosen), left_out(some), *always]
        tables = len({each.table for each in some})
        lines.append(f"| {told} | {tables} | " + " | ".join(f"{100 * each:.2f}" for each in numbers) + " |")
    return lines


def warnings_told(known: Sequence[Cell]) -> list[str]:
    """How many tables are near the constant answer at each epsilon, and what was warned of in most splits."""
    lines = ["| epsilon | near the constant | of these warned | warned falsely |", "|---|---|---|---|"]
    for place, level in enumerate(EPSILONS["fitted"]):
        some = known[place :: len(EPSILONS["fitted"])]
        near = {each.table for each in some if each.scores["auto"] - each.constant <= each.error}
        warned = {each.table for each in some if each.warned > 0.5}
        falsely = ", ".join(sorted(warned - near))
        lines.append(
            f"| {level:g} | {len(near)} | {len(near & warned)} | {len(warned - near)}{f': {falsely}' * bool(falsely)} |"
        )
    return lines


def kept(known: Sequence[Cell]) -> list[str]:
    """The middle half of what `auto` keeps of the lead that scikit-learn has: `tacit.data.answers.EXPECTED`."""
    lines = ["| answers | n mu / p below | cells | kept, % |", "|---|---|---|---|"]
    for told, kinds in (("classification", (TWO, MORE)), ("regression", (NUMBERS,))):
        least = 0.0
        for most, _, _ in EXPECTED[told]:
            shares = [
                (each.scores["auto"] - each.constant) / (each.scores["plain"] - each.constant)
                for each in known
                if each.shape.kind in kinds
                and least <= each.shape.signal < most
                and each.scores["plain"] - each.constant > 2 * each.error
            ]
            low, high = np.quantile(shares, [0.25, 0.75])
            lines.append(f"| {told} | {most:g} | {len(shares)} | {100 * low:.0f} to {100 * high:.0f} |")
            least = most
    return lines


def judged(known: Sequence[Cell]) -> list[str]:
    """The five methods at epsilon 1, the choice of the rule in bold, what it reached; diffprivlib and no privacy."""
    peers = [f"diffprivlib {each}" for each in PEERS]
    heads = ["table", *METHODS, "auto", "best of diffprivlib", "constant", "not private"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    leads = []
    for place, each in enumerate(known):
        best = max(each.scores[peer] for peer in peers if peer in each.scores)
        leads.append(best - each.scores["auto"])
        shown = {method: _told(each.scores.get(method)) for method in (*METHODS, "auto")}
        shown[chosen(each.shape)] = f"**{shown[chosen(each.shape)]}**"
        ends = [_told(best), _told(each.constant), _told(each.scores["plain"])]
        if EPSILONS["judged"][place % len(EPSILONS["judged"])] == 1:
            lines.append(f"| {each.table} | " + " | ".join([*shown.values(), *ends]) + " |")
    return [*lines, "", f"The largest lead of a model of diffprivlib over `auto`: {100 * max(leads):.1f} points."]


def _told(score: float | None) -> str:
    if score is None:
        return ""
    return "< -1" if score < -1 else f"{score:.3f}"


def show() -> None:
    """Print and write the tables between the marks of the page."""
    known = cells(FITTED, "fitted")
    parts = {
        "regret": regrets(known),
        "warnings": warnings_told(known),
        "kept": kept(known),
        "judged": judged(cells(JUDGED, "judged")),
    }
    for told, kinds in (("classes", (TWO, MORE)), ("numbers", (NUMBERS,))):
        print(told, "thresholds of least regret:", fitted([each for each in known if each.shape.kind in kinds]))
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in parts.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, after = text[: text.index(start) + len(start)], text[text.index(end) :]
        text = "\n".join((before, "", *lines, "", after))
        print("\n".join(lines))
    write_text(PAGE, text)
