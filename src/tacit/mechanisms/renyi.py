"""Renyi divergences of subsampled mechanisms, each an upper bound up to a stated rounding allowance."""

from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
from scipy.special import gamma, gammaln

from tacit.mechanisms.pairs.base import Pair, log_mixture, log_mixture_error

_ROUNDING = 1e-10
"""Relative allowance for the quadrature, which misses 1e-15 of the moment less 1; rounding is bounded term by term."""

_UNIT = 2.0**-51  # Four rounding units: no logarithm of a term takes more than four sums, each of its largest part.

_MOST_TERMS = 1e5  # Integer orders up to it are summed exactly: so many terms take some milliseconds.
_MOST_NODES = 2e4  # Orders a with a / s^2 beyond it get the triangle inequality: 4e4 nodes at step s^2 / 2.
_REACH = 14.0  # Standard deviations of noise beyond the outermost peak: e^-98 = 3e-43 of it is left out.
_POWERS = np.arange(2, 20)  # Powers of r in `log_excess` where |a r| <= 1/2: (1/2)^18 / 20! = 2e-24 is left out.
_FACTORIALS = gamma(_POWERS + 1)


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
    result = np.empty_like(flat)
    for index, order in enumerate(flat):
        log_moment = _log_moment_of(order, noise_multiplier)(sample_rate, noise_multiplier, order)
        result[index] = log_moment * (1 + _ROUNDING) / (order - 1)
    return result.reshape(orders.shape)


def _log_moment_of(order: float, noise_multiplier: float) -> Callable[[float, float, float], float]:
    if order <= _MOST_TERMS and float(order).is_integer():
        return _log_moment_series
    return _log_moment_quadrature if order < _MOST_NODES * noise_multiplier**2 else _log_moment_bound


def _log_moment_bound(sample_rate: float, noise_multiplier: float, order: float) -> float:
    """||1 - p + p X||_a <= 1 - p + p ||X||_a with X = e^{(2x - 1) / (2 s^2)}, whose norm is e^{(a - 1) / (2 s^2)}."""
    y = (order - 1) / (2 * noise_multiplier**2)
    if y > 30:
        return order * float(np.logaddexp(np.log1p(-sample_rate), np.log(sample_rate) + y))
    return order * float(np.log1p(sample_rate * np.expm1(y)))


@lru_cache(maxsize=2048)  # Accountants share orders.
def _log_moment_series(sample_rate: float, noise_multiplier: float, order: float) -> float:
    """Return log(1 + sum_k C(a, k) (1 - p)^{a - k} p^k (e^{k (k - 1) / (2 s^2)} - 1)) for integer a.

    The binomial probabilities sum to 1, so that the terms, all positive, keep the digits of moments close to 1.
    """
    k = np.arange(2, int(order) + 1)
    log_binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    unsampled, sampled = (order - k) * np.log1p(-sample_rate), k * np.log(sample_rate)
    growth = _log_expm1(k * (k - 1) / (2 * noise_multiplier**2))
    error = _UNIT * (8 + gammaln(order + 1) + np.abs(unsampled) + np.abs(sampled) + np.abs(growth))
    return _log1p_exp(_log_sum(log_binomial + unsampled + sampled + growth, error))


def _log_moment_quadrature(sample_rate: float, noise_multiplier: float, order: float) -> float:
    """The same moment by the trapezoid rule; the integrand is analytic in the strip |Im x| < pi s^2."""
    x, step, *columns = _line(sample_rate, noise_multiplier, 2.0 ** np.ceil(np.log2(max(order, 2.0))))
    count = int(np.ceil((max(order, 2.0) + _REACH * noise_multiplier - x[0]) / step))
    log_ratio, error, log_density = (column[:count] for column in columns)
    return _log_moment(log_ratio, error, log_density, order, step)


