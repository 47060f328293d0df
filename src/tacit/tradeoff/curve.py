"""Curves: one-sided bounds on the trade-off between an attacker's two errors.

A curve is represented by its privacy profile delta(epsilon), epsilon >= 0, the larger of both directions of the
neighbouring relation; the symmetric trade-off function follows from it (Dong, Roth & Su 2019, Prop. 2.13):
beta(alpha) = max_eps max{1 - delta(eps) - e^eps alpha, e^{-eps} (1 - delta(eps) - alpha)}.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from tacit.root_finding import bisect, bracketed_root
from tacit.tradeoff.gaussian import (
    LEVELS,
    covers,
    delta_of_powers,
    gaussian_beta,
    gaussian_delta,
    gaussian_deltas,
    gaussian_epsilon,
    gaussian_mu,
    powers_at,
    repeated,
    tangents,
)

_GRID = 129  # grid points of a profile: tangents are then within about 1e-4 of a smooth curve
PROFILE_END = 1e-15  # delta at which profiles end: below the rounding of a double near 1


_ONE_BY_ONE = 64
"""Records of a group whose powers are composed at exact levels; beyond, levels are rounded up and composed in pairs."""

_GROUPED = 1e-12
"""Relative rounding of a group's delta: at most 700 in the exponents, whose last digit is 1e-13."""


