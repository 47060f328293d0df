"""Figure 4: accuracy and epsilon by epoch, at the moments accountant's noise and at what the CLT allows instead.

Which settings drew it: whole curves at those of the caption and of two rows of Table 1.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from tacit.standing import Standing
from tacit.sweeps import Task
from tacit_papers.base import Item, Row, history_task
from tacit_papers.drawing import lines_svg
from tacit_papers.gaussian_dp.privacy import COLUMNS, WORDS, curve_task, matched_task, standing
from tacit_papers.gaussian_dp.tables import KEY, NUMBERS

_FIGURE = NUMBERS["figure_4"]
_PANELS = ("top", "bottom")
_CURVES = ("moments", "clt", "nonprivate")
_QUICK_EPOCHS = 2
_COSTS = 3


def _tasks(size: str) -> list[Task]:
    """Noise and epsilon of both panels, then the noisy runs, then the one without noise, which serves both."""
    tasks: list[Task] = []
    for panel in _PANELS:
        numbers = _FIGURE[panel]
        epochs = list(range(1, numbers["epochs"] + 1, 1 if size == "full" else numbers["epochs"] - 1))
        tasks.append(matched_task(numbers["sigma"], numbers["epochs"]))
        tasks += [curve_task(sigma, epochs) for sigma in (numbers["sigma"], numbers["matched_sigma"])]
    if size == "quick":
        return [*tasks, _run("top", "sigma", _QUICK_EPOCHS, 7.0)]
    noisy = [
        _run(panel, name, _FIGURE[panel]["epochs"], 4.0, engine="compiled")
        for panel in _PANELS
        for name in ("sigma", "matched_sigma")
    ]
    epochs, rate = max(_FIGURE[panel]["epochs"] for panel in _PANELS), _FIGURE["learning_rate"]
    plain = history_task("mnist", 0, seconds=2.6 * epochs, private=False, epochs=epochs, nonprivate_learning_rate=rate)
    return [*tasks, *noisy, plain]


def _run(panel: str, noise: str, epochs: int, seconds: float, **settings: Any) -> Task:
    common = {"learning_rate": _FIGURE["learning_rate"], "clip_norm": _FIGURE["clip_norm"], "epochs": epochs}
    noisy = {"noise_multiplier": _FIGURE[panel][noise]} | settings
    return history_task("mnist", 0, seconds=seconds * epochs, **common, **noisy)


def _runs_of(size: str, index: int, values: Sequence[Any]) -> Sequence[Any]:
    """The runs of a panel in the order of `_CURVES`; without privacy a shorter run is the beginning of a longer one."""
    runs = values[_COSTS * len(_PANELS) :]
    if size == "quick":
        return runs if index == 0 else []
    return [*runs[2 * index : 2 * index + 2], runs[-1]]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    make = partial(Row, KEY, "figure-4")
    rows: list[Row] = []
    for index, panel in enumerate(_PANELS):
        matched, *costs = values[_COSTS * index : _COSTS * (index + 1)]
        runs = _runs_of(size, index, values)
        rows += [*_noise_rows(make, panel, matched), *_cost_rows(make, panel, costs)]
        for name, run in zip(_CURVES, runs, strict=False):
            test = None if run is None else [round(100 * value, 2) for value in run["test"]]
            rows += _accuracy_rows(make, f"{panel}, {name}: ", _FIGURE[panel][name], test, size)
        if size == "full" and panel == "bottom":
            rows += [*_text_rows(make, runs, costs), _last_row(make, runs[-1])]
    return rows


def _noise_rows(make: Any, panel: str, matched: Mapping[str, float] | None) -> Iterator[Row]:
    if matched is None:
        return
    numbers, allowed = _FIGURE[panel], _FIGURE["tolerance"]["matched_sigma"]
    prefix = f"{panel}, sigma {numbers['sigma']}: noise that"
    words = f"{prefix} the CLT allows at the same epsilon", f"{prefix} is proven enough at the same epsilon"
    yield make(words[0], numbers["matched_sigma"], matched["clt"], allowed, Standing.ASYMPTOTIC)
    yield make(words[1], None, matched["exact"], None, Standing.PROVEN)


def _cost_rows(make: Any, panel: str, costs: Sequence[Any]) -> Iterator[Row]:
    """What the caption states of the last epoch: one epsilon for both noises, each by its accountant, and mu."""
    numbers = _FIGURE[panel]
    allowed = _FIGURE["tolerance"] | numbers["tolerance"]
    stated = (("sigma", "moments", "epsilon"), ("matched_sigma", "clt", "epsilon"), ("matched_sigma", "mu", "mu"))
    for noise, column, name in stated:
        cost = costs[0 if noise == "sigma" else 1]
        if cost is not None:
            words = f"{panel}, sigma {numbers[noise]}, {numbers['epochs']} epochs: {WORDS[column]}"
            yield make(words, numbers[name], cost[column][-1], allowed[column], standing(column))


def _accuracy_rows(make: Any, prefix: str, curve: list[float], test: list[float] | None, size: str) -> Iterator[Row]:
    """Some epochs of a run; those with noise are shown, and compared as whole curves by `READINGS`."""
    full = size == "full"
    allowed = _FIGURE["tolerance"]["accuracy"] if full and "nonprivate" in prefix else None
    for epoch in sorted({min(epoch, len(curve)) for epoch in (_QUICK_EPOCHS, 10, 30, 70)} if full else {_QUICK_EPOCHS}):
        ours, words = test and test[epoch - 1], f"{prefix}test accuracy % after epoch {epoch}"
        yield make(words, curve[epoch - 1], ours, allowed, repeats=int(test is not None))


def _last_row(make: Any, run: Any) -> Row:
    epochs, allowed = _FIGURE["bottom"]["epochs"], _FIGURE["tolerance"]["accuracy"]
    ours = None if run is None else round(100 * run["test"][epochs - 1], 2)
    words = f"bottom, nonprivate: test accuracy % after epoch {epochs}"
    return make(words, _FIGURE["bottom"]["nonprivate_end"], ours, allowed, repeats=int(run is not None))


def _text_rows(make: Any, runs: Sequence[Any], costs: Sequence[Any]) -> Iterator[Row]:
    """What section 4 reads off the lower panel: when a run is that accurate, and how accurate it is at epsilon 4."""
    for name, run, cost in zip(_CURVES[:2], runs[:2], costs, strict=True):
        done, test = int(run is not None), [] if run is None else [100 * value for value in run["test"]]
        for level, stated in _FIGURE["reached"].items():
            epoch = next((k for k, value in enumerate(test, 1) if value >= float(level)), None)
            yield make(f"bottom, {name}: first epoch with {level} %", stated[name], epoch, repeats=done)
        if cost is not None:
            epoch = sum(epsilon <= 4.0 for epsilon in cost[name])
            words = f"bottom, {name}: test accuracy % after epoch {epoch}, the last with epsilon at most 4"
            ours = round(test[epoch - 1], 2) if test else None
            yield make(words, _FIGURE["at_epsilon_4"][name], ours, repeats=done)


def _drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """Each half of a panel whose values are all there."""
    if size == "quick":
        return {}
    drawings: dict[str, str] = {}
    for index, panel in enumerate(_PANELS):
        _, *costs = values[_COSTS * index : _COSTS * (index + 1)]
        runs = _runs_of(size, index, values)
        for name, parts, draw in (("accuracy", runs, _accuracy_svg), ("epsilon", costs, _epsilon_svg)):
            if all(part is not None for part in parts):
                drawings[f"figure-4-{panel}-{name}"] = draw(_FIGURE[panel], parts)
    return drawings


def _accuracy_svg(numbers: Mapping[str, Any], runs: Sequence[Any]) -> str:
    labels = (f"sigma {numbers['sigma']}", f"sigma {numbers['matched_sigma']}", "no noise")
    lines = {label: _by_epoch([100 * x for x in run["test"]], numbers) for label, run in zip(labels, runs, strict=True)}
    lines |= {f"paper, {words}": _by_epoch(numbers[words], numbers) for words in ("moments", "clt")}
    return lines_svg(lines, across="epoch", up="test accuracy %", dashed="paper")


def _epsilon_svg(numbers: Mapping[str, Any], costs: Sequence[Any]) -> str:
    lines = {
        f"sigma {sigma}, {words}": _by_epoch(curve[name], numbers)
        for sigma, curve in zip((numbers["sigma"], numbers["matched_sigma"]), costs, strict=True)
        for name, words in COLUMNS.items()
    }
    return lines_svg(lines, across="epoch", up="epsilon at delta 1e-5")


def _by_epoch(values: Sequence[float], numbers: Mapping[str, Any]) -> tuple[list[int], Sequence[float]]:
    """The epochs of a panel: the run that serves both is longer than the upper one."""
    kept = values[: numbers["epochs"]]
    return list(range(1, len(kept) + 1)), kept


ITEM = Item("figure-4", "accuracy and epsilon by epoch at matched noise", _tasks, _rows, _drawings, partial=True)


# First epochs of ours that a reading leaves out: the upper panel's 20 epochs have 19 points.
_LEFT_OUT = {"top": (0, 1, 3), "bottom": (0,)}
_LEFT_OUT_WORDS = {0: "", 1: ", first epoch left out", 3: ", first three epochs left out"}


@dataclass(frozen=True)
class Settings:
    """Settings that the figure may have been drawn with.

    Attributes:
        words: where they stand.
        learning_rate: of the private optimizer.
        clip_norm: bound on the norm of a record's gradient.
    """

    words: str
    learning_rate: float
    clip_norm: float

    def __str__(self) -> str:
        return f"{self.words}: learning rate {self.learning_rate:g}, clip norm {self.clip_norm:g}"


SETTINGS = (
    Settings("caption", _FIGURE["learning_rate"], _FIGURE["clip_norm"]),
    *(
        Settings(f"Table 1, row {place}", row["learning_rate"], row["clip_norm"])
        for place, row in enumerate(NUMBERS["table_1"]["rows"][:2], 1)
    ),
)


def distance(ours: Sequence[float], published: Sequence[float], *, dropped: int = 0) -> float:
    """Root mean square of ours - published over the epochs of both, the first `dropped` of ours left out.

    Example:
        >>> distance([80.0, 91.0, 93.0], [90.0, 94.0], dropped=1)
        1.0
    """
    pairs = zip(ours[dropped:], published, strict=False)
    return math.sqrt(fmean((own - other) ** 2 for own, other in pairs))


def _reading_tasks(size: str) -> list[Task]:
    """Every curve at every setting; none at quick size."""
    return [_task(panel, curve, each) for panel, curve, each in _runs()] if size == "full" else []


def _runs() -> list[tuple[str, str, Settings]]:
    return [(panel, curve, each) for panel in _PANELS for curve in _CURVES[:2] for each in SETTINGS]


def _task(panel: str, curve: str, settings: Settings) -> Task:
    numbers = _FIGURE[panel]
    return history_task(
        "mnist",
        0,
        seconds=4.0 * numbers["epochs"],
        learning_rate=settings.learning_rate,
        clip_norm=settings.clip_norm,
        epochs=numbers["epochs"],
        noise_multiplier=numbers["sigma" if curve == "moments" else "matched_sigma"],
        engine="compiled",
    )


def _reading_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Distances of whole curves, which the paper has no number for: `figure_4.tolerance.accuracy` says which fit."""
    if size != "full":
        return []
    make, rows = partial(Row, KEY, "figure-4-readings"), []
    for (panel, curve, settings), value in zip(_runs(), values, strict=True):
        published = _FIGURE[panel][curve]
        for dropped in _LEFT_OUT[panel]:
            ours = None if value is None else round(_distance(value, published, dropped), 2)
            words = f"{panel}, {curve}, {settings}{_LEFT_OUT_WORDS[dropped]}"
            quantity = f"{words}: root mean square distance of the curves, points"
            rows.append(make(quantity, None, ours, repeats=int(value is not None)))
    return rows


def _distance(value: Mapping[str, Any], published: Sequence[float], dropped: int) -> float:
    return distance([100 * each for each in value["test"]], published, dropped=dropped)


def _reading_drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """Each panel's moments curve at every setting beside the paper's, where all have run."""
    runs = dict(zip(((panel, curve, str(each)) for panel, curve, each in _runs()), values, strict=False))
    drawings: dict[str, str] = {}
    for panel in _PANELS:
        courses = {str(each): runs.get((panel, "moments", str(each))) for each in SETTINGS}
        if any(course is None for course in courses.values()):
            continue
        published = _FIGURE[panel]["moments"]
        first = 1 + _FIGURE[panel]["epochs"] - len(published)
        lines = {
            words: (list(range(1, len(course["test"]) + 1)), [100 * each for each in course["test"]])
            for words, course in courses.items()
            if course is not None
        }
        lines["paper"] = list(range(first, first + len(published))), published
        drawings[f"figure-4-readings-{panel}"] = lines_svg(lines, across="epoch", up="test accuracy %", dashed="paper")
    return drawings


READINGS = Item(
    "figure-4-readings", "which settings drew Figure 4", _reading_tasks, _reading_rows, _reading_drawings, partial=True
)
