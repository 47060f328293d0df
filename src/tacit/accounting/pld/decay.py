"""How fast a characteristic function falls: a bound on its modulus at low frequencies."""

from __future__ import annotations

import numpy as np

from tacit.accounting.pld.rounding import FUNCTION, UNIT, mass_units
from tacit.accounting.pld.saddle_point import SMALLEST

# Centres of the intervals of the bound; any choice gives one.
_QUANTILES = np.array([0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97])
_MANY = 64  # Laws of which fewer centres are tried.

ROUNDED = 2.0**-30
"""Share of its terms' sizes that rounding takes from a bound of the decay: 2^23 units, for 1e5 terms (Lemma 6.7)."""


def tilted_masses(
    p: np.ndarray, q: np.ndarray, tails: tuple[np.ndarray, np.ndarray], theta: float, log_moment: np.ndarray | float
) -> np.ndarray:
    """Lower bounds on the tilted masses E_Q e^{(theta + 1) L} >= q (p / q)^(theta + 1) of cells of masses p and q.

    A mass is a difference of two tails. Where it is small beside them a steep tilt multiplies what it loses.

    Args:
        p: masses under P, shape (..., cells).
        q: masses under Q.
        tails: for P and for Q, the smaller tail of the distribution at the cell, the larger of its two edges.
        theta: the tilt.
        log_moment: log E_P e^{theta L}.
    """
    lost = (2 * UNIT * (mass_units(tail) + FUNCTION) * (tail + mass) for tail, mass in zip(tails, (p, q), strict=True))
    least, most = p - next(lost), q + next(lost)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.exp(np.log(least) + theta * np.log(least / most) - log_moment)
    return np.where((least > SMALLEST) & (q > SMALLEST), weights, 0.0)


def nearer_tails(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The smaller of both tails at the edges of cells, the larger of a cell's two edges, shape (..., cells)."""
    near = np.minimum(below, above)
    return np.maximum(near[..., :-1], near[..., 1:])


def log_decay(edges: np.ndarray, weights: np.ndarray, t: np.ndarray) -> np.ndarray:
    """An upper bound on log |phi| over [t_j, t_{j+1}] for each j, from tilted masses of cells (Lemma 6.7).

    With D the difference of two independent losses, 1 - |phi|^2 >= E(1 - cos tD), and 1 - cos x >= 2 x^2 / pi^2 for
    |x| <= pi. Take the cells inside of an interval of length pi / t around some loss c. Two losses on either side of c
    are at least as far apart as the edges of their cells that are next to c, so that
    1 - |phi|^2 >= (4 t^2 / pi^2) sum_{i left, j right} w_i w_j (r_j - l_i)^2.

    Args:
        edges: edges of the cells in loss, increasing, shape (cells + 1,).
        weights: lower bounds on the tilted masses of the cells, shape (..., cells), of one law or of several.
        t: frequencies, increasing, shape (frequencies,).
    """
    several = np.atleast_2d(weights)
    total = np.cumsum(several.sum(axis=0))
    quantiles = _QUANTILES if len(several) <= _MANY else _QUANTILES[::3]
    middle = np.unique(np.searchsorted(total, quantiles * total[-1])) if len(total) else np.zeros(0, dtype=int)
    low_t, reach = t[:-1], np.pi / 2 / t[1:]
    best = np.zeros((len(several), len(low_t)))
    for place in middle[(middle > 0) & (middle < len(total))].tolist():
        centre = edges[place]
        first = np.minimum(np.searchsorted(edges, centre - reach, side="left"), place)
        last = np.maximum(np.searchsorted(edges, centre + reach, side="right") - 1, place) - place
        left = [_sums(several[:, :place] * (centre - edges[1 : place + 1]) ** k, first, place) for k in range(3)]
        right = [_sums(several[:, place:] * (edges[place:-1] - centre) ** k, 0, last) for k in range(3)]
        spread = left[0] * right[2] + 2 * left[1] * right[1] + left[2] * right[0]
        best = np.maximum(best, spread * (1 - ROUNDED))
    log_phi = 0.5 * np.log1p(-np.clip(4 * low_t**2 / np.pi**2 * best, 0.0, 1 - ROUNDED))
    return log_phi.reshape(*weights.shape[:-1], len(low_t))


def _sums(terms: np.ndarray, first: np.ndarray | int, last: np.ndarray | int) -> np.ndarray:
    """Sums over the cells from `first` up to before `last`, less what the rounding of their difference may add."""
    first, last = np.atleast_1d(first, last)
    sums = np.zeros((len(terms), terms.shape[1] + 1))
    # A sum of 1024 doubles in a row loses 2^-43 of the sizes, a thousandth of what is taken off.
    sums[:, 1:] = np.cumsum(np.abs(terms), axis=1, dtype=float if terms.shape[1] <= 1024 else np.longdouble)
    return np.maximum(sums[:, last] - sums[:, first] - ROUNDED / 1024 * sums[:, -1:], 0.0)
