"""Objective perturbation: the minimiser of the empirical risk plus a random linear term.

`ObjectiveGaussian`, the default of linear models, takes Gaussian noise with the exact law of its privacy loss. The
solver's tolerance is part of the guarantee: `rounded_minimiser` hides the error by a second, small noise (Iyengar,
Near, Song, Thakkar, Thakurta & Wang, S&P 2019). `PureObjective` stands in where delta is 0 (Chaudhuri, Monteleoni &
Sarwate, JMLR 2011; Kifer, Smith & Thakurta, COLT 2012).

`METHODS`: the methods by name.

Published ones, such as output perturbation and input perturbation, are instances of classes in
`tacit_papers.input_perturbation`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.calibration import smallest
from tacit.erm.gradient import GradientDescent
from tacit.erm.losses import Loss
from tacit.erm.release import Method, Release, Terms, lipschitz, log_volume
from tacit.erm.solver import ROUNDED_DOWN, TOLERANCE, Problem, gradient_rounding, minimise
from tacit.mechanisms import Approximate, Compose, Gaussian, ObjectivePerturbation
from tacit.noise import NORMAL_ERROR, longest_radial, near_gaussian, near_radial, radial_error
from tacit.root_finding import bracketed_root
from tacit.tradeoff import Epsilon, Target

# Share of (epsilon, delta) that pays for the solver's tolerance: a thousandth costs a thousandth more noise.
ROUNDING_SHARE = 1e-3
# Smallest strength that is tried: below it, tolerance / strength exceeds 10^4 and the solver's error drowns theta.
_LEAST_STRENGTH = 1e-12
# Relative step past a root: brentq's root may lie on either side, and the larger strength is the safe one.
_PAST_ROOT = 1 + 1e-12
# mu of the linear term over mu of the rounding step: at 1/500 the rounding costs a few millionths of the noise.
_ROUNDING_RATIO = 500.0
_LONGEST = 14.0


@dataclass(frozen=True)
class _Objective(Method):
    family: ClassVar[str] = "objective"
    any_size: ClassVar[bool] = True
    reads_prior_norm: ClassVar[bool] = True
    volume_share: float = 0.2
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        check.probability("volume_share", self.volume_share, open_low=True, open_high=True)


@dataclass(frozen=True)
class ObjectiveGaussian(_Objective):
    """argmin F(theta) + <b, theta>, b ~ N(0, (m G)^2 I), by the proof of `ObjectivePerturbation`.

    The noise multiplier m is solved from the closed profile, so that nothing is lost to a split of epsilon. The noise
    of Kifer et al. 2012 has 3.3 times its standard deviation at epsilon .01, 2.6 at .1, 2.2 at 1 and 2.0 at 10. The
    strength is raised where one record could change log det of the Hessian by more than `volume_share` of epsilon (of
    the pure epsilon that meets any other target).

    Args:
        volume_share: in (0, 1).
        tolerance: of the solver; `rounded_minimiser` hides its effect, at 1/500 of the mu.

    Example:
        >>> ObjectiveGaussian(volume_share=0.1).volume_share
        0.1
    """

    name: ClassVar[str] = "exact"

    def steps(self, problem: Problem, terms: Terms) -> tuple[Problem, float, Compose]:
        """The problem with its final strength, its noise multiplier, and the mechanism that releases its minimiser."""
        least = strength_for(problem.loss, self.volume_share * terms.pure_epsilon())
        raised = problem.with_strength(max(problem.strength, least))
        volume = log_volume(raised)

        def build(multiplier: float) -> Compose:
            objective = ObjectivePerturbation(multiplier, volume, problem.loss.corners)
            return Compose.of((objective, 1), (Gaussian(_ROUNDING_RATIO * multiplier), 1))

        found = smallest("noise_multiplier", build, terms.target, accountant="naive", relation=terms.relation)
        return raised, found.value, build(found.value)

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """`pulled_strength` for E ||b||."""
        _, multiplier, _ = self.steps(problem.with_strength(0.0), terms)
        std = multiplier * lipschitz(problem, self.name)
        return pulled_strength(problem, std * math.sqrt(problem.dimension), prior_norm)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the minimiser of the perturbed objective, rounded."""
        bound = lipschitz(problem, self.name)
        raised, multiplier, mechanism = self.steps(problem, terms)
        terms.charge(mechanism, "objective perturbation", exact=True)
        std, rounding = multiplier * bound, _ROUNDING_RATIO * multiplier
        theta = rounded_minimiser(raised, terms, std, tolerance=self.tolerance, noise_multiplier=rounding)
        facts = {"noise_std": std, "strength": raised.strength, "log_volume": log_volume(raised)}
        return terms.release(theta, mechanism, facts)