@lru_cache(maxsize=4)
def _line(
    sample_rate: float, noise_multiplier: float, highest: float
) -> tuple[np.ndarray, float, np.ndarray, np.ndarray, np.ndarray]:
    """The nodes of all orders up to the highest one, whose first ones are those of smaller orders, and the mixture."""
    x, step = _nodes(noise_multiplier, -_REACH * noise_multiplier, highest + _REACH * noise_multiplier)
    return x, step, *_mixture(sample_rate, noise_multiplier, x), _log_normal(x, noise_multiplier)


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
        x, step, *columns = _replaced_line(sample_rate, noise_multiplier, 2.0 ** np.ceil(np.log2(max(order, 2.0))))
        count = int(np.ceil((2 * max(order, 2.0) + _REACH * noise_multiplier - x[0]) / step))
        log_ratio, error, log_density = (column[:count] for column in columns)
        log_moment = _log_moment(log_ratio, error, log_density, order, step)
        result[index] = log_moment * (1 + _ROUNDING) / (order - 1)
    return result.reshape(np.shape(orders))


@lru_cache(maxsize=4)
def _replaced_line(
    sample_rate: float, noise_multiplier: float, highest: float
) -> tuple[np.ndarray, float, np.ndarray, np.ndarray, np.ndarray]:
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
    log_ratio: np.ndarray, ratio_error: np.ndarray, log_density: np.ndarray, order: float, step: float
) -> float:
    """Return log E[ratio^order] under the density, from above but for the quadrature, on nodes `step` apart.

    E[ratio] = 1 exactly, so the moment is 1 + E[ratio^a - 1 - a (ratio - 1)], an integral of a positive function, whose
    logarithm has a slope of at most 2 max(a, 2 / |r|) in r = log ratio.
    """
    excess = log_excess(log_ratio, order)
    slope = 2 * np.maximum(order, 2 / np.maximum(np.abs(log_ratio), 1e-300))
    error = _UNIT * (8 + np.abs(log_density) + order * np.abs(log_ratio)) + slope * ratio_error
    return _log1p_exp(_log_sum(log_density + excess, error) + float(np.log(step)))


def log_excess(r: np.ndarray, order: float) -> np.ndarray:
    """Return log(e^{a r} - 1 - a (e^r - 1)) for a > 1 with its digits at any size of r; the argument is never negative.

    Near 0 it is sum_k (a^k - a) r^k / k!; elsewhere, for a < 2, e^r (e^{(a - 1) r} - 1 - (a - 1)) + a - 1.
    """
    b = order - 1
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        coefficients = order * np.expm1((_POWERS - 1) * np.log1p(b)) / _FACTORIALS
        capped = np.clip(r, -0.5 / order, 0.5 / order)
        near = np.log(np.polynomial.polynomial.polyval(capped, coefficients)) + 2 * np.log(np.abs(r))
        middle = np.log(np.expm1(order * r) - order * np.expm1(r) if b >= 1 else np.exp(r) * (np.expm1(b * r) - b) + b)
        # From a r = 30 on the other terms are a share a e^{-b r} + b e^{-a r} of the first.
        far = order * r + np.log1p(-order * np.exp(-b * r) + b * np.exp(-order * r))
    far_enough = (order * r > 30) & (b * r > 2 * np.log1p(b) + 1)
    return np.where(np.abs(order * r) <= 0.5, near, np.where(far_enough, far, middle))


def _log_expm1(y: np.ndarray) -> np.ndarray:
    """Return log(e^y - 1) for y > 0."""
    return y + np.log(-np.expm1(-y))


def _log_sum(terms: np.ndarray, error: np.ndarray) -> float:
    """Return an upper bound on log sum e^terms, each known up to its error."""
    top = float(terms.max())
    if not np.isfinite(top):
        return top
    weights = np.exp(terms - top)
    return top + float(np.log((weights * np.exp(np.minimum(error, 1.0))).sum()))


def _log1p_exp(y: float) -> float:
    """Return log(1 + e^y)."""
    return float(np.logaddexp(0.0, y))


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
                value = _log1p_exp(_log_sum(terms, error)) * (1 + _ROUNDING) / (order - 1)
                found[index] = max(found[index], min(value, top))
    return found.reshape(orders.shape)
