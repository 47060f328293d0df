"""Figures of an audit as inline SVG: advantage against epsilon, and who is flagged in how many runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.attacks import Overlap, approximate_bound, pure_bound
from tacit.audit import AuditResult
from tacit.reports.svg import INK, inline_svg, settings
from tacit.tradeoff import TradeOff

Point = tuple[float, AuditResult]
"""The certified epsilon of a run, and what an attack found in it."""


def advantage_svg(points: Sequence[Point], *, delta: float, claim: TradeOff | None = None) -> str:
    """Advantage against the certified epsilon, with the bounds that a guarantee puts on it.

    Dotted: e^eps - 1 (Yeom et al. 2018), above 1 and hence empty from eps = log 2 on. Dashed:
    (e^eps - 1 + 2 delta) / (e^eps + 1). Solid mark: the total variation of the certified curve itself.
    """
    finite = [(epsilon, result) for epsilon, result in points if np.isfinite(epsilon) and epsilon > 0]
    low = min([0.05, *(epsilon / 3 for epsilon, _ in finite)])
    high = max([10.0, *(epsilon * 3 for epsilon, _ in finite)])
    across = np.geomspace(low, high, 200)
    with settings("advantage"):
        figure, axes = _axes("certified epsilon", "advantage (TPR − FPR)")
        axes.set(xscale="log", xlim=(low, high), ylim=(0, 1))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        loose = [min(pure_bound(float(epsilon)), 1.0) for epsilon in across]
        axes.plot(across, loose, color=INK["claimed"], dashes=(1.5, 2.5), linewidth=1.4)
        tight = [approximate_bound(float(epsilon), delta) for epsilon in across]
        axes.plot(across, tight, color=INK["proven"], dashes=(6, 3), linewidth=1.6)
        if claim is not None and finite:
            axes.plot([finite[0][0]], [float(claim.advantage())], "_", color=INK["proven"], markersize=18, mew=2.2)
        for epsilon, result in finite:
            below, above = result.advantage_interval
            axes.plot([epsilon] * 2, [max(below, 0), max(above, 0)], color=INK["measured"], linewidth=1.2)
            axes.plot([epsilon], [max(result.advantage, 0)], "o", color=INK["measured"], markersize=4)
        return inline_svg(figure, description="Advantage of attacks against the certified epsilon, with bounds.")


def overlap_svg(rows: Sequence[Overlap]) -> str:
    """Members and non-members flagged in at least k runs, as shares of either, beside what coins would flag."""
    runs = [row.runs for row in rows]
    with settings("overlap"):
        figure, axes = _axes("flagged in at least so many runs", "share of records")
        everyone = rows[0]
        for counts, total, ink, shift in (
            ([row.members for row in rows], everyone.members, "measured", -0.2),
            ([row.non_members for row in rows], everyone.non_members, "faint", 0.2),
        ):
            places = [run + shift for run in runs]
            axes.bar(places, [count / max(total, 1) for count in counts], width=0.38, color=INK[ink])
        axes.plot(runs, [row.chance for row in rows], "o", color=INK["ink"], markersize=3, linewidth=0)
        for row in rows:
            axes.text(row.runs, 1.02, f"{row.ppv:.2f}", ha="center", fontsize=8, color=INK["ink"])
        axes.set(ylim=(0, 1.1), xticks=runs)
        return inline_svg(figure, description="Records flagged in at least k runs, with the PPV above.")


def _axes(across: str, up: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=across, ylabel=up)
    return figure, axes
