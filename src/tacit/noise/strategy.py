"""Strategies of correlated noise: square root, banded, buffered linear Toeplitz; the error of tree aggregation.

Errors are those of all prefix sums at noise 1 per unit of sensitivity: sqrt(mean_i e_i), e_i = sum_j (A C^-1)_ij^2,
A the lower triangular matrix of ones.
"""

import numpy as np

from tacit import check
from tacit.mechanisms.matrix import Strategy
from tacit.mechanisms.toeplitz import ToeplitzStrategy, TreeStrategy, honaker_variances, solved

_SCALE = 100.0  # Coefficients are optimised in this unit: L-BFGS's first step is of length 1 and must stay stable.
_UNSTABLE = 1e12  # Value of the objective where the recursion overflows.


INDEPENDENT, AUTO = "independent", "banded:auto"
_NAMED = "independent, banded:B, banded:auto, blt:B, square_root or tree"


def strategy_of(noise: str | Strategy, iterations: int) -> Strategy | None:
    """The strategy of a name such as "banded:8", "blt:4", "square_root" or "tree"; None for "independent".

    Args:
        noise: the name; or a strategy of as many iterations, which is itself.
        iterations: n >= 1, steps of the run.

    Raises:
        InvalidInput: there is no such strategy.

    Example:
        >>> strategy_of("banded:8", 100).bands
        8
    """
    if isinstance(noise, Strategy):
        if noise.iterations != iterations:
            raise check.fail("noise", f"a strategy of {iterations} iterations, the steps", noise.iterations)
        return noise
    kind, _, number = check.text("noise", noise).partition(":")
    if noise == INDEPENDENT:
        return None
    if noise in ("square_root", "tree"):
        return square_root(iterations) if noise == "square_root" else TreeStrategy(iterations)
    if kind not in ("banded", "blt") or not number.isdecimal() or int(number) < 1:
        raise check.fail("noise", _NAMED, noise, "B is a number, as in banded:8.")
    if kind == "banded":
        return banded(iterations, check.count("bands of noise", int(number), maximum=iterations))
    return buffered(iterations, int(number))


def prefix_error(strategy: ToeplitzStrategy) -> float:
    """The error of `strategy`, whose columns have norm at most 1, at sigma 1: root of the mean variance over all steps.

    Example:
        >>> round(prefix_error(ToeplitzStrategy(1000, (1.0,))), 6)
        22.371857
    """
    return float(strategy.squared_errors().mean() ** 0.5)


def square_root(iterations: int) -> ToeplitzStrategy:
    """The square root of the prefix matrix: c_0 = 1, c_k = c_{k-1} (2k - 1) / (2k).

    It has the least largest error of Toeplitz factorisations up to an additive constant (Fichtenberger et al. 2022,
    arXiv:2211.05006; Dvijotham et al. 2024, arXiv:2404.16706).

    Args:
        iterations: n >= 1.

    Example:
        >>> round(prefix_error(square_root(1000)), 6)
        3.102239
    """
    k = np.arange(1, check.count("iterations", iterations))
    return ToeplitzStrategy(iterations, (1.0, *np.cumprod((2 * k - 1) / (2 * k))), normalised=False)


def banded(iterations: int, bands: int, *, normalised: bool = True) -> ToeplitzStrategy:
    """The banded Toeplitz matrix of least error for a single participation in every `bands` steps.

    Minimises log(sum_j (n - j) / n beta_j^2) + log(sum c^2), beta = T^-1 (1, ..., 1), by L-BFGS with the gradient in
    closed form (McKenna 2024, arXiv:2405.15913).

    Args:
        iterations: n >= 1.
        bands: b in [1, n].
        normalised: whether every column of the result is scaled by itself.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> round(prefix_error(banded(1000, 2)), 6)
        15.920271
    """
    from scipy.optimize import minimize  # Takes a while to load, and few ask for it.

    n = check.count("iterations", iterations)
    check.count("bands", bands, maximum=n)
    weights = (n - np.arange(n)) / n

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        c = np.concatenate([[1.0], x / _SCALE])
        with np.errstate(over="ignore", invalid="ignore"):
            beta = solved(c, np.ones(n))
            error = float(weights @ beta**2)
            if not np.isfinite(error):
                return _UNSTABLE, np.zeros(bands - 1)
            adjoint = solved(c, (2 * weights * beta)[::-1])[::-1]
        slopes = np.array([-float(adjoint[k:] @ beta[: n - k]) for k in range(1, bands)])
        return float(np.log(error) + np.log(c @ c)), (slopes / error + 2 * c[1:] / (c @ c)) / _SCALE

    start = np.array(square_root(bands).coefficients[1:]) * _SCALE
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-9})
    c = np.concatenate([[1.0], found.x / _SCALE])
    return ToeplitzStrategy(n, tuple(c / np.linalg.norm(c)), normalised)


def buffered(iterations: int, buffers: int) -> ToeplitzStrategy:
    """The buffered linear Toeplitz matrix of least mean error: c_k = sum_i omega_i theta_i^{k-1}, c_0 = 1.

    Its noise takes `buffers` vectors of memory whatever n is (Dvijotham et al. 2024, arXiv:2404.16706).

    Args:
        iterations: n >= 2.
        buffers: 1 to 10.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> round(prefix_error(buffered(1000, 2)), 2)
        3.08
    """
    from scipy.optimize import minimize
    from scipy.signal import lfilter

    n = check.count("iterations", iterations, minimum=2)
    check.count("buffers", buffers, maximum=10)
    powers, weights = np.arange(n - 1), (n - np.arange(n)) / n

    def parameters(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 1 / (1 + np.exp(-x[:buffers])), np.exp(x[buffers:])

    def coefficients(decay: np.ndarray, size: np.ndarray) -> np.ndarray:
        return np.concatenate([[1.0], size @ decay[:, None] ** powers])

    def loss(x: np.ndarray) -> float:
        decay, size = parameters(x)
        c = coefficients(decay, size)
        with np.errstate(over="ignore", invalid="ignore"):
            # As a rational function of the shift, C is `top` / `below`, so that its inverse takes O(n buffers).
            below = np.poly(decay)
            top = below + sum(w * np.append(0.0, np.poly(np.delete(decay, i))) for i, w in enumerate(size))
            error = float(weights @ np.square(lfilter(below, top, np.ones(n))))
        return float(np.log(error) + np.log(c @ c)) if np.isfinite(error) else _UNSTABLE

    half = np.linspace(1.0, np.log(n), buffers) if buffers > 1 else np.array([np.log(n) / 2])
    start = np.concatenate([half, np.log(0.25 / 2 ** np.arange(buffers))])
    found = minimize(loss, start, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-12, "gtol": 1e-8})
    decays, sizes = parameters(found.x)
    return ToeplitzStrategy(n, normalised=False, buffers=tuple(zip(decays.tolist(), sizes.tolist(), strict=True)))


def tree_error(iterations: int) -> float:
    """Error of tree aggregation for prefix sums, one participation: the baseline.

    A prefix sums one node for each set bit h of its length t; a node has variance 2^h / (2^{h+1} - 1), as its subtree
    is used too (Honaker 2015). sens^2 = floor(log2 n) + 1.

    Args:
        iterations: n >= 1.

    Example:
        >>> round(tree_error(1000), 6)
        5.357328
    """
    n = check.count("iterations", iterations)
    levels = n.bit_length()
    bits = (np.arange(1, n + 1)[:, None] >> np.arange(levels)) & 1
    return float((levels * (bits @ honaker_variances(levels)).mean()) ** 0.5)