@dataclass(frozen=True)
class PureObjective(_Objective):
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

    name: ClassVar[str] = "pure"
    pure: ClassVar[bool] = True

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
        minimiser = minimise(raised, linear=linear, tolerance=self.tolerance)
        rounding = gradient_rounding(raised, lipschitz(problem, self.name), longest_radial(size, rate))
        error = self.tolerance + rounding + radial_error(size, rate)
        theta = terms.radial(minimiser, rate=ROUNDED_DOWN * ROUNDING_SHARE * epsilon * strength / (2 * error))
        return terms.release(theta, mechanism, {"rate": rate, "strength": strength})


def rounded_minimiser(
    problem: Problem, terms: Terms, linear_std: float, *, tolerance: float, noise_multiplier: float
) -> np.ndarray:
    """A minimiser of F + <b, .>, b ~ N(0, linear_std^2 I), plus Gaussian noise that hides the error.

    Given the exact minimiser (and so, by the change of variables, the linear term), the solver's error is a function
    of the data of norm at most e / strength: it moves by at most 2 e / strength between neighbours, whatever the
    relation. Here e is the tolerance and what double precision adds to it: the error of the computed gradient
    (`gradient_rounding`) and that of b, which is drawn within `NORMAL_ERROR` of a real. Releasing it is one Gaussian
    step, std = noise_multiplier * 2 e / (s strength), s = 1 or 2 the factor by which an accountant widens a Gaussian
    step under the relation; it composes adaptively. A coordinate of b beyond `_LONGEST` std, of probability 2^-80, is
    left out of account.

    Args:
        problem: F, with a positive strength.
        terms: source of the noise, and the relation.
        linear_std: > 0, of the linear term.
        tolerance: > 0, of the solver, on the gradient's norm.
        noise_multiplier: > 0, of the rounding step.

    Raises:
        TacitError: the tolerance is out of reach of double precision.

    Source: Iyengar et al. 2019, Algorithm 1, with the composition made explicit.
    """
    linear = near_gaussian(terms.stream, problem.shape, std=linear_std)
    minimiser = minimise(problem, linear=linear, tolerance=tolerance)
    unit = linear_std * math.sqrt(problem.dimension)
    error = tolerance + gradient_rounding(problem, problem.loss.lipschitz, _LONGEST * unit) + NORMAL_ERROR * unit
    std = noise_multiplier * 2 * error / (terms.relation.sensitivity * problem.strength)
    return terms.noisy(minimiser, std=std)


def strength_for(loss: Loss, log_volume: float) -> float:
    """The smallest strength at which one record adds at most `log_volume` > 0 to log det of the Hessian."""
    if loss.log_volume(_LEAST_STRENGTH) <= log_volume:
        return _LEAST_STRENGTH
    high = 1.0
    while loss.log_volume(high) > log_volume:
        high *= 4
    return bracketed_root(lambda value: loss.log_volume(value) - log_volume, _LEAST_STRENGTH, high) * _PAST_ROOT


def pulled_strength(problem: Problem, noise_norm: float, prior_norm: float) -> float:
    """Automatic strength for a noise term of mean norm N: N / W, the pull of the regulariser at norm W.

    W = prior_norm as long as the noise outweighs the data, that is, N / prior_norm >= n c / p, which stands for the
    mean eigenvalue of the Hessian (c the smoothness; the trace of sum x x^T is at most n). Below that W grows with
    the square root of the ratio, since the spectrum of real tables falls fast and less noise resolves more of it.
    The power was chosen on Bank and a synthetic table, never on Adult; see docs/erm.md.
    """
    strength = noise_norm / prior_norm
    curvature = problem.size * problem.loss.smoothness / problem.shape[0]
    return strength * min(1.0, math.sqrt(strength / curvature))


METHODS: dict[str, type[Method]] = {"objective": ObjectiveGaussian, "gradient": GradientDescent}


def method_of(method: object, target: Target) -> Method:
    """The method that an estimator's `method` names; a `Method` instance is taken as it is.

    "objective" is `PureObjective` where `target` has delta 0.

    Raises:
        InvalidInput: a name is unknown (the nearest is suggested), or the method cannot meet a pure target.
    """
    pure = isinstance(target, Epsilon) and target.delta == 0.0
    if isinstance(method, Method):
        chosen = method
    else:
        chosen = METHODS[check.choice("method", method, METHODS)]()
        chosen = PureObjective() if pure and isinstance(chosen, ObjectiveGaussian) else chosen
    if pure and not chosen.pure:
        hint = "Gaussian noise gives no pure guarantee; use method='objective'."
        raise check.fail("delta", f"> 0 for method {chosen.family!r}, {chosen.name!r}", 0.0, hint)
    return chosen
