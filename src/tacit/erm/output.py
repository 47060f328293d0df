"""Output perturbation: noise on the minimiser (Chaudhuri, Monteleoni & Sarwate, JMLR 2011)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.erm.release import Method, Release, Terms, lipschitz
from tacit.erm.solver import ROUNDED_DOWN, TOLERANCE, Problem, gradient_rounding, minimise
from tacit.errors import Refused
from tacit.mechanisms import Approximate, Gaussian
from tacit.relation import Relation


def minimiser_sensitivity(problem: Problem, relation: Relation, tolerance: float, method: str) -> float:
    """Sensitivity of a minimiser found to `tolerance`: (s G + 2 tolerance) / strength.

    s = 1 for add/remove and zero-out, 2 for replace-one. One record adds a term of gradient norm <= G to a
    strength-strongly convex sum, which moves the exact minimiser by at most G / strength (Chaudhuri et al. 2011,
    Lemma 7, for sums); a point of gradient norm <= tolerance is within tolerance / strength of it, for both data sets.

    Args:
        problem: with a positive strength.
        relation: neighbouring relation, which sets s.
        tolerance: of the solver, on the gradient's norm.
        method: name for errors.

    Raises:
        InvalidInput: the strength is 0, or the loss has no Lipschitz constant.
    """
    hint = "Output perturbation rests on strong convexity; give a regularization."
    strength = check.positive("strength", problem.strength, hint)
    return (relation.sensitivity * lipschitz(problem, method) + 2 * tolerance) / strength


def balanced_strength(problem: Problem, unit_noise: float, prior_norm: float) -> float:
    """Strength L at which bias L W^2 / 2 and noise (A / 2) (N / L)^2 grow alike: L^3 = 2 A (N / W)^2.

    N / L is the norm of the noise on the minimiser; A = n c / p, c the smoothness, stands for the mean eigenvalue of
    the Hessian, since the trace of sum x x^T is at most n. W = prior_norm while L >= A; below that W grows with
    the cube root of A / L, for the reason that `pulled_strength` gives, which leaves L^7 = L_0^9 / A^2.
    """
    curvature = problem.size * problem.loss.smoothness / problem.shape[0]
    strength = float(np.cbrt(2 * curvature * (unit_noise / prior_norm) ** 2))
    return strength * min(1.0, strength / curvature) ** (2 / 7)


@dataclass(frozen=True)
class OutputPerturbation(Method):
    """theta* + b, density of b proportional to e^{-epsilon ||b|| / S}, S = `minimiser_sensitivity`.

    Proof: the densities of theta at one point differ by e^{epsilon ||theta*(D) - theta*(D')|| / S} <= e^epsilon. With
    replace-one and a mean loss, S = 2 G / (n lambda): the published beta = n lambda epsilon / 2 for G = 1.

    Args:
        tolerance: of the solver, on the gradient's norm; inside the sensitivity.

    Source: Chaudhuri et al. 2011, Algorithm 1 and Theorem 6.

    Example:
        >>> OutputPerturbation().pure
        True
    """

    family: ClassVar[str] = "output"
    any_size: ClassVar[bool] = True
    reads_prior_norm: ClassVar[bool] = True
    name: ClassVar[str] = "chaudhuri"
    pure: ClassVar[bool] = True
    tolerance: float = TOLERANCE

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """`balanced_strength` for a noise of mean norm p k S / epsilon."""
        bound = terms.relation.sensitivity * lipschitz(problem, self.name)
        return balanced_strength(problem, problem.dimension * bound / terms.pure_epsilon(), prior_norm)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release theta* plus radial noise of rate epsilon / S."""
        tolerance = self.tolerance + gradient_rounding(problem, lipschitz(problem, self.name))
        sensitivity = minimiser_sensitivity(problem, terms.relation, tolerance, self.name)
        epsilon = terms.pure_epsilon()
        rate = ROUNDED_DOWN * epsilon / sensitivity
        _check_rate(rate, problem, terms.relation, epsilon)
        mechanism = Approximate(epsilon, 0.0)
        best = minimise(problem, tolerance=self.tolerance).theta
        terms.charge(mechanism, "output perturbation", exact=True)
        theta = terms.radial(best, rate=rate)
        return terms.release(theta, mechanism, {"sensitivity": sensitivity, "rate": rate})


@dataclass(frozen=True)
class GaussianOutput(Method):
    """theta* + N(0, s^2 I): mu-GDP with mu = S / s exactly, S = `minimiser_sensitivity`.

    The limit of Zhang et al. 2017, noise on the last iterate of gradient descent, for many steps.

    Args:
        tolerance: of the solver, on the gradient's norm; inside the sensitivity.

    Example:
        >>> GaussianOutput().pure
        False
    """

    family: ClassVar[str] = "output"
    any_size: ClassVar[bool] = True
    reads_prior_norm: ClassVar[bool] = True
    name: ClassVar[str] = "gaussian"
    tolerance: float = TOLERANCE

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """`balanced_strength` for a noise of mean norm s sqrt(p k)."""
        unit = lipschitz(problem, self.name) * terms.gaussian()
        return balanced_strength(problem, unit * math.sqrt(problem.dimension), prior_norm)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release theta* plus Gaussian noise."""
        # The ledger multiplies by s itself: (s G + 2 tolerance) <= s (G + 2 tolerance).
        tolerance = self.tolerance + gradient_rounding(problem, lipschitz(problem, self.name))
        unit = minimiser_sensitivity(problem, Relation.ADD_REMOVE, tolerance, self.name)
        mechanism = Gaussian(terms.gaussian())
        best = minimise(problem, tolerance=self.tolerance).theta
        terms.charge(mechanism, "output perturbation", exact=True)
        return with_gaussian_noise(best, unit, mechanism, terms, {})


def _check_rate(rate: float, problem: Problem, relation: Relation, epsilon: float) -> None:
    """Raise `Refused` where minimisers as far apart as those of neighbours may be told apart at more than epsilon."""
    records = 2 if relation is Relation.REPLACE_ONE else 1
    if not rate * records * problem.loss.lipschitz <= epsilon * problem.strength * (1 + 1e-9):
        raise Refused("noise on a minimiser must cover what a neighbour moves it by; it would not.")


def with_gaussian_noise(
    theta: np.ndarray, unit: float, mechanism: Gaussian, terms: Terms, facts: dict[str, float]
) -> Release:
    """Release theta + N(0, s^2 I), s = noise multiplier * unit.

    Args:
        theta: (p, k), exact.
        unit: sensitivity of theta under add/remove.
        mechanism: what was charged.
        terms: source of the noise, and the relation.
        facts: further public numbers.
    """
    std = mechanism.noise_multiplier * unit
    released = terms.noisy(theta, std=std)
    return terms.release(
        released, mechanism, {"sensitivity": unit * terms.relation.sensitivity, "noise_std": std} | facts
    )
