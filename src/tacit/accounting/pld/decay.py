"""How fast a characteristic function falls: a bound on its modulus at every frequency."""

from __future__ import annotations

import numpy as np

# Centres of the intervals of bound 1; any choice gives a bound.
_QUANTILES = np.array([0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97])
_DECAY_MARGIN = 1.25  # Safe side of sums that stand for integrals.


def log_decay(losses: np.ndarray, weights: np.ndarray, density: np.ndarray | None, t: np.ndarray) -> np.ndarray:
    """An upper bound on log |phi| over [t_j, t_{j+1}] for each j, from nodes of increasing loss.

    `weights` are the tilted masses of the nodes and `density` the density of the tilted loss there, if it has one. Two
    bounds hold for every t, and the smaller counts.

    1. With D the difference of two independent losses, 1 - |phi|^2 = E(1 - cos tD), and 1 - cos x >= 2 x^2 / pi^2 for
       |x| <= pi, so an interval A of length pi / t gives 1 - |phi|^2 >= (4 t^2 / pi^2) (W_A E_A[l^2] - E_A[l]^2).
    2. Integrating by parts beyond any loss c, |phi| <= P(L < c) + V_c / t, V_c the total variation of the density
       restricted to losses >= c.

    Sums over nodes stand for the integrals, each with a margin of a quarter on the safe side.

    Args:
        losses: losses of the nodes, increasing, shape (nodes,).
        weights: tilted masses of the nodes, of sum 1, shape (nodes,).
        density: density of the tilted loss at the nodes; None where it has none.
        t: frequencies, increasing, shape (frequencies,).
    """
    first = np.concatenate([[0.0], np.cumsum(weights)])
    centre = float(np.interp(0.5, first[1:], losses))
    offset = losses - centre
    second = np.concatenate([[0.0], np.cumsum(weights * offset)])
    third = np.concatenate([[0.0], np.cumsum(weights * offset**2)])
    low_t, high_t = t[:-1], t[1:]
    places = losses[np.minimum(np.searchsorted(first[1:], _QUANTILES), len(losses) - 1)]
    low = np.searchsorted(losses, places[:, None] - np.pi / 2 / high_t, side="left")
    high = np.searchsorted(losses, places[:, None] + np.pi / 2 / high_t, side="right")
    moments = [total[high] - total[low] for total in (first, second, third)]
    variance = np.where(high - low >= 6, moments[0] * moments[2] - moments[1] ** 2, 0.0)
    fall = np.clip(4 * low_t**2 / np.pi**2 * variance.max(axis=0) / _DECAY_MARGIN, 0.0, 1 - 1e-9)
    if density is None:
        return 0.5 * np.log1p(-fall)
    variation = np.cumsum(np.abs(np.diff(density, append=0.0))[::-1])[::-1] + density
    cuts = np.unique(np.linspace(0, len(losses) - 1, 64).astype(int))
    parts = np.minimum(first[cuts][:, None] + _DECAY_MARGIN * variation[cuts][:, None] / low_t, 1.0).min(axis=0)
    return np.minimum(0.5 * np.log1p(-fall), np.log(parts))
