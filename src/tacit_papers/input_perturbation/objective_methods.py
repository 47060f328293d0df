"""Objective perturbation with published calibrations: (epsilon, delta), and pure.

`KiferObjective` and `KiferPureObjective` (Kifer, Smith & Thakurta, COLT 2012), `ApproximateMinima`, AMP (Iyengar, Near,
Song, Thakkar, Thakurta & Wang, S&P 2019), `ChaudhuriObjective` (Chaudhuri, Monteleoni & Sarwate, JMLR 2011).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from tacit import check
from tacit.erm.objective import ROUNDING_SHARE, PureObjective, pulled_strength, rounded_minimiser
from tacit.erm.release import Method, Release, Terms, lipschitz, log_volume
from tacit.erm.solver import TOLERANCE, Problem
from tacit.errors import InvalidInput
from tacit.mechanisms import Compose, Gaussian, ObjectivePerturbation
from tacit.relation import Relation
from tacit.tradeoff import Epsilon
from tacit.tradeoff.gaussian import gaussian_mu

# Share of e1 that AMP's linear term keeps; the rest is e3, which pays for the Hessian. The paper leaves it open.
_LINEAR_SHARE = 0.9
# Events m (m + 2) of one corner under replace-one: the case of the published proof.
_ONE_CORNER = 3


def approximate(terms: Terms, name: str) -> tuple[float, float]:
    """(epsilon, delta) of the target, for formulas that know nothing else; raises `InvalidInput` for other targets."""
    if not isinstance(terms.target, Epsilon) or not 0 < terms.target.delta < 1:
        raise InvalidInput(f"target must be Epsilon with delta in (0, 1) for {name}; got {terms.target}.")
    return terms.target.epsilon, terms.target.delta


def kifer_variance(bound: float, epsilon: float, delta: float) -> float:
    """Noise variance nu^2 = zeta^2 (8 log(2 / delta) + 4 epsilon) / epsilon^2, zeta = `bound` on a gradient."""
    return bound**2 * (8 * math.log(2 / delta) + 4 * epsilon) / epsilon**2


@dataclass(frozen=True)
class KiferObjective(Method):
    """argmin F(theta) + <b, theta>, b ~ N(0, nu^2 I), nu^2 by `kifer_variance`, strength >= 2 c / epsilon.

    c = smoothness; rank-one Hessians. Published for add/remove with zeta = G; under replace-one zeta = 2 G. The
    published algorithm needs the exact minimiser: here a thousandth of (epsilon, delta) pays for the tolerance. The
    ledger records what ran, whose exact cost (`ObjectivePerturbation`) is a fraction of the published one.

    Args:
        tolerance: of the solver, on the gradient's norm.

    Source: Kifer, Smith & Thakurta 2012, Algorithm 1 and Theorem 2, for sums.

    Example:
        >>> KiferObjective().name
        'kifer'
    """

    family: ClassVar[str] = "objective"
    any_size: ClassVar[bool] = True
    reads_prior_norm: ClassVar[bool] = True
    name: ClassVar[str] = "kifer"
    tolerance: float = TOLERANCE

    def noise_std(self, problem: Problem, relation: Relation, epsilon: float, delta: float) -> float:
        """Noise standard deviation nu in every coordinate of the linear term.

        Args:
            problem: with a loss of single scores.
            relation: which sets zeta = G or 2 G.
            epsilon: > 0.
            delta: in (0, 1).

        Raises:
            InvalidInput: the loss has more than one score, or unbounded gradients.
        """
        if problem.loss.outputs != 1:
            raise check.fail("classes", f"two for {self.name!r}", problem.loss.outputs, "Use variant='exact'.")
        return math.sqrt(kifer_variance(relation.sensitivity * lipschitz(problem, self.name), epsilon, delta))

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """`pulled_strength` for E ||b||."""
        std = self.noise_std(problem, terms.relation, *approximate(terms, self.name))
        return pulled_strength(problem, std * math.sqrt(problem.dimension), prior_norm)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the minimiser of the perturbed objective, rounded."""
        epsilon, delta = approximate(terms, self.name)
        main = (epsilon * (1 - ROUNDING_SHARE), delta * (1 - ROUNDING_SHARE))
        std = self.noise_std(problem, terms.relation, *main)
        raised = problem.with_strength(max(problem.strength, 2 * problem.loss.smoothness / main[0]))
        multiplier = terms.relation.sensitivity / gaussian_mu(ROUNDING_SHARE * epsilon, ROUNDING_SHARE * delta)
        mechanism = exact_cost(raised, std, multiplier)
        terms.charge(mechanism, "objective perturbation", exact=True)
        theta = rounded_minimiser(raised, terms, std, tolerance=self.tolerance, noise_multiplier=multiplier)
        return terms.release(theta, mechanism, {"noise_std": std, "strength": raised.strength})


