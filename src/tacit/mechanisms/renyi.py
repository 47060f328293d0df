"""Renyi divergences of subsampled mechanisms, each an upper bound up to a stated rounding allowance."""

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

_ROUNDING = 1e-10  # Relative allowance, far above the 1e-15 of the quadrature and the rounding of its sum.
_SERIES_FROM = 64.0  # Order from which the binomial series is used; below it the quadrature has few nodes.
_MOST_NODES = 2e4  # Orders a with a / s^2 beyond it get the triangle inequality: 4e4 nodes at step s^2 / 2.


def poisson_gaussian_rdp(sample_rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """D_a of the Poisson-subsampled Gaussian under add/remove, for every order a > 1.

    D_a = log E_{x ~ N(0, s^2)} [(1 - p + p e^{(2x - 1) / (2 s^2)})^a] / (a - 1), which dominates the
    reverse direction (Mironov, Talwar & Zhang 2019, Theorem 5). Integer orders above 64 use the binomial
    series, all others the trapezoid rule, whose error on this analytic integrand is below 1e-15; a
    relative 1e-10 is added so that the result is an upper bound. Where a / s^2 asks for too many nodes, the norm's
    triangle inequality bounds the moment by (1 - p + p e^{(a - 1) / (2 s^2)})^a, which is its largest term there.
    """
    orders = np.asarray(orders, dtype=float)
    flat = np.atleast_1d(orders)
    if sample_rate == 1.0:
        return orders / (2 * noise_multiplier**2)
    result = np.empty_like(flat)
    for index, order in enumerate(flat):
        log_moment = _log_moment_of(order, noise_multiplier)(sample_rate, noise_multiplier, order)
        result[index] = max(log_moment, 0.0) * (1 + _ROUNDING) / (order - 1) + _ROUNDING * sample_rate**2
    return result.reshape(orders.shape)


def _log_moment_of(order: float, noise_multiplier: float) -> Callable[[float, float, float], float]:
    if order >= _SERIES_FROM and float(order).is_integer():
        return _log_moment_series
    return _log_moment_quadrature if order < _MOST_NODES * noise_multiplier**2 else _log_moment_bound


def _log_moment_bound(sample_rate: float, noise_multiplier: float, order: float) -> float:
    """||1 - p + p X||_a <= 1 - p + p ||X||_a with X = e^{(2x - 1) / (2 s^2)}, whose norm is e^{(a - 1) / (2 s^2)}."""
    largest = np.log(sample_rate) + (order - 1) / (2 * noise_multiplier**2)
    return order * float(np.logaddexp(np.log1p(-sample_rate), largest))


def _log_moment_series(sample_rate: float, noise_multiplier: float, order: float) -> float:
    """Return log sum_k C(a, k) (1 - p)^{a - k} p^k e^{k (k - 1) / (2 s^2)} for integer a."""
    k = np.arange(int(order) + 1)
    log_binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    terms = log_binomial + (order - k) * np.log1p(-sample_rate) + k * np.log(sample_rate)
    return float(np.logaddexp.reduce(terms + k * (k - 1) / (2 * noise_multiplier**2)))


def _log_moment_quadrature(sample_rate: float, noise_multiplier: float, order: float) -> float:
    """The same moment by the trapezoid rule; the integrand is analytic in the strip |Im x| < pi s^2."""
    x, step = _nodes(noise_multiplier, -14 * noise_multiplier, order + 14 * noise_multiplier)
    log_base = _log_normal(x, noise_multiplier)
    log_mixture = _log_mixture(x, sample_rate, noise_multiplier)
    return _log_moment(log_mixture - log_base, log_base, order, step)


def replaced_gaussian_rdp(sample_rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """D_a of the Poisson-subsampled Gaussian under replace-one, for every order a > 1, by the trapezoid rule.

    The divergence of its dominating pair ((1 - p) N(0, s^2) + p N(1, s^2), (1 - p) N(0, s^2) + p N(-1, s^2)), which
    is symmetric (see `GaussianReplacePair` for the proof); a relative 1e-10 is added as above. Where that asks for too
    many nodes, the unsampled divergence 2 a / s^2 is a bound.
    """
    flat = np.atleast_1d(np.asarray(orders, dtype=float))
    result = np.empty_like(flat)
    for index, order in enumerate(flat):
        if order >= _MOST_NODES * noise_multiplier**2:
            result[index] = 2 * order / noise_multiplier**2
            continue
        x, step = _nodes(noise_multiplier, -1 - 14 * noise_multiplier, 2 * order + 14 * noise_multiplier)
        first = _log_mixture(x, sample_rate, noise_multiplier)
        second = _log_mixture(-x, sample_rate, noise_multiplier)
        log_moment = _log_moment(first - second, second, order, step)
        result[index] = max(log_moment, 0.0) * (1 + _ROUNDING) / (order - 1) + _ROUNDING * sample_rate**2
    return result.reshape(np.shape(orders))


def _nodes(noise_multiplier: float, low: float, high: float) -> tuple[np.ndarray, float]:
    step = min(noise_multiplier / 8, noise_multiplier**2 / 2)
    return np.arange(low, high, step), step


def _log_normal(x: np.ndarray, noise_multiplier: float) -> np.ndarray:
    return -(x**2) / (2 * noise_multiplier**2) - np.log(noise_multiplier * np.sqrt(2 * np.pi))


def _log_mixture(x: np.ndarray, sample_rate: float, noise_multiplier: float) -> np.ndarray:
    """Return log density of (1 - p) N(0, s^2) + p N(1, s^2)."""
    unsampled = np.log1p(-sample_rate) if sample_rate < 1 else -np.inf
    shifted = np.log(sample_rate) + (2 * x - 1) / (2 * noise_multiplier**2)
    return _log_normal(x, noise_multiplier) + np.logaddexp(unsampled, shifted)


def _log_moment(log_ratio: np.ndarray, log_density: np.ndarray, order: float, step: float) -> float:
    """Return log E[ratio^order] under the density, on nodes `step` apart."""
    if np.max(log_density + order * log_ratio) > 0.0:
        return float(np.logaddexp.reduce(log_density + order * log_ratio) + np.log(step))
    # E[ratio] = 1 exactly, so the moment is 1 + E[ratio^a - 1 - a (ratio - 1)]: small moments keep their digits.
    inside = log_density > -700.0
    summand = np.expm1(order * log_ratio[inside]) - order * np.expm1(log_ratio[inside])
    return float(np.log1p(np.sum(np.exp(log_density[inside]) * summand) * step))


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
