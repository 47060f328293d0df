"""Objective perturbation under pure epsilon-DP: a linear term of density proportional to e^{-rate ||b||_2}.

Sources: Chaudhuri, Monteleoni & Sarwate (JMLR 2011); Kifer, Smith & Thakurta (COLT 2012).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tacit import check
from tacit.erm.objective import pulled_strength, strength_for
from tacit.erm.objective_published import ROUNDING_SHARE
from tacit.erm.release import Method, Release, Terms, lipschitz, log_volume
from tacit.erm.rounding import ROUNDED_DOWN, gradient_rounding
from tacit.erm.solver import TOLERANCE, Problem, minimise
from tacit.mechanisms import Approximate
from tacit.noise import longest_radial, near_radial, radial_error


@dataclass(frozen=True)
class PureObjective(Method):
    """argmin F(theta) + <b, theta>, density of b proportional to e^{-rate ||b||}, rate = epsilon' / (s G).

    s = 1 for add/remove, 2 for replace-one. By the change of variables b = -grad F(theta) the loss is at most
    rate * s G + log_volume, so epsilon' = epsilon - log_volume(strength); the strength is raised to where log_volume is
    `volume_share` of epsilon if it would be more. A thousandth of epsilon pays for the solver's tolerance and for
    rounding: an exact radial noise of rate epsilon / 1000 per 2 e / strength, e their sum (see `rounded_minimiser`).
    Values of b of probability 2^-128 are left out of account (`longest_radial`).

    Args:
        volume_share: in (0, 1).
        tolerance: of the solver, on the gradient's norm.

    Example:
        >>> PureObjective().pure
        True
    """

    family: ClassVar[str] = "objective"
    any_size: ClassVar[bool] = True
    reads_prior_norm: ClassVar[bool] = True
    name: ClassVar[str] = "pure"
    verdict: ClassVar[str] = "pure epsilon-DP with the exact volume term; solver tolerance paid for"
    pure: ClassVar[bool] = True
    volume_share: float = 0.2
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        check.probability("volume_share", self.volume_share, open_low=True, open_high=True)

    def budget(self, problem: Problem, epsilon: float) -> tuple[float, float]:
        """Epsilon' for the linear term, and the strength that leaves it."""
        strength = max(problem.strength, strength_for(problem.loss, self.volume_share * epsilon))
        return epsilon - log_volume(problem.with_strength(strength)), strength

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """`pulled_strength` for E ||b|| = p k / rate."""
        left, _ = self.budget(problem.with_strength(0.0), terms.pure_epsilon())
        bound = terms.relation.sensitivity * lipschitz(problem, self.name)
        return pulled_strength(problem, problem.dimension * bound / left, prior_norm)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the minimiser of the perturbed objective plus radial noise that hides the solver's error."""
        bound = terms.relation.sensitivity * lipschitz(problem, self.name)
        epsilon = terms.pure_epsilon()
        left, strength = self.budget(problem, epsilon * (1 - ROUNDING_SHARE))
        mechanism = Approximate(epsilon, 0.0)
        terms.charge(mechanism, "objective perturbation", exact=True)
        raised, rate, size = problem.with_strength(strength), left / bound, problem.dimension
        linear = near_radial(terms.stream, problem.shape, rate=rate)
        found = minimise(raised, linear=linear, tolerance=self.tolerance)
        rounding = gradient_rounding(raised, lipschitz(problem, self.name), longest_radial(size, rate))
        error = self.tolerance + rounding + radial_error(size, rate)
        theta = terms.radial(found.theta, rate=ROUNDED_DOWN * ROUNDING_SHARE * epsilon * strength / (2 * error))
        return terms.release(theta, mechanism, {"rate": rate, "strength": strength})


@dataclass(frozen=True)
class ChaudhuriObjective(PureObjective):
    """The published budget: with c = smoothness, epsilon' = epsilon - 2 log(1 + c / strength).

    Where that is not positive, strength = c / (e^{epsilon / 4} - 1) and epsilon' = epsilon / 2, which the first formula
    at the new strength confirms exactly. Rank-one Hessians only (scores of length 1).

    Source: Chaudhuri et al. 2011, Algorithm 2 and Theorem 9, for sums.

    Example:
        >>> ChaudhuriObjective().name
        'chaudhuri'
    """

    name: ClassVar[str] = "chaudhuri"
    verdict: ClassVar[str] = "pure epsilon-DP as published; solver tolerance paid for"

    def budget(self, problem: Problem, epsilon: float) -> tuple[float, float]:
        """Epsilon' and the strength by the published formula."""
        _rank_one(problem, self.name)
        c = problem.loss.smoothness
        left = epsilon - 2 * math.log1p(c / problem.strength) if problem.strength else -math.inf
        if left > 0:
            return left, problem.strength
        strength = c / math.expm1(epsilon / 4)
        return min(epsilon / 2, epsilon - 2 * math.log1p(c / strength)), strength


@dataclass(frozen=True)
class KiferPureObjective(PureObjective):
    """Half of epsilon for the linear term, half for the volume: strength >= 2 c / epsilon, rate = epsilon / (2 s G).

    Source: Kifer et al. 2012, Algorithm 1 with the Gamma distribution, for sums; s = 2 repairs replace-one.

    Example:
        >>> KiferPureObjective().name
        'kifer_pure'
    """

    name: ClassVar[str] = "kifer_pure"
    verdict: ClassVar[str] = "pure epsilon-DP as published; solver tolerance paid for"

    def budget(self, problem: Problem, epsilon: float) -> tuple[float, float]:
        """Epsilon' and the strength by the published formula."""
        _rank_one(problem, self.name)
        return epsilon / 2, max(problem.strength, 2 * problem.loss.smoothness / epsilon)


def _rank_one(problem: Problem, method: str) -> None:
    if problem.loss.outputs != 1:
        raise check.fail(
            "classes", f"two for objective perturbation by {method!r}", problem.loss.outputs, "Use 'pure'."
        )
