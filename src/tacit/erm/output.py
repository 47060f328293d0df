"""Output perturbation: noise on the exact minimiser (Chaudhuri, Monteleoni & Sarwate 2011)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.erm.problem import Problem
from tacit.erm.radial import radial
from tacit.erm.release import Method, Release, Terms, lipschitz
from tacit.erm.solver import TOLERANCE, minimise
from tacit.mechanisms import Approximate, Gaussian
from tacit.noise import gaussian
from tacit.relation import Relation
from tacit.standing import Standing


def minimiser_sensitivity(problem: Problem, relation: Relation, tolerance: float, method: str) -> float:
    """How far a minimiser found to `tolerance` can move between neighbours: (s G + 2 tolerance) / strength.

    s = 1 for add/remove and zero-out, 2 for replace-one. One record adds a term of gradient norm <= G to a
    strength-strongly convex sum, which moves the exact minimiser by at most G / strength (Chaudhuri et al. 2011,
    Lemma 7, for sums); a point of gradient norm <= tolerance is within tolerance / strength of it, for both data sets.
    """
    hint = "Output perturbation rests on strong convexity; give a regularization."
    strength = check.positive("strength", problem.strength, hint)
    return (relation.sensitivity * lipschitz(problem, method) + 2 * tolerance) / strength


def balanced_strength(problem: Problem, unit_noise: float, prior_norm: float) -> float:
    """The strength L at which bias L W^2 / 2 and noise (A / 2) (N / L)^2 grow alike: L^3 = 2 A (N / W)^2.

    N / L is the norm of the noise on the minimiser; A = n c / p, c the smoothness, stands for the mean eigenvalue of
    the Hessian, since the trace of sum x x^T is at most n. W = prior_norm while L >= A; below that W grows with
    the cube root of A / L, for the reason that `pulled_strength` gives, which leaves L^7 = L_0^9 / A^2.
    """
    curvature = problem.records * problem.loss.smoothness / problem.shape[0]
    strength = float(np.cbrt(2 * curvature * (unit_noise / prior_norm) ** 2))
    return strength * min(1.0, strength / curvature) ** (2 / 7)


@dataclass(frozen=True)
class OutputPerturbation(Method):
    """theta* + b, density of b proportional to e^{-epsilon ||b|| / S}, S = `minimiser_sensitivity`.

    Proof: the densities of theta at one point differ by e^{epsilon ||theta*(D) - theta*(D')|| / S} <= e^epsilon. With
    replace-one and a mean loss, S = 2 G / (n lambda): the published beta = n lambda epsilon / 2 for G = 1.

    Source: Chaudhuri et al. 2011, Algorithm 1 and Theorem 6.
    """

    family: ClassVar[str] = "output"
    name: ClassVar[str] = "chaudhuri"
    standing: ClassVar[Standing] = Standing.PROVEN
    verdict: ClassVar[str] = "pure epsilon-DP; solver tolerance inside the sensitivity"
    pure: ClassVar[bool] = True
    tolerance: float = TOLERANCE

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """`balanced_strength` for a noise of mean norm p k S / epsilon."""
        bound = terms.relation.sensitivity * lipschitz(problem, self.name)
        return balanced_strength(problem, problem.dimension * bound / terms.pure_epsilon(), prior_norm)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """See the class."""
        sensitivity = minimiser_sensitivity(problem, terms.relation, self.tolerance, self.name)
        epsilon = terms.pure_epsilon()
        mechanism = Approximate(epsilon, 0.0)
        best = minimise(problem, tolerance=self.tolerance).theta
        terms.charge(mechanism, "output perturbation")
        noise = radial(terms.stream, problem.shape, rate=epsilon / sensitivity)
        facts = {"sensitivity": sensitivity, "rate": epsilon / sensitivity}
        return Release(best + noise, mechanism, terms.relation, terms.standing, facts=facts)


@dataclass(frozen=True)
class GaussianOutput(Method):
    """theta* + N(0, s^2 I): mu-GDP with mu = S / s exactly, S = `minimiser_sensitivity`.

    The limit of Zhang et al. 2017 (see `GradientDescentOutput`) for many steps, with the sensitivity of the minimiser.
    """

    family: ClassVar[str] = "output"
    name: ClassVar[str] = "gaussian"
    standing: ClassVar[Standing] = Standing.PROVEN
    verdict: ClassVar[str] = "exact Gaussian mechanism on the minimiser"
    tolerance: float = TOLERANCE

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """`balanced_strength` for a noise of mean norm s sqrt(p k)."""
        unit = lipschitz(problem, self.name) * terms.gaussian()
        return balanced_strength(problem, unit * math.sqrt(problem.dimension), prior_norm)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """See the class."""
        # The ledger multiplies by s itself: (s G + 2 tolerance) <= s (G + 2 tolerance).
        unit = minimiser_sensitivity(problem, Relation.ADD_REMOVE, self.tolerance, self.name)
        mechanism = Gaussian(terms.gaussian())
        best = minimise(problem, tolerance=self.tolerance).theta
        terms.charge(mechanism, "output perturbation")
        std = mechanism.noise_multiplier * unit
        noise = gaussian(terms.stream, problem.shape, std=std)
        facts = {"sensitivity": unit * terms.relation.sensitivity, "noise_std": std}
        return Release(best + noise, mechanism, terms.relation, terms.standing, facts=facts)
