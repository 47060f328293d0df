"""Quadrature over the noise of Poisson-subsampled Gaussian steps, on lines of the complex plane.

A characteristic function is a weighted sum of exponentials over the nodes of a line (`on_line`), evaluated at many
equally spaced frequencies (`shifted_sums`).

Sums of exponentials over nodes, and worst-case bounds on their rounding.

How fast a characteristic function falls: a bound on its modulus at low frequencies.
"""

import math

import numpy as np

from tacit.accounting.pld.rounding import (
    COMPLEX_FUNCTION,
    FUNCTION,
    MASS,
    UNIT,
    dot_units,
)
from tacit.mechanisms.pairs.gaussian import SampledGaussian
from tacit.root_finding import bisect

_LONGEST = 20_000  # More nodes than this are not worth a search for the ends.


def log_mix(rate: float, y: np.ndarray) -> np.ndarray:
    """log(1 - rate + rate e^y) for complex y with |Im y| < pi, keeping the digits of small results."""
    real, imag = np.real(y), np.imag(y)
    growth = np.expm1(np.minimum(real, 30.0))
    moved = rate * (growth * np.cos(imag) - 2 * np.sin(imag / 2) ** 2 + 1j * (growth + 1) * np.sin(imag))
    value = log1p(moved)
    deep = moved.real < -0.5
    if deep.any():
        mixed = (1 - rate) + rate * (growth[deep] + 1) * np.exp(1j * imag[deep])
        with np.errstate(divide="ignore"):
            value[deep] = np.log(np.abs(mixed)) + 1j * np.angle(mixed)
    big = real > 30.0
    if big.any():
        value[big] = y[big] + np.log(rate) + (1 - rate) / rate * np.exp(-y[big])
    return value


