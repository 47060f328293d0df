"""The trade-off plot: type I error against type II error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.standing import Standing

if TYPE_CHECKING:
    from tacit.tradeoff.tradeoff import TradeOff

_STYLE = {
    Standing.PROVEN: "-",
    Standing.ASYMPTOTIC: "--",
    Standing.BAYESIAN: "-.",
    Standing.CLAIMED: ":",
    Standing.MEASURED: "-",
}


def draw(tradeoff: TradeOff, axes: Any = None) -> Any:
    """Draw one trade-off curve on matplotlib `axes` (new ones if None) and return the axes."""
    if axes is None:
        from matplotlib.figure import Figure

        axes = Figure(figsize=(4.5, 4.5), layout="constrained").add_subplot()
    alpha = np.concatenate([np.geomspace(1e-6, 1e-2, 100), np.linspace(1e-2, 1.0, 200)])
    label = f"{tradeoff.source} ({tradeoff.standing.value})"
    axes.plot(alpha, tradeoff.curve.beta(alpha), _STYLE[tradeoff.standing], label=label)
    axes.plot([0, 1], [1, 0], color="0.7", linewidth=0.8)
    axes.set(xlabel="type I error (false alarms)", ylabel="type II error (misses)", xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    return axes