class Curve(ABC):
    """A privacy profile with its inverse and the quantities derived from it.

    A subclass gives `delta`; every other answer follows, and may be overridden by a closed form.

    Example:
        >>> curve: Curve = GaussianCurve(1.0)
        >>> round(curve.epsilon(curve.delta(0.5)), 6)
        0.5
    """

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """The delta at epsilon >= 0, non-increasing."""

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 with delta(epsilon) <= delta; inf when there is none."""
        if self.delta(0.0) <= delta:
            return 0.0
        if delta == 0.0:
            return float("inf")  # A profile that ends at 0 may have underflown; who knows the largest loss overrides.
        high = 1.0
        while self.delta(high) > delta:
            high *= 2
            if high > 1e300:
                return float("inf")
        root = bracketed_root(lambda epsilon: self.delta(epsilon) - delta, 0.0, high)
        return root * (1 + 1e-12) + 1e-15

    def group(self, size: int) -> Curve:
        """The curve of groups of `size` records from this one of single records, see `GroupCurve`.

        Example:
            >>> ProfileCurve(lambda epsilon: 1e-6 if epsilon >= 1 else 1.0).group(2).delta(2.0) > 2e-6
            True
        """
        return self if size == 1 else GroupCurve(self, size)

    def beta(self, alpha: np.ndarray) -> np.ndarray:
        """Lower bound on the type II error at type I error alpha, from tangents on a grid of epsilons."""
        epsilons, deltas = self.profile
        return tangents(np.asarray(alpha, dtype=float), epsilons, deltas)

    def refuted_by(self, alpha: np.ndarray, beta: np.ndarray) -> bool:
        """Whether a test with errors `alpha` and `beta`, both shape (points,), lies below the curve at some point."""
        return not np.all(self.beta(alpha) <= beta)

    def beta_ceiling(self, alpha: np.ndarray) -> np.ndarray:
        """Upper bound on the type II error if this profile is a lower bound on the true one.

        Between grid points the profile is at least its value at the right end, so each tangent is taken
        with the smaller delta and the smaller slope.
        """
        epsilons, deltas = self.profile
        shifted = np.append(deltas[1:], 0.0)
        return tangents(np.asarray(alpha, dtype=float), epsilons, shifted)

    def mu(self, slack: float) -> float:
        """Upper bound on the smallest mu with delta(eps) <= delta_mu(eps) + slack for every eps >= 0; inf if none.

        Both profiles are convex in e^eps. Between grid points this one lies below its chord and delta_mu above any of
        its tangents, so comparing chord and tangent at the two ends covers the interval.
        """
        if np.isinf(self.epsilon(max(slack, PROFILE_END))):
            return float("inf")
        epsilons, deltas = self.profile
        if deltas[-1] > max(slack, PROFILE_END) or (slack < PROFILE_END and deltas[-1] > 0.0):
            return float("inf")
        mu = self.mu_floor(slack) * (1 + 1e-3) + 1e-12
        while not covers(mu, epsilons, deltas - max(slack, PROFILE_END)):
            mu *= 1.003  # the answer is at most .3 % too large
        return mu

    def mu_floor(self, slack: float) -> float:
        """Lower bound on the `mu` of every curve that leaks at least as much: the mu needed at single epsilons."""
        if slack > 0 and np.isinf(self.epsilon(slack)):
            return float("inf")
        epsilons, needed = self.profile[0], self.profile[1] - slack
        largest, left = 0.0, needed > 0.0
        while left.any():  # The point that the largest so far covers least comes next.
            share = np.where(left, gaussian_deltas(epsilons, largest) / np.where(left, needed, 1.0), np.inf)
            worst = int(np.argmin(share))
            left &= share < 1.0
            left[worst] = False
            if share[worst] < 1.0:
                largest = max(largest, gaussian_mu(float(epsilons[worst]), float(needed[worst])))
        return largest

    def regret(self, mu: float) -> float:
        """The loss from reporting G_mu: the smallest k with f(alpha + k) - k <= G_mu(alpha) for every alpha.

        The distance of Kaissis et al. (2024) between trade-off functions; 0 when the curve is G_mu itself.
        """
        alpha = np.concatenate([np.geomspace(1e-9, 1e-2, 200), np.linspace(1e-2, 1.0, 800)[1:]])
        promised = gaussian_beta(alpha, mu)

        def enough(k: float) -> bool:
            return bool(np.all(self.beta(np.minimum(alpha + k, 1.0)) - k <= promised + 1e-12))

        return 0.0 if enough(0.0) else bisect(lambda k: not enough(k), 0.0, 1.0, halvings=30)[1]

    def advantage(self) -> float:
        """Total variation: max over tests of true minus false positive rate, delta(0)."""
        return self.delta(0.0)

    @cached_property
    def profile(self) -> tuple[np.ndarray, np.ndarray]:
        """(epsilons, deltas) on a grid from 0 to where delta meets 1e-15, dense near 0."""
        epsilons = profile_grid(self.epsilon(PROFILE_END))
        deltas = np.array([self.delta(float(e)) for e in epsilons])
        return epsilons, np.clip(deltas, 0.0, 1.0)


def profile_grid(last: float, points: int = _GRID) -> np.ndarray:
    """Epsilons of a profile from 0 to `last`, or to 64 where that is infinite; dense near 0."""
    return (last if np.isfinite(last) else 64.0) * np.linspace(0.0, 1.0, points) ** 1.5


class GaussianCurve(Curve):
    """G_mu, the trade-off function of N(0, 1) against N(mu, 1), mu in [0, inf].

    Example:
        >>> round(GaussianCurve(1.0).delta(1.0), 4)
        0.1269
    """

    def __init__(self, mu: float):
        self._mu = mu

    def group(self, size: int) -> Curve:
        """G_{k mu} (Dong, Roth & Su 2022, Theorem 2.14)."""
        return GaussianCurve(size * self._mu)

    def delta(self, epsilon: float) -> float:
        """Closed form."""
        return gaussian_delta(epsilon, self._mu)

    def epsilon(self, delta: float) -> float:
        """Inverse of the closed form."""
        return gaussian_epsilon(delta, self._mu)

    def beta(self, alpha: np.ndarray) -> np.ndarray:
        """G_mu(alpha)."""
        return gaussian_beta(alpha, self._mu)

    beta_ceiling = beta

    def mu(self, slack: float) -> float:
        """The curve's own mu; the slack is not used."""
        return self._mu

    mu_floor = mu


class ProfileCurve(Curve):
    """A curve given by its function delta(epsilon).

    Example:
        >>> round(ProfileCurve(lambda epsilon: 0.1 / (1 + epsilon)).epsilon(0.05), 6)
        1.0
    """

    def __init__(self, profile: Callable[[float], float]):
        self._profile = profile

    def delta(self, epsilon: float) -> float:
        """The given function, clipped to [0, 1]."""
        return min(max(float(self._profile(epsilon)), 0.0), 1.0)


