"""The trade-off plot: type I error against type II error."""

from typing import Any

import numpy as np

from tacit.standing import Standing
from tacit.tradeoff.curve import Curve

_STYLE = {
    Standing.PROVEN: "-",
    Standing.CONDITIONAL: (0, (9, 2)),
    Standing.ASYMPTOTIC: "--",
    Standing.BAYESIAN: "-.",
    Standing.CLAIMED: ":",
    Standing.MEASURED: "-",
}


def draw(curve: Curve, standing: Standing, source: str, axes: Any = None) -> Any:
    """Draw one trade-off curve on matplotlib axes.

    Args:
        curve: what is drawn.
        standing: its standing, which sets the line style.
        source: the accountant or attack that the curve comes from, for the legend.
        axes: matplotlib axes; new ones if None.

    Returns:
        The axes.
    """
    if axes is None:
        from matplotlib.figure import Figure

        axes = Figure(figsize=(4.5, 4.5), layout="constrained").add_subplot()
    alpha = np.concatenate([np.geomspace(1e-6, 1e-2, 100), np.linspace(1e-2, 1.0, 200)])
    axes.plot(alpha, curve.beta(alpha), linestyle=_STYLE[standing], label=f"{source} ({standing.value})")
    axes.plot([0, 1], [1, 0], color="0.7", linewidth=0.8)
    axes.set(xlabel="type I error (false alarms)", ylabel="type II error (misses)", xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    return axes
