"""Renyi divergences of subsampled mechanisms, each an upper bound up to a stated rounding allowance."""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np
from scipy.special import gammaln

from tacit.mechanisms.pairs.base import Pair, log_mixture, log_mixture_error

_ROUNDING = 1e-10
"""Relative allowance for the quadrature, which misses 1e-15 of the moment less 1; rounding is bounded term by term."""

_UNIT = 2.0**-51  # Four rounding units: no logarithm of a term takes more than four sums, each of its largest part.

_MOST_TERMS = 1e5  # Integer orders up to it are summed exactly: so many terms take some milliseconds.
_MOST_NODES = 2e4  # Orders a with a / s^2 beyond it get the triangle inequality: 4e4 nodes at step s^2 / 2.
_REACH = 14.0  # Standard deviations of noise beyond the outermost peak: e^-98 = 3e-43 of it is left out.
_POWERS = range(19, 1, -1)  # Powers of r in `log_excess` where |a r| <= 1/2: (1/2)^18 / 20! = 2e-24 is left out.
_MOST_VALUES = 1 << 14  # Nodes times orders that are looked at together: what a processor holds.


def poisson_gaussian_rdp(sample_rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """D_a of the Poisson-subsampled Gaussian under add/remove, for every order a > 1.

    D_a = log E_{x ~ N(0, s^2)} [(1 - p + p e^{(2x - 1) / (2 s^2)})^a] / (a - 1), which dominates the
    reverse direction (Mironov, Talwar & Zhang 2019, Theorem 5). Integer orders use the binomial series, all others the
    trapezoid rule, whose error on this analytic integrand is below 1e-15; a relative 1e-10 is added so that the result
    is an upper bound. Where a / s^2 asks for too many nodes, the norm's triangle inequality bounds the moment by
    (1 - p + p e^{(a - 1) / (2 s^2)})^a, which is its largest term there.
    """
    orders = np.asarray(orders, dtype=float)
    flat = np.atleast_1d(orders)
    if sample_rate == 1.0:
        return orders / (2 * noise_multiplier**2)
    log_moments, whole = np.empty_like(flat), (flat <= _MOST_TERMS) & (flat == np.floor(flat))
    few = ~whole & (flat < _MOST_NODES * noise_multiplier**2)
    others = ~(whole | few)
    log_moments[whole] = _log_moment_series(sample_rate, noise_multiplier, tuple(map(int, flat[whole])))
    log_moments[few] = _log_moments_on(partial(_line, sample_rate, noise_multiplier), noise_multiplier, flat[few])
    log_moments[others] = _log_moment_bound(sample_rate, noise_multiplier, flat[others])
    return (log_moments * (1 + _ROUNDING) / (flat - 1)).reshape(orders.shape)


def _log_moment_bound(sample_rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """||1 - p + p X||_a <= 1 - p + p ||X||_a with X = e^{(2x - 1) / (2 s^2)}, whose norm is e^{(a - 1) / (2 s^2)}."""
    y = (orders - 1) / (2 * noise_multiplier**2)
    far = np.logaddexp(np.log1p(-sample_rate), np.log(sample_rate) + y)
    return orders * np.where(y > 30, far, np.log1p(sample_rate * np.expm1(np.minimum(y, 30))))


@lru_cache(maxsize=16)  # Accountants share orders.
def _log_moment_series(sample_rate: float, noise_multiplier: float, orders: tuple[int, ...]) -> list[float]:
    """Return log(1 + sum_k C(a, k) (1 - p)^{a - k} p^k (e^{k (k - 1) / (2 s^2)} - 1)) for integers a.

    The binomial probabilities sum to 1, so that the terms, all positive, keep the digits of moments close to 1.
    """
    k = np.arange(max(orders, default=1) + 1)
    log_factorial, unsampled, sampled = gammaln(k + 1), k * np.log1p(-sample_rate), k * np.log(sample_rate)
    with np.errstate(divide="ignore"):
        growth = _log_expm1(k * (k - 1) / (2 * noise_multiplier**2))
    found = []
    for order in orders:
        chosen, rest = slice(2, order + 1), slice(order - 2, None, -1)
        size = np.abs(unsampled[rest]) + np.abs(sampled[chosen]) + np.abs(growth[chosen])
        log_binomial = log_factorial[order] - log_factorial[chosen] - log_factorial[rest]
        terms = log_binomial + unsampled[rest] + sampled[chosen] + growth[chosen]
        found.append(float(np.logaddexp(0.0, _log_sum(terms, _UNIT * (8 + log_factorial[order] + size)))))
    return found


_Line = tuple[np.ndarray, float, np.ndarray, np.ndarray, np.ndarray]
"""Nodes, the step between them, log of the ratio there with its rounding error, and log of the density."""


def _log_moments_on(
    line: Callable[[float], _Line], noise_multiplier: float, orders: np.ndarray, reach: float = 1.0
) -> np.ndarray:
    """Log moments by the trapezoid rule; the integrand is analytic in the strip |Im x| < pi s^2.

    Args:
        line: highest order -> the nodes of all orders up to it, the first of which are those of smaller orders.
        noise_multiplier: s.
        orders: a > 1.
        reach: how far the outermost peak of an order is, in units of the order.
    """
    found, highest = np.empty_like(orders), 2.0 ** np.ceil(np.log2(np.maximum(orders, 2.0)))
    for end in np.unique(highest):
        places = np.flatnonzero(highest == end)
        x, step, *columns = line(float(end))
        last = reach * max(float(orders[places].max()), 2.0) + _REACH * noise_multiplier
        log_ratio, error, log_density = (column[: int(np.ceil((last - x[0]) / step))] for column in columns)
        for part in np.array_split(places, -(-len(places) * len(log_ratio) // _MOST_VALUES)):
            found[part] = _log_moment(log_ratio, error, log_density, orders[part, None], step)
    return found


@lru_cache(maxsize=4)
def _line(sample_rate: float, noise_multiplier: float, highest: float) -> _Line:
    x, step = _nodes(noise_multiplier, -_REACH * noise_multiplier, highest + _REACH * noise_multiplier)
    return x, step, *_mixture(sample_rate, noise_multiplier, x), _log_normal(x, noise_multiplier)


def replaced_gaussian_rdp(sample_rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """D_a of the Poisson-subsampled Gaussian under replace-one, for every order a > 1, by the trapezoid rule.

    The divergence of its dominating pair ((1 - p) N(0, s^2) + p N(1, s^2), (1 - p) N(0, s^2) + p N(-1, s^2)), which
    is symmetric (see `GaussianReplacePair` for the proof); a relative 1e-10 is added as above. Where that asks for too
    many nodes, the unsampled divergence 2 a / s^2 is a bound.
    """
    flat = np.atleast_1d(np.asarray(orders, dtype=float))
    result, few = 2 * flat / noise_multiplier**2, flat < _MOST_NODES * noise_multiplier**2
    line = partial(_replaced_line, sample_rate, noise_multiplier)
    log_moments = _log_moments_on(line, noise_multiplier, flat[few], reach=2.0)
    result[few] = log_moments * (1 + _ROUNDING) / (flat[few] - 1)
    return result.reshape(np.shape(orders))


@lru_cache(maxsize=4)
def _replaced_line(sample_rate: float, noise_multiplier: float, highest: float) -> _Line:
    """`_line` for the pair of replace-one."""
    reach = _REACH * noise_multiplier
    x, step = _nodes(noise_multiplier, -1 - reach, 2 * highest + reach)
    (up, up_error), (down, down_error) = (_mixture(sample_rate, noise_multiplier, y) for y in (x, -x))
    return x, step, up - down, up_error + down_error, _log_normal(x, noise_multiplier) + down


def _nodes(noise_multiplier: float, low: float, high: float) -> tuple[np.ndarray, float]:
    step = min(noise_multiplier / 8, noise_multiplier**2 / 2)
    return np.arange(low, high, step), step


def _log_normal(x: np.ndarray, noise_multiplier: float) -> np.ndarray:
    return -(x**2) / (2 * noise_multiplier**2) - np.log(noise_multiplier * np.sqrt(2 * np.pi))


def _mixture(rate: float, noise_multiplier: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log of the density of (1 - p) N(0, s^2) + p N(1, s^2) over that of N(0, s^2), and its rounding error."""
    y = (2 * x - 1) / (2 * noise_multiplier**2)
    return log_mixture(rate, y), log_mixture_error(rate, y, _UNIT * np.abs(y))


def _log_moment(
    log_ratio: np.ndarray, ratio_error: np.ndarray, log_density: np.ndarray, order: np.ndarray, step: float
) -> np.ndarray:
    """Return log E[ratio^order] under the density, from above but for the quadrature, on nodes `step` apart.

    E[ratio] = 1 exactly, so the moment is 1 + E[ratio^a - 1 - a (ratio - 1)], an integral of a positive function, whose
    logarithm has a slope of at most 2 max(a, 2 / |r|) in r = log ratio.
    """
    excess = log_excess(log_ratio, order)
    slope = 2 * np.maximum(order, 2 / np.maximum(np.abs(log_ratio), 1e-300))
    error = _UNIT * (8 + np.abs(log_density) + order * np.abs(log_ratio)) + slope * ratio_error
    return np.logaddexp(0.0, _log_sum(log_density + excess, error) + np.log(step))


def log_excess(r: np.ndarray, order: float | np.ndarray) -> np.ndarray:
    """Return log(e^{a r} - 1 - a (e^r - 1)) for a > 1 with its digits at any size of r; the argument is never negative.

    Near 0 it is sum_k (a^k - a) r^k / k!; elsewhere, for a < 2, e^r (e^{(a - 1) r} - 1 - (a - 1)) + a - 1.
    """
    b = order - 1
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        coefficients = [order * np.expm1((k - 1) * np.log1p(b)) / math.factorial(k) for k in _POWERS]
        capped = np.clip(r, -0.5 / order, 0.5 / order)
        near = np.log(reduce(lambda value, each: value * capped + each, coefficients)) + 2 * np.log(np.abs(r))
        large = np.expm1(order * r) - order * np.expm1(r)
        middle = np.log(np.where(b >= 1, large, np.exp(r) * (np.expm1(b * r) - b) + b))
        # From a r = 30 on the other terms are a share a e^{-b r} + b e^{-a r} of the first.
        far = order * r + np.log1p(-order * np.exp(-b * r) + b * np.exp(-order * r))
    far_enough = (order * r > 30) & (b * r > 2 * np.log1p(b) + 1)
    return np.where(np.abs(order * r) <= 0.5, near, np.where(far_enough, far, middle))


def _log_expm1(y: np.ndarray) -> np.ndarray:
    """Return log(e^y - 1) for y > 0."""
    return y + np.log(-np.expm1(-y))


def _log_sum(terms: np.ndarray, error: np.ndarray) -> Any:
    """Return upper bounds on log sum e^terms along the last axis, each term known up to its error."""
    top = terms.max(-1)
    finite = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        found = finite + np.log((np.exp(terms - finite[..., None]) * np.exp(np.minimum(error, 1.0))).sum(-1))
    return np.where(np.isfinite(top), found, top)


def fixed_size_rdp(
    fraction: float, base: Callable[[np.ndarray], np.ndarray], pure_epsilon: float, orders: np.ndarray
) -> np.ndarray:
    """D_a of a mechanism run on a uniform subset of a fraction g of the records, under replace-one.

    For integers a >= 2, with e_j = D_j of the unsampled mechanism under replace-one and e its pure epsilon,
    (a - 1) D_a <= log(1 + g^2 C(a, 2) min{4 (e^{e_2} - 1), e^{e_2} min(2, (e^e - 1)^2)}
    + sum_{j=3}^a g^j C(a, j) e^{(j - 1) e_j} min(2, (e^e - 1)^j)) (Wang, Balle & Kasiviswanathan 2019, Theorem 9).
    Other orders get the bound of the next integer; never more than the unsampled divergence (quasi-convexity).

    Args:
        fraction: g in (0, 1].
        base: orders -> e_j.
        pure_epsilon: e, infinite where none is known.
        orders: a > 1.
    """
    flat = np.atleast_1d(np.asarray(orders, dtype=float))
    whole = np.maximum(np.ceil(flat), 2).astype(int)
    j = np.arange(2, int(whole.max()) + 1)
    divergence = base(j.astype(float))
    log_range = np.log(np.expm1(min(pure_epsilon, 700.0)))
    log_terms = j * np.log(fraction) + (j - 1) * divergence + np.minimum(np.log(2.0), j * log_range)
    second = np.minimum(
        np.log(4.0) + np.log(np.expm1(np.minimum(divergence[0], 700.0))), log_terms[0] - 2 * np.log(fraction)
    )
    log_terms[0] = 2 * np.log(fraction) + second
    result = np.empty_like(flat)
    for index, order in enumerate(whole):
        k = j[: order - 1]
        log_binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        log_sum = np.logaddexp.reduce(log_binomial + log_terms[: order - 1])
        result[index] = np.logaddexp(0.0, log_sum) / (order - 1)
    return np.minimum(result.reshape(np.shape(orders)), base(np.asarray(orders, dtype=float)))


def pure_rdp(epsilon: float, orders: np.ndarray) -> np.ndarray:
    """D_a of the worst epsilon-DP mechanism, randomised response (Mironov 2017, Proposition 5)."""
    orders = np.asarray(orders, dtype=float)
    log_p = -np.log1p(np.exp(-epsilon))
    log_q = log_p - epsilon
    first = orders * log_p + (1 - orders) * log_q
    second = orders * log_q + (1 - orders) * log_p
    return np.minimum(np.maximum(np.logaddexp(first, second), 0.0) / (orders - 1), epsilon)


def atoms_rdp(pairs: Iterable[Pair], orders: np.ndarray) -> np.ndarray:
    """D_a of pairs with finitely many losses, the larger of both directions of each, for every order a > 1.

    log sum_l p_l e^{(a - 1) l} / (a - 1) and log sum_l q_l e^{-(a - 1) l} / (a - 1), at most the largest loss. With
    E_Q e^l = 1 taken out, sum_l q_l (e^{a l} - 1 - a (e^l - 1)) has positive terms, which keeps the digits near 0.
    """
    orders = np.asarray(orders, dtype=float)
    flat, found = np.atleast_1d(orders), np.zeros(orders.size)
    for pair in pairs:
        nodes = pair.nodes(1.0, 0.0)
        assert nodes is not None
        for loss, mass in ((nodes.loss, nodes.q), (-nodes.loss, nodes.p)):
            with np.errstate(divide="ignore"):
                log_mass, top = np.log(mass), float(loss.max())
            for index, order in enumerate(flat):
                terms = log_mass + log_excess(loss, order)
                error = _UNIT * (8 + np.abs(log_mass) + order * np.abs(loss))
                value = float(np.logaddexp(0.0, _log_sum(terms, error))) * (1 + _ROUNDING) / (order - 1)
                found[index] = max(found[index], min(value, top))
    return found.reshape(orders.shape)
