"""Line drawings of the papers' figures as files that stand alone."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_COLOURS = (
    "#1f5fa8", "#b5482a", "#3c7d3c", "#7a4f9a", "#8a6d1c", "#4a4a4a", "#d17fb2", "#2b9c9c", "#e0a32e", "#8fb7e0",
)  # fmt: skip
_LEGEND_INSIDE = 4

Points = tuple[Sequence[float] | Any, Sequence[float] | Any]


def lines_svg(
    lines: Mapping[str, Points],
    *,
    across: str,
    up: str,
    log_across: bool = False,
    log_up: bool = False,
    square: bool = False,
    dashed: str = "",
    bars: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """An SVG file of labelled lines.

    Args:
        lines: label -> (x, y).
        across: label of the horizontal axis.
        up: label of the vertical axis.
        log_across: a logarithmic horizontal axis.
        log_up: a logarithmic vertical axis.
        square: both axes from 0 to 1.
        dashed: lines whose label begins so are dashed.
        bars: label -> half-widths of error bars.
    """
    import matplotlib
    from matplotlib.figure import Figure

    crowded = len(lines) > _LEGEND_INSIDE
    with matplotlib.rc_context(_STYLE):
        width, height = (4.4, 4.2) if square else (5.6, 3.4)
        figure = Figure(figsize=(width + 1.6 * crowded, height), layout="constrained")
        axes = figure.add_subplot()
        _draw(axes, lines, dashed, bars or {})
        axes.set(xlabel=across, ylabel=up)
        _scale(axes, log_across, log_up)
        if square:
            axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        (figure if crowded else axes).legend(
            loc="outside right upper" if crowded else "best", frameon=False, fontsize=8
        )
        return _svg(figure)


@dataclass(frozen=True)
class Panel:
    """One panel of a figure.

    Attributes:
        title: above it.
        lines: label -> (x, y); a label has the same colour in every panel.
        up: label of the vertical axis.
        log_up: a logarithmic vertical axis.
    """

    title: str
    lines: Mapping[str, Points]
    up: str
    log_up: bool = False


def panels_svg(
    panels: Sequence[Panel], *, columns: int, across: str, log_across: bool = False, dashed: Sequence[str] = ()
) -> str:
    """An SVG file of panels in rows of `columns`, with one legend for all of them.

    Args:
        panels: from left to right, row by row.
        columns: panels in a row, >= 1.
        across: label of the horizontal axis.
        log_across: a logarithmic horizontal axis.
        dashed: labels of lines that are dashed.
    """
    import matplotlib
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(label for panel in panels for label in panel.lines))
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(3.1 * columns, 2.5 * rows + 0.7), layout="constrained")
        for place, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, place + 1)
            for label, points in panel.lines.items():
                _draw(axes, {label: points}, label if label in dashed else "", {}, labels.index(label))
            axes.set(title=panel.title, ylabel=panel.up)
            if place + columns >= len(panels):
                axes.set_xlabel(across)
            _scale(axes, log_across, panel.log_up)
        known = {
            label: handle
            for axes in figure.axes
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            [known[label] for label in labels],
            labels,
            loc="outside lower center",
            ncols=min(len(labels), columns),
            frameon=False,
            fontsize=8,
        )
        return _svg(figure)


_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tacit",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def _draw(
    axes: Any, lines: Mapping[str, Points], dashed: str, bars: Mapping[str, Sequence[float]], first: int = 0
) -> None:
    for colour, (label, (x, y)) in zip((_COLOURS * 3)[first:], lines.items(), strict=False):
        axes.errorbar(
            x,
            y,
            yerr=bars.get(label),
            color=colour,
            linestyle="--" if dashed and label.startswith(dashed) else "-",
            label=label,
            linewidth=1.5,
            capsize=2,
            marker="o" if len(x) < 12 else "",
            markersize=3,
        )


def _scale(axes: Any, log_across: bool, log_up: bool) -> None:
    if log_across:
        axes.set_xscale("log")
        _plain_numbers(axes.xaxis)
    if log_up:
        axes.set_yscale("log")
        _plain_numbers(axes.yaxis)
    axes.grid(color="#cccccc", linewidth=0.4)


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    nothing: Any = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=nothing)
    return buffer.getvalue()


def _plain_numbers(axis: Any) -> None:
    """Ticks at 1, 2 and 5 below two decades, and no powers: 0.2 is read faster than 2 x 10^-1."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