class GroupCurve(Curve):
    """Groups of `size` records: the smaller of two bounds from the curve `one` of single records.

    delta_k(epsilon) <= delta(epsilon / k) (e^epsilon - 1) / (e^{epsilon / k} - 1) (Vadhan 2017, Lemma 2.2), and the
    power of a test at level a is at most g(g(...g(a))), k times g(a) = 1 - f(a) (Dong, Roth & Su 2022, Theorem 2.14).
    The second is taken at levels of a fine grid, in between at the next higher one.

    Args:
        one: the curve of single records.
        size: >= 1.

    Example:
        >>> one = ProfileCurve(lambda epsilon: gaussian_delta(epsilon, 0.5))
        >>> gaussian_delta(1.0, 1.0) <= one.group(2).delta(1.0) <= gaussian_delta(0.97, 1.0)
        True
    """

    def __init__(self, one: Curve, size: int):
        self._one, self._size = one, size

    def group(self, size: int) -> Curve:
        """Groups of groups are groups of the product."""
        return GroupCurve(self._one, size * self._size)

    def delta(self, epsilon: float) -> float:
        """The smaller of the two bounds."""
        share = epsilon / self._size
        one = self._one.delta(share) if self._size <= _ONE_BY_ONE else self._chord(share)
        # (e^epsilon - 1) / (e^share - 1) without overflow.
        ratio = np.expm1(-epsilon) / np.expm1(-share) if share > 0 else float(self._size)
        log_factor = epsilon - share + float(np.log(ratio))
        textbook = float(np.exp(min(np.log(one) + log_factor, 0.0))) * (1 + _GROUPED) if one > 0 else 0.0
        return min(textbook, delta_of_powers(epsilon, self._powers) * (1 + _GROUPED), 1.0)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon; without delta that of `size` times the pure one."""
        return self._size * self._one.epsilon(0.0) if delta == 0.0 else super().epsilon(delta)

    def _chord(self, epsilon: float) -> float:
        """An upper bound on delta of one record between two points of its profile, which is convex in e^epsilon."""
        epsilons, deltas = self._one.profile
        right = int(np.searchsorted(epsilons, epsilon, side="right"))
        if right in (0, len(epsilons)):
            return float(deltas[-1]) if right else 1.0
        share = np.expm1(epsilon - epsilons[right - 1]) / np.expm1(epsilons[right] - epsilons[right - 1])
        return float(deltas[right - 1] + share * (deltas[right] - deltas[right - 1])) * (1 + _GROUPED)

    @cached_property
    def _powers(self) -> np.ndarray:
        """Upper bounds on the power of tests at `LEVELS`: a composition of increasing functions."""
        if self._size > _ONE_BY_ONE:
            return repeated(powers_at(LEVELS, *self._one.profile), self._size)
        powers = LEVELS
        for _ in range(self._size):
            powers = powers_at(powers, *self._one.profile)
        return powers


class EpsilonCurve(Curve):
    """A curve given by its non-increasing function epsilon(delta), delta in (0, 1).

    Example:
        >>> round(EpsilonCurve(lambda delta: 1 - delta).delta(0.75), 6)
        0.25
    """

    def __init__(self, epsilon_at: Callable[[float], float]):
        self._epsilon_at = epsilon_at

    def epsilon(self, delta: float) -> float:
        """The given function, at least 0."""
        return 0.0 if delta >= 1.0 else max(float(self._epsilon_at(delta)), 0.0)

    @cached_property
    def profile(self) -> tuple[np.ndarray, np.ndarray]:
        """(epsilons, deltas) at the epsilons of a grid of deltas from 1 to 1e-15."""
        deltas = np.concatenate([1 - np.geomspace(1e-9, 0.5, _GRID // 2), np.geomspace(0.5, PROFILE_END, _GRID)[1:]])
        epsilons = np.array([self.epsilon(float(d)) for d in deltas])
        finite = np.isfinite(epsilons)
        epsilons, deltas = epsilons[finite], deltas[finite]
        first = int(np.searchsorted(epsilons, 0.0, side="right")) - 1
        if first < 0:
            return np.append(0.0, epsilons), np.append(1.0, deltas)
        return epsilons[first:], deltas[first:]

    def delta(self, epsilon: float) -> float:
        """The smallest delta whose epsilon is at most `epsilon`, by bisection in log delta."""
        if self.epsilon(0.0) <= epsilon:
            return 0.0

        def enough(log_delta: float) -> bool:
            return self.epsilon(float(np.exp(log_delta))) <= epsilon

        least = np.log(1e-300)  # near the smallest double
        return float(np.exp(least if enough(least) else bisect(lambda x: not enough(x), least, 0.0)[1]))


class WorstCurve(Curve):
    """Pointwise maximum of several privacy profiles, and pointwise minimum of the trade-off functions.

    It covers a composition of which only one of several alternatives runs.

    Example:
        >>> curve = WorstCurve([GaussianCurve(0.5), GaussianCurve(1.0)])
        >>> curve.mu(0.0)
        1.0
    """

    def __init__(self, curves: Sequence[Curve]):
        self._curves = curves

    def delta(self, epsilon: float) -> float:
        """The largest delta."""
        return max(curve.delta(epsilon) for curve in self._curves)

    def epsilon(self, delta: float) -> float:
        """The largest epsilon."""
        return max(curve.epsilon(delta) for curve in self._curves)

    def beta(self, alpha: np.ndarray) -> np.ndarray:
        """The smallest type II error."""
        return np.minimum.reduce([curve.beta(alpha) for curve in self._curves])

    def beta_ceiling(self, alpha: np.ndarray) -> np.ndarray:
        """The smallest ceiling."""
        return np.minimum.reduce([curve.beta_ceiling(alpha) for curve in self._curves])

    def mu(self, slack: float) -> float:
        """The largest mu."""
        return max(curve.mu(slack) for curve in self._curves)

    def mu_floor(self, slack: float) -> float:
        """The largest lower bound."""
        return max(curve.mu_floor(slack) for curve in self._curves)


def worst(curves: Sequence[Curve]) -> Curve:
    """The one curve, or the `WorstCurve` of several.

    Example:
        >>> worst([GaussianCurve(0.5)]).mu(0.0)
        0.5
    """
    return curves[0] if len(curves) == 1 else WorstCurve(curves)


class ErrorPoints(Curve):
    """Error pairs (alpha_i, beta_i) that an attacker reached; the true trade-off lies on or below their hull.

    Args:
        alpha: type I errors, shape (n,), clipped to [0, 1].
        beta: type II errors, shape (n,), clipped to [0, 1].

    Example:
        >>> points = ErrorPoints([0.1], [0.2])
        >>> round(points.delta(0.0), 6)
        0.7
    """

    def __init__(self, alpha: np.ndarray, beta: np.ndarray):
        self.alpha = np.clip(np.asarray(alpha, dtype=float), 0.0, 1.0)
        self.beta_reached = np.clip(np.asarray(beta, dtype=float), 0.0, 1.0)

    def delta(self, epsilon: float) -> float:
        """Max of 1 - beta - e^eps alpha over the points and over both directions."""
        one = 1 - self.beta_reached - np.exp(epsilon) * self.alpha
        other = 1 - self.alpha - np.exp(epsilon) * self.beta_reached
        return float(max(one.max(initial=0.0), other.max(initial=0.0), 0.0))

    def epsilon(self, delta: float) -> float:
        """Max of log((1 - delta - beta) / alpha) over the points and over both directions."""
        best = 0.0
        for miss, hit in ((self.beta_reached, self.alpha), (self.alpha, self.beta_reached)):
            gain = 1 - delta - miss
            with np.errstate(divide="ignore", invalid="ignore"):
                value = np.where(gain > 0, np.log(gain / hit), 0.0)
            best = max(best, float(np.max(value, initial=0.0)))
        return best

    def beta_ceiling(self, alpha: np.ndarray) -> np.ndarray:
        """Lower convex hull of the points, their mirror images and the corners (0, 1) and (1, 0)."""
        hull = self._hull
        return np.interp(np.asarray(alpha, dtype=float), hull[:, 0], hull[:, 1])

    beta = beta_ceiling

    def vertices(self) -> ErrorPoints:
        """The corners of the hull alone; they give the same answers, and refute the same (convex) claims."""
        inner = self._hull[1:-1]
        return ErrorPoints(inner[:, 0], inner[:, 1])

    @cached_property
    def _hull(self) -> np.ndarray:
        x = np.concatenate([[0.0, 1.0], self.alpha, self.beta_reached])
        y = np.concatenate([[1.0, 0.0], self.beta_reached, self.alpha])
        return lower_hull(x, y)

    def mu(self, slack: float) -> float:
        """The largest mu that a point refutes: Phi^{-1}(1 - alpha) - Phi^{-1}(beta)."""
        with np.errstate(invalid="ignore"):
            values = -ndtri(self.alpha) - ndtri(self.beta_reached)
        return float(np.max(values[~np.isnan(values)], initial=0.0))


def lower_hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Corners (n, 2) of the greatest convex function below the points, from left to right."""
    hull: list[tuple[float, float]] = []
    for point in sorted(zip(x.tolist(), y.tolist(), strict=True)):
        if hull and hull[-1][0] == point[0]:
            continue  # The lowest of each column comes first.
        while len(hull) >= 2 and _turn(hull[-2], hull[-1], point) <= 0:
            hull.pop()
        hull.append(point)
    return np.array(hull)


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
