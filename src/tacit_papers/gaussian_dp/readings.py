"""Which settings drew Figure 4: whole curves at those of the caption and of two rows of Table 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import lines_svg
from tacit_papers.gaussian_dp.tables import KEY, NUMBERS
from tacit_papers.runs import history_task

_FIGURE = NUMBERS["figure_4"]
_PANELS, _CURVES = ("top", "bottom"), ("moments", "clt")
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


def _tasks(size: str) -> list[Task]:
    """Every curve at every setting; none at quick size."""
    return [_task(panel, curve, each) for panel, curve, each in _runs()] if size == "full" else []


def _runs() -> list[tuple[str, str, Settings]]:
    return [(panel, curve, each) for panel in _PANELS for curve in _CURVES for each in SETTINGS]


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


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
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


def _drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
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


ITEM = Item("figure-4-readings", "which settings drew Figure 4", _tasks, _rows, _drawings, partial=True)
