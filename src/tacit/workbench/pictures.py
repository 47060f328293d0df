"""Trade-off curves as SVG, drawn on the server in a millisecond; colours follow the page."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from tacit.workbench.runs import ALPHA

_SIZE, _MARGIN = 360, 44
DASHES = ("", "8 4", "2 3", "10 3 2 3", "5 5", "1 5")
"""Dash pattern of each curve, so that none is told by its colour alone."""


def tradeoff_svg(curves: Sequence[tuple[str, np.ndarray]]) -> str:
    """Type I against type II errors; `curves` are (label, type II errors at `ALPHA`), drawn with `DASHES` in order."""
    parts = [_axes()]
    for index, (_, beta) in enumerate(curves):
        points = " ".join(f"{_x(a):.1f},{_y(b):.1f}" for a, b in zip(ALPHA, beta, strict=True))
        dash = DASHES[index % len(DASHES)]
        parts.append(
            f'<polyline class="curve curve-{index % len(DASHES)}" points="{points}" stroke-dasharray="{dash}"/>'
        )
    names = ", ".join(label for label, _ in curves)
    told = html.escape(f"Certified trade-off curves of {names}: type I against type II error.")
    return f'<svg viewBox="0 0 {_SIZE} {_SIZE}" role="img" aria-label="{told}">{"".join(parts)}</svg>'


def swatch_svg(index: int) -> str:
    """The line of curve `index`, for a legend."""
    dash = DASHES[index % len(DASHES)]
    line = f'<polyline class="curve curve-{index % len(DASHES)}" points="0,5 40,5" stroke-dasharray="{dash}"/>'
    return f'<svg class="swatch" viewBox="0 0 40 10" aria-hidden="true">{line}</svg>'


def _axes() -> str:
    low, high = _MARGIN, _SIZE - 12
    foot = _SIZE - low
    lines = f'<path class="axis" d="M{low} 12V{foot}H{high}"/><path class="guess" d="M{low} 12L{high} {foot}"/>'
    marks = []
    for value in (0, 0.5, 1):
        marks.append(f'<text x="{_x(value):.0f}" y="{_SIZE - low + 16}" text-anchor="middle">{value:g}</text>')
        marks.append(f'<text x="{low - 6}" y="{_y(value) + 4:.0f}" text-anchor="end">{value:g}</text>')
    across = f'<text x="{(low + high) / 2}" y="{_SIZE - 8}" text-anchor="middle">type I error (false alarms)</text>'
    middle = (_SIZE - low) / 2
    turned = f'text-anchor="middle" transform="rotate(-90 12 {middle})"'
    up = f'<text x="12" y="{middle}" {turned}>type II error (missed)</text>'
    return lines + "".join(marks) + across + up


def _x(alpha: float) -> float:
    return _MARGIN + float(alpha) * (_SIZE - 12 - _MARGIN)


def _y(beta: float) -> float:
    return 12 + (1 - float(beta)) * (_SIZE - _MARGIN - 12)
