"""`Nodes`: a pair as finitely many losses, exact or by a quadrature that keeps every moment E_P e^{zL}."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LOG_TOLERANCE = -75.0
"""log of the relative error that a quadrature may make in any moment that it is built for."""

_COUNTS = (8, 16, 24, 32, 48, 64)  # Nodes of one piece: a few sizes, so that their rules are reused.
# Bernstein ellipses to choose from; the best counts.
_RADII = np.array([1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 200.0, 1e4])
_WIDEST = 45.0  # Width of one piece over slope: longer ones need more nodes than two halves.
_MOST = 5e4  # Slope times length at most, tens of thousands of nodes.


def exponential_tilt(log_mass: np.ndarray, loss: np.ndarray, theta: float) -> tuple[float, np.ndarray]:
    """Return log sum_k m_k e^{theta l_k} and the tilted probabilities, without overflow."""
    exponent = log_mass + theta * loss
    top = float(exponent.max())
    weights = np.exp(exponent - top)
    total = float(weights.sum())
    return top + float(np.log(total)), weights / total


def weighted_mean_and_variance(weights: np.ndarray, loss: np.ndarray) -> tuple[float, float]:
    """Return mean and variance of a discrete law."""
    mean = float(weights @ loss)
    return mean, float(weights @ (loss - mean) ** 2)


@dataclass(frozen=True)
class Nodes:
    """Finite losses with their masses under P and Q."""

    loss: np.ndarray
    p: np.ndarray
    q: np.ndarray

    def log_moment(self, theta: float) -> float:
        """Return log E_P[e^{theta L}; L finite]."""
        return self.tilt(theta)[0]

    def tilt(self, theta: float) -> tuple[float, np.ndarray]:
        """Return log E_P[e^{theta L}; L finite] and the tilted probabilities."""
        with np.errstate(divide="ignore"):
            return exponential_tilt(np.log(self.p), self.loss, theta)

    def joined(self, other: Nodes) -> Nodes:
        """Return both together."""
        return Nodes(*(np.concatenate(pair) for pair in zip(self.columns, other.columns, strict=True)))

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """loss, p, q."""
        return self.loss, self.p, self.q


def steepness(rate: float, largest: float) -> float:
    """A bound on |d log(1 - p + p e^y) / dy|, p = `rate`, where Re y <= largest + pi / 2 and |Im y| <= pi / 2."""
    with np.errstate(divide="ignore"):
        return float(np.exp(min(np.log(rate) - np.log1p(-rate) + largest + np.pi / 2, 0.0)))


def legendre(low: float, high: float, theta: float, frequency: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights for int f(y) e^{zL(y)} dy, |Re z| <= theta, |Im z| <= frequency.

    It is assumed that f > 0 and e^L change by at most a factor e^{|dy|} over a distance |dy| and that L is analytic
    with |L'| <= 1 where |Im y| <= pi / 2; so it is for log(1 - p + p e^y), where |1 - p + p e^y| >= |p e^y|. On the
    Bernstein ellipse of parameter r around a piece of half width a no point is farther than a (r - 1/r) / 2 from the
    piece, so that n nodes miss it by at most (32 / 15) e^{2 a (theta + 1) + (theta + 1 + frequency) a (r - 1/r) / 2}
    r^{-2n} / (1 - r^{-2}) of its integral at Im z = 0 (Trefethen 2008, Theorem 4.5).

    Raises `OverflowError` where tens of thousands of nodes would be needed.

    Args:
        low: lower end of the integral.
        high: upper end, > low.
        theta: largest |Re z|, >= 0.
        frequency: largest |Im z|, >= 0.

    Raises:
        OverflowError: tens of thousands of nodes would be needed.
    """
    slope = frequency + 2.5 * (theta + 1)
    if slope * (high - low) > _MOST:
        raise OverflowError(f"a quadrature of slope {slope:.3g} over {high - low:.3g} needs too many nodes")
    pieces = max(int(np.ceil((high - low) * max(slope / (2 * _WIDEST), 0.5))), 1)
    half = (high - low) / (2 * pieces)
    rise = (_RADII - 1 / _RADII) / 2
    radius, rise = _RADII[half * rise <= np.pi / 2], rise[half * rise <= np.pi / 2]
    needed = (half * slope * (0.8 + rise) + 2.0 - LOG_TOLERANCE) / (2 * np.log(radius))
    count = next((n for n in _COUNTS if n >= needed.min()), int(np.ceil(needed.min())))
    x, weight = np.polynomial.legendre.leggauss(count)
    centres = low + half * (2 * np.arange(pieces) + 1)
    return (centres[:, None] + half * x).ravel(), np.tile(half * weight, pieces)
