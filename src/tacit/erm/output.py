"""Output perturbation: noise on the minimiser, or on the last iterate of gradient descent.

Sources: Chaudhuri, Monteleoni & Sarwate (JMLR 2011) for the minimiser; Zhang, Zheng, Mou & Wang (IJCAI 2017) for
gradient descent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.erm.release import Method, Release, Terms, lipschitz
from tacit.erm.rounding import ROUNDED_DOWN, descent_rounding, gradient_rounding
from tacit.erm.solver import TOLERANCE, Problem, minimise
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
    verdict: ClassVar[str] = "pure epsilon-DP; solver tolerance inside the sensitivity"
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

    The limit of Zhang et al. 2017 (see `GradientDescentOutput`) for many steps, with the sensitivity of the minimiser.

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
    verdict: ClassVar[str] = "exact Gaussian mechanism on the minimiser"
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
        return _with_gaussian_noise(best, unit, mechanism, terms, {})


@dataclass(frozen=True)
class GradientDescentOutput(Method):
    """theta_T + N(0, s^2 I), theta_{t+1} = theta_t - (eta / n) grad F(theta_t), theta_0 = 0, full batch.

    With eta = 1 / ((1 + 1/n) beta + lambda), lambda = strength / n, a step is a (1 - eta lambda)-contraction and one
    record moves it by at most eta G / n, so neighbours under add/remove end within

        S = (G / strength) (1 - (1 - eta lambda)^T)      (lambda -> 0:  eta T G / n)

    of each other, twice that under replace-one; mu = S / s exactly. `paper_constant` uses the published
    5 G (beta + lambda) / (n lambda beta) for replace-one instead, or 3 G T eta / n when lambda = 0: larger, hence also
    proven, with T steps of the same size. n must be the number of records, since more of them than eta was set for
    would make a step no contraction; so add/remove is certified as zero-out.

    Args:
        steps: T >= 1, public.
        paper_constant: the published sensitivity.

    Source: Zhang et al. 2017, Theorems 1 and 4; the contraction bound is derived here.

    Example:
        >>> GradientDescentOutput(steps=10).steps
        10
    """

    family: ClassVar[str] = "output"
    name: ClassVar[str] = "zhang"
    verdict: ClassVar[str] = "exact Gaussian mechanism on the last iterate of full-batch gradient descent"
    steps: int = 50
    paper_constant: bool = False

    def __post_init__(self) -> None:
        check.count("steps", self.steps)

    def step_size(self, problem: Problem) -> float:
        """Step size eta, public: it depends on n and the constants of the loss alone."""
        return 1 / ((1 + 1 / problem.records) * problem.loss.smoothness + problem.strength / problem.records)

    def sensitivity(self, problem: Problem) -> float:
        """Sensitivity S under add/remove and zero-out; half of that under replace-one."""
        bound, eta = lipschitz(problem, self.name), self.step_size(problem)
        strength, n = problem.strength, problem.records
        if self.paper_constant:
            smoothness = problem.loss.smoothness
            if strength:
                return 5 * bound * (smoothness + strength / n) / (strength * smoothness) / 2
            return 3 * bound * self.steps * eta / n / 2
        if not strength:
            return eta * self.steps * bound / n
        return -bound / strength * float(np.expm1(self.steps * np.log1p(-eta * strength / n)))

    def iterate(self, problem: Problem) -> np.ndarray:
        """Last iterate theta_T, without noise."""
        theta, eta = problem.zero(), self.step_size(problem)
        for _ in range(self.steps):
            theta = theta - eta / problem.records * problem.gradient(theta)
        return theta

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release theta_T plus Gaussian noise."""
        # The ledger multiplies by s itself: s S + 2 error <= s (S + 2 error).
        error = descent_rounding(problem, lipschitz(problem, self.name), self.steps, self.step_size(problem))
        unit = self.sensitivity(problem) + 2 * error
        mechanism = Gaussian(terms.gaussian())
        last = self.iterate(problem)
        terms.charge(mechanism, "output perturbation of gradient descent", exact=True)
        return _with_gaussian_noise(last, unit, mechanism, terms, {"steps": self.steps})


def _check_rate(rate: float, problem: Problem, relation: Relation, epsilon: float) -> None:
    """Raise `Refused` where minimisers as far apart as those of neighbours may be told apart at more than epsilon."""
    records = 2 if relation is Relation.REPLACE_ONE else 1
    if not rate * records * problem.loss.lipschitz <= epsilon * problem.strength * (1 + 1e-9):
        raise Refused("noise on a minimiser must cover what a neighbour moves it by; it would not.")


def _with_gaussian_noise(
    theta: np.ndarray, unit: float, mechanism: Gaussian, terms: Terms, facts: dict[str, float]
) -> Release:
    """Release theta + N(0, s^2 I), s = noise multiplier * unit, `unit` the sensitivity under add/remove."""
    std = mechanism.noise_multiplier * unit
    released = terms.noisy(theta, std=std)
    return terms.release(
        released, mechanism, {"sensitivity": unit * terms.relation.sensitivity, "noise_std": std} | facts
    )
