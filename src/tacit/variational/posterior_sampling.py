"""Posterior sampling around a certified minimiser, with a fixed covariance and a sensitivity from convexity (V4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit import check
from tacit.accounting import Ledger
from tacit.erm.losses import Loss
from tacit.erm.records import check_unit_rows, finite_records
from tacit.erm.release import ledger_and_stream, lipschitz
from tacit.erm.rounding import gamma, gradient_rounding
from tacit.erm.solver import TOLERANCE, Problem, minimise
from tacit.mechanisms import Gaussian, Mechanism
from tacit.noise import Stream, rounded_gaussian

Array = np.ndarray
# Nodes of Gauss-Hermite quadrature: exact for polynomials of degree 31, below rounding for these smooth losses.
_NODES = 16


@dataclass(frozen=True, eq=False)
class Smeared(Loss):
    """E l(s + r z), z ~ N(0, 1): a loss averaged over the Gaussian spread r of a record's score, by Gauss-Hermite.

    Averages keep Lipschitz constants, smoothness and convexity. Single-output losses only.

    Args:
        base: the loss of one score.
        spread: r >= 0, of every record in shape (n, 1): std of the parameters times the norm of its features.
    """

    base: Loss
    spread: Array | float

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant of the base loss."""
        return self.base.lipschitz

    @property
    def smoothness(self) -> float:
        """Smoothness of the base loss."""
        return self.base.smoothness

    @property
    def alphabet(self) -> str:
        """Alphabet of the base loss."""
        return self.base.alphabet

    def accepts(self, targets: Array) -> Array:
        """Which targets the base loss accepts."""
        return self.base.accepts(targets)

    def values(self, scores: Array, targets: Array) -> Array:
        """Averaged losses, (n,)."""
        return self._mean(self.base.values, scores, targets)

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Averaged derivatives, (n, k)."""
        return self._mean(self.base.slopes, scores, targets)

    def curvatures(self, scores: Array, targets: Array) -> Array:
        """Averaged second derivatives, (n, k, k)."""
        return self._mean(self.base.curvatures, scores, targets)

    def _mean(self, of: Callable[[Array, Array], Array], scores: Array, targets: Array) -> Array:
        return np.sum([weight * of(scores + move, targets) for move, weight in self._nodes()], axis=0)

    def _nodes(self) -> list[tuple[Array | float, float]]:
        points, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        return [(self.spread * point, weight) for point, weight in zip(points, weights / weights.sum(), strict=True)]


@dataclass(frozen=True, eq=False)
class Sampled:
    """Released `samples` of shape (count, d), and their cost together.

    Example:
        >>> Sampled.__dataclass_fields__["samples"].type
        'Array'
    """

    samples: Array
    mechanism: Mechanism
    ledger: Ledger


def posterior_samples(
    loss: Loss,
    features: Array,
    targets: Array,
    *,
    strength: float,
    std: float,
    count: int = 1,
    ledger: Ledger | None = None,
    stream: Stream | None = None,
) -> Sampled:
    """`count` samples of N(m*, std^2 I), m* = argmin_m sum_i E_{w ~ N(m, std^2 I)} l_i(w) + (strength / 2) ||m||^2.

    One record moves m* by at most G / strength, so one sample is exactly mu-GDP with mu = G / (strength std), and K
    independent ones have sqrt(K) times that (improved accounting, V4). The minimiser is found to a gradient norm t,
    and 2 t is added to G, t with its rounding. With the prior of a standard normal, strength 1, this is useless:
    strength must grow with n.

    Args:
        loss: of single scores, with a finite Lipschitz constant.
        features: (n, d), rows of norm <= 1; records that are not finite become blank.
        targets: (n,), of the loss's alphabet.
        strength: precision of the prior, > 0.
        std: of the fixed covariance, > 0.
        count: samples released.
        ledger: written to before they are drawn; a new one by default.
        stream: source of the noise; the secure stream by default.

    Raises:
        InvalidInput: the loss has unbounded gradients, a row is longer than 1, a target outside the loss's alphabet, or
            an argument out of range.

    Example:
        >>> from tacit.erm.losses import Logistic
        >>> features, targets = np.full((20, 1), 0.5), np.ones(20)
        >>> posterior_samples(Logistic(), features, targets, strength=5.0, std=1.0, count=3).samples.shape
        (3, 1)
    """
    if not np.isfinite(loss.lipschitz) or loss.outputs != 1:
        raise check.fail("loss", "of one score with bounded gradients", str(loss))
    features, targets = finite_records(features, targets)
    check_unit_rows(features)
    ledger, stream = ledger_and_stream(ledger, stream, exact=True)
    smeared = Smeared(loss, check.positive("std", std) * np.linalg.norm(features, axis=1)[:, None])
    problem = Problem(features, targets, smeared, check.positive("strength", strength))
    best = minimise(problem).theta[:, 0]
    bound = lipschitz(problem, "posterior_samples")
    # A shifted score errs by a unit of it; no node is further out than 2 sqrt(nodes) spreads, and rows have norm <= 1.
    shifts = problem.records * loss.smoothness * gamma(_NODES) * 2 * math.sqrt(_NODES) * std
    unit = (bound + 2 * (TOLERANCE + gradient_rounding(problem, bound) + shifts)) / strength
    mechanism = Gaussian(std / unit)
    ledger.add(mechanism, check.count("count", count), "posterior samples")
    samples = rounded_gaussian(np.tile(best, (count, 1)), stream, std=std)
    return Sampled(samples, mechanism * count, ledger)
