"""Objective perturbation with the published (epsilon, delta) calibrations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tacit import check
from tacit.erm.minima import pulled_strength, rounded_minimiser
from tacit.erm.problem import Problem
from tacit.erm.release import Method, Release, Terms, lipschitz
from tacit.erm.solver import TOLERANCE
from tacit.mechanisms import Approximate
from tacit.noise import gaussian
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff.gaussian import gaussian_mu

_ROUNDING = 1e-3


def kifer_variance(bound: float, epsilon: float, delta: float) -> float:
    """nu^2 = zeta^2 (8 log(2 / delta) + 4 epsilon) / epsilon^2, zeta the change of the gradient."""
    return bound**2 * (8 * math.log(2 / delta) + 4 * epsilon) / epsilon**2


@dataclass(frozen=True)
class KiferObjective(Method):
    """argmin F(theta) + <b, theta>, b ~ N(0, nu^2 I), nu^2 by `kifer_variance`, strength >= 2 c / epsilon.

    c = smoothness; rank-one Hessians. Published for add/remove with zeta = G; under replace-one zeta = 2 G. The
    published algorithm needs the exact minimiser: here a thousandth of (epsilon, delta) pays for the tolerance.

    Source: Kifer, Smith & Thakurta 2012, Algorithm 1 and Theorem 2, for sums.
    """

    family: ClassVar[str] = "objective"
    name: ClassVar[str] = "kifer"
    standing: ClassVar[Standing] = Standing.PROVEN
    verdict: ClassVar[str] = "(epsilon, delta)-DP for add/remove as published, for replace-one with 2 zeta"
    tolerance: float = TOLERANCE

    def noise_std(self, problem: Problem, relation: Relation, epsilon: float, delta: float) -> float:
        """nu."""
        if problem.loss.outputs != 1:
            raise check.fail("classes", f"two for {self.name!r}", problem.loss.outputs, "Use variant='exact'.")
        return math.sqrt(kifer_variance(relation.sensitivity * lipschitz(problem, self.name), epsilon, delta))

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """`pulled_strength` for E ||b||."""
        std = self.noise_std(problem, terms.relation, *terms.approximate(self.name))
        return pulled_strength(problem, std * math.sqrt(problem.dimension), prior_norm)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """See the class."""
        epsilon, delta = terms.approximate(self.name)
        mechanism = Approximate(epsilon, delta)
        main = (epsilon * (1 - _ROUNDING), delta * (1 - _ROUNDING))
        std = self.noise_std(problem, terms.relation, *main)
        raised = problem.with_strength(max(problem.strength, 2 * problem.loss.smoothness / main[0]))
        terms.charge(mechanism, "objective perturbation")
        linear = gaussian(terms.stream, problem.shape, std=std)
        multiplier = terms.relation.sensitivity / gaussian_mu(_ROUNDING * epsilon, _ROUNDING * delta)
        theta = rounded_minimiser(raised, terms, linear, tolerance=self.tolerance, noise_multiplier=multiplier)
        facts = {"noise_std": std, "strength": raised.strength}
        return Release(theta, mechanism, terms.relation, terms.standing, facts=facts)
