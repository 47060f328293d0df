"""The calibration curve of two classes: share of the second class against its predicted chance, with its band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tacit.reports.plots import axes_of
from tacit.reports.svg import INK, inline_svg, settings

Rows = Sequence[Mapping[str, float]]
_SIZE = (4.6, 4.4)  # inches
_KEYS = ("start", "end", "predicted", "share", "low", "high")


def drawable(rows: Rows) -> Rows:
    """The rows that have a band; none of a card that was written before there was one."""
    return [row for row in rows if all(isinstance(row.get(key), int | float) for key in _KEYS)]


def calibration_svg(rows: Rows) -> str:
    """The curve as inline SVG for the card."""
    with settings("calibration"):
        figure, axes = axes_of(_SIZE, *LABELS)
        draw_calibration(axes, rows, INK)
        return inline_svg(figure, description="Share of the second class against its predicted chance, with its band.")


LABELS = ("predicted chance of the second class", "share of the second class")


def draw_calibration(axes: Any, rows: Rows, ink: Mapping[str, str]) -> None:
    """Draw the diagonal, and of each bin that has rows its band as a box and its mean as a point.

    Points are joined where bins are neighbours; between others there are no data, and nothing is drawn.

    Args:
        axes: of matplotlib.
        rows: as in `Card.calibration`, with a band.
        ink: colour of each name.
    """
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.plot([0, 1], [0, 1], color=ink["faint"], linewidth=0.8)
    for row in rows:
        sides = [row["start"], row["end"]]
        axes.fill_between(sides, row["low"], row["high"], color=ink["private"], alpha=0.18, linewidth=0)
    for one, other in pairwise(rows):
        if other["start"] <= one["end"] + 1e-9:
            ends = [one["predicted"], other["predicted"]], [one["share"], other["share"]]
            axes.plot(*ends, color=ink["private"], linewidth=1.6)
    points = [row["predicted"] for row in rows], [row["share"] for row in rows]
    axes.plot(*points, color=ink["private"], marker="o", markersize=4, linestyle="none", clip_on=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