def on_line(pair: SampledGaussian, u: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Log of P-density times step, and the loss, at places of the noise, whose standard normal law is that of N_0.

    Args:
        pair: a Poisson-subsampled Gaussian step.
        u: places, in standard deviations of the noise.
        step: their distance, > 0.
    """
    z = u.astype(complex)
    half = 0.5 / pair.sigma**2
    up = log_mix(pair.rate, z / pair.sigma - half)
    if pair.symmetric:
        loss = up - log_mix(pair.rate, -z / pair.sigma - half)
        log_ratio = up
    else:
        loss, log_ratio = (up, up) if pair.loss_sign > 0 else (-up, 0.0)
    log_mass = -(z**2) / 2 + log_ratio + (np.log(step) - 0.5 * np.log(2 * np.pi))
    return np.real(log_mass), np.real(loss)


def reach(pair: SampledGaussian, theta: float, log_cut: float, log_ignored: float) -> tuple[float, float] | None:
    """An interval of u outside of which P- and tilted P-masses are below e^log_cut of their largest; None if too long.

    The log density of the tilted mass falls like a normal law's beyond the largest root of u = F(u) / sigma, F the tilt
    times the posterior weight of the shifted component; the iteration comes down to that root from above.

    A far mode is left out where it is negligible under the tilt, or where its P-mass is below e^log_ignored and a
    valley of negligible tilted mass lies before it: the caller adds that P-mass to its error.

    Args:
        pair: a Poisson-subsampled Gaussian step.
        theta: tilt, >= 0.
        log_cut: log of the relative mass that is negligible, < 0.
        log_ignored: log of the P-mass that a far mode may have to be left out.
    """
    margin = float(np.sqrt(-2 * log_ignored))
    low, high = _roots(pair, theta)
    low, high = low - margin, high + margin
    if pair.loss_sign > 0:
        for more in (0.0, 15.0, 30.0, 60.0, 120.0):
            capped = 1 / pair.sigma + float(np.sqrt(2 * (more - log_ignored)))
            if capped < high and _ends_light(pair, theta, capped, log_cut):
                high = capped
                break
    coarse = min(0.25, pair.sigma / 2)
    if (high - low) / coarse > _LONGEST:
        return None
    u = np.arange(low, high + coarse, coarse)
    log_mass, loss = on_line(pair, u, coarse)
    tilted = log_mass + theta * loss
    heavy = (tilted > tilted.max() + log_cut) | (log_mass > log_ignored) | (log_mass - loss > log_cut)
    kept = np.flatnonzero(heavy)
    return float(u[kept[0]]) - coarse, float(u[kept[-1]]) + coarse


def _ends_light(pair: SampledGaussian, theta: float, end: float, log_cut: float) -> bool:
    """Whether the tilted density on the last two units before `end` is negligible against its largest before them."""
    u = np.linspace(-12.0, end, 400)
    log_mass, loss = on_line(pair, u, 1.0)
    tilted = log_mass + theta * loss
    return bool(tilted[u > end - 2.0].max() < tilted.max() + log_cut)


def _roots(pair: SampledGaussian, theta: float) -> tuple[float, float]:
    half, p = 0.5 / pair.sigma**2, pair.rate

    def weight(u: float) -> float:
        y = u / pair.sigma - half
        return p / (p + (1 - p) * math.exp(min(-y, 700.0)))

    if pair.loss_sign < 0:
        low, _ = bisect(lambda u: u + theta * weight(u) / pair.sigma < 0, -theta / pair.sigma, 0.0, width=0.05)
        return low, 1 / pair.sigma
    power = theta + 1
    other = theta * weight(0.0) if pair.symmetric else 0.0
    top = (power + other) / pair.sigma
    for _ in range(100):
        lower = (power * weight(top) + other) / pair.sigma
        if top - lower < 0.05:
            break
        top = lower
    left = -1 / pair.sigma if pair.symmetric else 0.0
    return left, max(top, 1 / pair.sigma)


def log1p(z: np.ndarray) -> np.ndarray:
    """log(1 + z), keeping the relative digits of small z, which numpy's own loses for complex arguments."""
    x, y = np.real(z), np.imag(z)
    value = 0.5 * np.log1p(np.maximum(2 * x + x * x + y * y, -0.75)) + 1j * np.arctan2(y, 1 + x)
    large = np.abs(x) + np.abs(y) > 0.5
    if large.any():
        with np.errstate(divide="ignore"):
            value.real[large] = np.log(np.abs(1 + z[large]))
    return value


Units = tuple[np.ndarray, np.ndarray | float]
"""Rounding of nodes in units: relative of their masses, absolute of their losses (Lemma 6.4)."""


def weight_units(
    log_mass: np.ndarray, loss: np.ndarray, theta: float, log_moment: np.ndarray | float, units: Units
) -> np.ndarray:
    """Relative units of e^{log_mass + theta loss - log_moment} (Lemma 6.4).

    Args:
        log_mass: log of the P-mass of each node.
        loss: loss of each node.
        theta: tilt, > 0.
        log_moment: log of the sum.
        units: what the nodes lose.
    """
    mass, moved = units
    return mass + theta * moved + 2 * (np.abs(log_mass) + theta * np.abs(loss) + np.abs(log_moment)) + FUNCTION


def moment_rounding(
    log_mass: np.ndarray,
    loss: np.ndarray,
    theta: float,
    log_moment: np.ndarray,
    units: Units,
    summed: float,
    direct: bool,
) -> np.ndarray:
    """Bounds on the rounding errors of log sum e^{log_mass + theta loss} over the nodes, the last axis (Lemma 6.5).

    A small moment is sum e^{log_mass} c, c = e^{theta loss} - 1 + theta (e^{-loss} - 1) >= 0: masses lose
    relative to c, losses with its slope theta (e^{theta loss} - e^{-loss}), c itself in units of the two that cancel.

    Args:
        log_mass: log of the P-mass of each node.
        loss: loss of each node.
        theta: tilt, > 0.
        log_moment: logs of the sums, without the last axis.
        units: what the nodes lose.
        summed: units of a sum over the nodes.
        direct: whether the exponentials are summed as they are.
    """
    mass, moved = units
    if direct:
        moment = log_moment[..., None]
        weights = np.exp(log_mass + theta * loss - moment)
        return UNIT * (weights * (weight_units(log_mass, loss, theta, moment, units) + summed)).sum(-1)
    up, down = np.expm1(theta * loss), np.expm1(-loss)
    size = (mass + 2 * np.abs(log_mass) + FUNCTION + summed) * np.abs(up + theta * down)
    size = size + theta * np.abs(up - down) * moved + 2 * (FUNCTION + 2) * (np.abs(up) + theta * np.abs(down))
    return UNIT * ((np.exp(log_mass) * size).sum(-1) * np.exp(-log_moment) + FUNCTION * np.abs(log_moment))


def direct_moment(log_mass: np.ndarray, loss: np.ndarray, theta: float, log_moment: float) -> bool:
    """Whether log E e^{theta L} is taken as it is: where it is large, or where a term of the other way overflows.

    Args:
        log_mass: log of the P-mass of each node.
        loss: loss of each node.
        theta: tilt.
        log_moment: log of the sum.
    """
    largest = max(float((log_mass + theta * loss).max()), float((log_mass - loss).max()))
    exponent = max(theta * float(loss.max()), -float(loss.min()))
    return abs(log_moment) > SMALL_MOMENT or largest > 0 or exponent > VOID


VOID = 700.0
"""Largest argument of an exponential: an error of e^700 voids a bound as well as an infinite one."""

SMALL_MOMENT = 0.5  # log of a moment up to which 1 is taken from it term by term; either way is exact.
_CHUNK = 1024  # Nodes of one matrix product, which bounds the memory.


def shifted_sums(
    weights: np.ndarray, offset: np.ndarray, t: np.ndarray, spacing: float, mass: np.ndarray, loss: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """sum_k w_k (e^{i t l_k} - 1) for complex w and l with Im l >= 0, and a bound on its rounding error (Lemma 6.6).

    The t are multiples of `spacing`. With t = (row a + b) spacing the sum is a product of two matrices: of
    e^x - 1 = A at the multiples of row and e^y - 1 = B below row, e^{x + y} - 1 = A B + A + B keeps its digits.

    Args:
        weights: w, complex, shape (sums, nodes).
        offset: l, complex, shape (nodes,).
        t: frequencies, multiples of `spacing`, shape (frequencies,).
        spacing: distance of the frequencies, > 0.
        mass: units of the relative error of w, shape (sums, nodes).
        loss: units of the error of l, shape (nodes,) or one for all.
    """
    index = np.rint(t / spacing).astype(int)
    row = 1 << int(np.ceil(np.log2(len(t) + 1) / 2))
    heads, place = np.unique(index // row, return_inverse=True)
    value = np.zeros((len(weights), len(heads), row), dtype=complex)
    size = np.zeros((len(weights), len(heads), row))
    sums = dot_units(min(weights.shape[1], _CHUNK)) + weights.shape[1] / _CHUNK
    units = np.abs(weights) * (mass + 2 * COMPLEX_FUNCTION + sums + MASS)
    for start in range(0, weights.shape[1], _CHUNK):
        part = slice(start, start + _CHUNK)
        step = 1j * spacing * offset[part]
        a, b = (np.expm1(np.multiply.outer(count, step)) for count in (heads * row, np.arange(row)))
        for total, (left, right), terms in ((value, (a, b), weights), (size, (np.abs(a), np.abs(b)), units)):
            for k, w in enumerate(terms[:, part]):
                total[k] += (left * w) @ right.T + (left @ w)[:, None] + right @ w
    drift = np.multiply.outer(np.abs(weights) @ (loss + 16 * np.abs(offset)), t)
    return value[:, place, index % row], UNIT * (size[:, place, index % row] + drift)


# Centres of the intervals of the bound; any choice gives one.
_QUANTILES = np.array([0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97])
_MANY = 64  # Laws of which fewer centres are tried.

ROUNDED = 2.0**-30
"""Share of its terms' sizes that rounding takes from a bound of the decay: 2^23 units, for 1e5 terms (Lemma 6.7)."""


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
