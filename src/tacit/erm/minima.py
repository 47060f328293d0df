"""Approximate minima: the noise that makes a solver's tolerance part of the proof (Iyengar et al. 2019)."""

from __future__ import annotations

import math

import numpy as np

from tacit.accounting import Accountant
from tacit.erm.losses import Loss
from tacit.erm.problem import Problem
from tacit.erm.release import Terms
from tacit.erm.solver import minimise
from tacit.mechanisms import Compose, Gaussian, Mechanism, ObjectivePerturbation
from tacit.noise import gaussian
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve
from tacit.tradeoff.gaussian import gaussian_delta
from tacit.tradeoff.root import bracketed_root

_LEAST = 1e-12
_SHARES = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)


def rounded_minimiser(
    problem: Problem, terms: Terms, linear: np.ndarray, *, tolerance: float, noise_multiplier: float
) -> np.ndarray:
    """A point of gradient norm <= tolerance of F + <linear, .>, plus Gaussian noise that hides the error.

    Given the exact minimiser (and so, by the change of variables, the linear term), the solver's error is a function
    of the data of norm at most tolerance / strength: it moves by at most 2 tolerance / strength between neighbours,
    whatever the relation. Releasing it is one Gaussian step, std = noise_multiplier * 2 tolerance / (s strength),
    s = 1 or 2 the factor by which an accountant widens a Gaussian step under the relation; it composes adaptively.

    Source: Iyengar, Near, Song, Thakkar, Thakurta & Wang 2019, Algorithm 1, with the composition made explicit.
    """
    found = minimise(problem, linear=linear, tolerance=tolerance)
    std = noise_multiplier * 2 * tolerance / (terms.relation.sensitivity * problem.strength)
    return found.theta + gaussian(terms.stream, problem.shape, std=std)


def strength_for(loss: Loss, log_volume: float) -> float:
    """The smallest strength at which one record adds at most `log_volume` > 0 to log det of the Hessian."""
    if loss.log_volume(_LEAST) <= log_volume:
        return _LEAST
    high = 1.0
    while loss.log_volume(high) > log_volume:
        high *= 4
    return bracketed_root(lambda value: loss.log_volume(value) - log_volume, _LEAST, high) * (1 + 1e-12)


def pulled_strength(problem: Problem, noise_norm: float, prior_norm: float) -> float:
    """A public choice of the strength for a noise term of mean norm N: N / W, the pull of the regulariser at norm W.

    W = prior_norm as long as the noise outweighs the data, that is, N / prior_norm >= n c / p, which stands for the
    mean eigenvalue of the Hessian (c the smoothness; the trace of sum x x^T is at most n). Below that W grows with
    the square root of the ratio, since the spectrum of real tables falls fast and less noise resolves more of it.
    The power was chosen on Bank and a synthetic table, never on Adult; see docs/erm.md.
    """
    strength = noise_norm / prior_norm
    curvature = problem.records * problem.loss.smoothness / problem.shape[0]
    return strength * min(1.0, math.sqrt(strength / curvature))


class ClosedObjective(Accountant):
    """`ObjectivePerturbation` and one Gaussian step in closed form, for any number of corners.

    delta(epsilon) <= min over t of delta_objective(epsilon - t) + delta_gaussian(t): either loss may be large.
    """

    name = "closed_objective"
    standing = Standing.PROVEN

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The profile of a composition of these two."""
        kinds = {type(part): part for part, _ in mechanism.parts()}
        objective, rounding = kinds[ObjectivePerturbation], kinds[Gaussian]
        assert isinstance(objective, ObjectivePerturbation)
        return JointCurve(objective, rounding.mu(relation), relation)


class JointCurve(Curve):
    """The profile of `ClosedObjective`."""

    def __init__(self, objective: ObjectivePerturbation, mu: float, relation: Relation):
        self._objective = objective
        self._mu = mu
        self._relation = relation

    def delta(self, epsilon: float) -> float:
        shares = [share * self._mu for share in _SHARES if share * self._mu < epsilon] or [0.0]
        return min(
            min(self._objective.delta_at(epsilon - share, self._relation) + gaussian_delta(share, self._mu), 1.0)
            for share in shares
        )


def with_rounding(objective: ObjectivePerturbation, *, ratio: float = 500.0) -> Compose:
    """`objective` and its rounding step, whose mu is 1 / ratio of that of the linear term."""
    return Compose.of((objective, 1), (Gaussian(ratio * objective.noise_multiplier), 1))