@dataclass(frozen=True)
class ApproximateMinima(Method):
    """AMP, approximate minima perturbation: a point of gradient norm <= tolerance of F + <b1, .>, plus b2.

    With (epsilon, delta) = (e1 + e2, d1 + d2), 0 < e3 < e1, r = min(p, 2 rank):

        strength >= r c / e3,   b1 ~ N(0, s1^2 I),  s1 = 2 G (1 + sqrt(2 log(1 / d1))) / (e1 - e3)
        b2 ~ N(0, s2^2 I),  s2 = 2 (tolerance / strength) (1 + sqrt(2 log(1 / d2))) / e2

    for replace-one; for add/remove and zero-out G stands for 2 G in s1. The published Gaussian bound needs
    e1 - e3 < 1, e2 < 1 and scores of one output; beyond, the exact one stands in for epsilon, and d1 is shared among
    the corners of `ObjectivePerturbation`. s2 takes the diameter 2 tolerance / strength of the error where the paper
    has its radius, which covers both data sets, and what rounding adds to the tolerance (`rounded_minimiser`). The
    ledger records what ran, at its exact cost.

    Args:
        tolerance: > 0, of the gradient's norm; may be large, for a cheap solver.
        share: e1 / epsilon = d1 / delta, in (0, 1); e3 = e1 / 10.

    Source: Iyengar et al. 2019, Algorithm 1 and Theorem 1, for sums.

    Example:
        >>> ApproximateMinima(tolerance=1e-2).name
        'amp'
    """

    family: ClassVar[str] = "objective"
    any_size: ClassVar[bool] = True
    reads_prior_norm: ClassVar[bool] = True
    name: ClassVar[str] = "amp"
    tolerance: float = 1e-4
    share: float = 0.99

    def __post_init__(self) -> None:
        check.positive("tolerance", self.tolerance)
        check.probability("share", self.share, open_low=True, open_high=True)

    def scales(
        self, problem: Problem, epsilon: float, delta: float, relation: Relation = Relation.REPLACE_ONE
    ) -> tuple[float, float, float]:
        """Strength, s1 and s2.

        Args:
            problem: with a loss of bounded gradients.
            epsilon: > 0.
            delta: in (0, 1).
            relation: which sets the sensitivity of the linear term, G or 2 G.
        """
        first, second = self.share * epsilon, (1 - self.share) * epsilon
        d1, d2 = self.share * delta, (1 - self.share) * delta
        rank = min(problem.dimension, 2 * max(problem.loss.outputs - 1, 1))
        strength = max(problem.strength, rank * problem.loss.smoothness / (first / 10))
        corners = problem.loss.corners * (problem.loss.corners + 2)
        s1 = relation.sensitivity * lipschitz(problem, self.name) * _ratio(_LINEAR_SHARE * first, d1, corners)
        s2 = 2 * self.tolerance / strength * _ratio(second, d2, 1)
        return strength, s1, s2

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """`pulled_strength` for E ||b1||."""
        _, s1, _ = self.scales(problem.with_strength(0.0), *approximate(terms, self.name), terms.relation)
        return pulled_strength(problem, s1 * math.sqrt(problem.dimension), prior_norm)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the approximate minimiser plus b2."""
        epsilon, delta = approximate(terms, self.name)
        strength, s1, s2 = self.scales(problem, epsilon, delta, terms.relation)
        raised = problem.with_strength(strength)
        # Mu of b2 is 2 error / strength / s2 under every relation; accountants widen a Gaussian step by s.
        multiplier = terms.relation.sensitivity * s2 * strength / (2 * self.tolerance)
        mechanism = exact_cost(raised, s1, multiplier)
        terms.charge(mechanism, "approximate minima perturbation", exact=True)
        theta = rounded_minimiser(raised, terms, s1, tolerance=self.tolerance, noise_multiplier=multiplier)
        return terms.release(theta, mechanism, {"noise_std": s1, "output_std": s2, "strength": strength})


def exact_cost(problem: Problem, std: float, rounding: float) -> Compose:
    """What ran: noise of `std` on the linear term of `problem`, then a Gaussian step of multiplier `rounding`."""
    bound = lipschitz(problem, "exact_cost")
    objective = ObjectivePerturbation(std / bound, log_volume(problem), problem.loss.corners)
    return Compose.of((objective, 1), (Gaussian(rounding), 1))


def _ratio(epsilon: float, delta: float, events: int) -> float:
    """Noise std / sensitivity: the published (1 + sqrt(2 log(1 / delta))) / epsilon below 1, the exact one above.

    With more than one corner, which the published proof does not have, delta is shared among all `events`.
    """
    if epsilon < 1:
        return (1 + math.sqrt(2 * math.log((events if events > _ONE_CORNER else 1) / delta))) / epsilon
    return 1 / gaussian_mu(epsilon, delta / events)


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

    def budget(self, problem: Problem, epsilon: float) -> tuple[float, float]:
        """Epsilon' and the strength by the published formula."""
        _rank_one(problem, self.name)
        return epsilon / 2, max(problem.strength, 2 * problem.loss.smoothness / epsilon)


def _rank_one(problem: Problem, method: str) -> None:
    if problem.loss.outputs != 1:
        raise check.fail(
            "classes", f"two for objective perturbation by {method!r}", problem.loss.outputs, "Use 'pure'."
        )
