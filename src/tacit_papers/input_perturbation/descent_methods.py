"""Output and gradient perturbation with published methods: noise on a minimiser, descent, SGD and DP-SVRG.

Each is charged its exact cost. Sources: Chaudhuri, Monteleoni & Sarwate (JMLR 2011) for noise on the minimiser; Zhang,
Zheng, Mou & Wang (IJCAI 2017) for noise on the last iterate of descent; Bassily, Smith & Thakurta (FOCS 2014) for SGD;
Wang, Ye & Xu (NeurIPS 2017) for DP-SVRG.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.calibration import noise_multiplier
from tacit.erm.gradient import clipped_sum
from tacit.erm.release import Method, Release, Terms, lipschitz
from tacit.erm.solver import (
    ELEMENTWISE,
    ROUNDED_DOWN,
    TOLERANCE,
    UNIT,
    Problem,
    gamma,
    gradient_rounding,
    minimise,
    roundings,
    step_rounding,
)
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Approximate, Compose, Gaussian
from tacit.relation import Relation
from tacit.sampling import PoissonSampler
from tacit.tradeoff.gaussian import gaussian_mu
from tacit_papers.input_perturbation.objective_methods import approximate


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
        best = minimise(problem, tolerance=self.tolerance)
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
        best = minimise(problem, tolerance=self.tolerance)
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


def descent_rounding(problem: Problem, bound: float, steps: int, step_size: float) -> float:
    """Bound on the distance between the computed last iterate of gradient descent from 0 and the real one.

    A step contracts, so errors of steps add up at most. After t steps ||theta|| is at most t times step_size * bound,
    and a computed step errs by step_size / n times the error of its gradient (see `gradient_rounding`), and by a few
    units of theta and of the step.

    Args:
        problem: F; n is its number of records.
        bound: on the gradient of one record.
        steps: T >= 1.
        step_size: of the mean, so that one record moves a step by at most step_size * bound / n.
    """
    n, p = problem.records, problem.dimension
    # Twice the norm that a real iterate can have: computed ones are within a few units of it.
    longest = 2 * steps * step_size * bound
    scores = problem.loss.smoothness * gamma(p + 2) * longest
    gradient = (gamma(roundings(n)) + ELEMENTWISE) * bound + scores + 8 * UNIT * problem.strength / n * longest
    return steps * (step_size * gradient + 8 * UNIT * longest)


def poisson_sample(problem: Problem, sampler: PoissonSampler) -> Problem:
    """The same loss on the next Poisson sample of the records, without the regulariser."""
    batch = sampler.issue()
    sampler.redeem(batch)
    chosen = batch.indices
    features, targets = problem.features[chosen], problem.targets[chosen]
    weights = np.broadcast_to(problem.weights, problem.records)[chosen]
    return replace(problem, features=features, targets=targets, weights=weights, strength=0.0)


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
        return with_gaussian_noise(last, unit, mechanism, terms, {"steps": self.steps})


def constant(epsilon: float, delta: float) -> float:
    """Constant c with s^2 = c G^2 T log(1/delta) / (n^2 epsilon^2) of an exact replace-one calibration.

    c = 4 epsilon^2 / (mu^2 log(1/delta)), mu the largest that is (epsilon, delta)-DP; free of n and T.
    """
    return 4 * epsilon**2 / (gaussian_mu(epsilon, delta) ** 2 * math.log(1 / delta))


def published_variance(bound: float, records: int, epsilon: float, delta: float) -> float:
    """Published noise variance of noisy SGD: s^2 = 32 L^2 n^2 log(n / delta) log(1 / delta) / epsilon^2.

    It is that of the noise on n times one record's gradient.

    Args:
        bound: Lipschitz constant L of the loss.
        records: n.
        epsilon: > 0.
        delta: in (0, 1).
    """
    return 32 * bound**2 * records**2 * math.log(records / delta) * math.log(1 / delta) / epsilon**2


@dataclass(frozen=True)
class NoisySGD(Method):
    """theta <- theta - eta_t ((sum over a Poisson sample of g_i + N(0, (m G)^2 I)) / q + strength theta), T times.

    Each record enters with probability q = batch_size / n; the division is by q, never by the drawn size. m is
    solved by the exact accountant. `paper_constant` runs the published m = sqrt(32 log(n / delta) log(1 / delta)) /
    epsilon with batch_size 1 and T = min(n^2, cap n) steps instead: proven with room to spare for epsilon <= 1 in the
    paper for uniform single draws, and here through the exact accountant for the Poisson samples that run.
    eta_t = 1 / (strength t + beta n), the strongly convex schedule of the paper kept below 1 / smoothness.

    Args:
        steps: T >= 1, ignored with the published constant.
        batch_size: expected size of a sample, in [1, n].
        paper_constant: the published noise instead of the exact calibration.
        cap: of T / n with the published constant; the paper's own is n.

    Source: Bassily et al. 2014, Algorithm 1 and Theorem 2.1.

    Example:
        >>> NoisySGD(steps=100, batch_size=256.0).batch_size
        256.0
    """

    family: ClassVar[str] = "gradient"
    any_size: ClassVar[bool] = True
    name: ClassVar[str] = "sgd"
    steps: int = 200
    batch_size: float = 1024.0
    paper_constant: bool = False
    cap: int = 50

    def __post_init__(self) -> None:
        check.count("steps", self.steps)
        check.real("batch_size", self.batch_size, low=1.0)
        check.count("cap", self.cap)

    def calibration(self, problem: Problem, terms: Terms) -> tuple[float, int, float]:
        """Noise multiplier m, number of steps T and sampling rate q."""
        n = problem.size
        if not self.paper_constant:
            rate = min(self.batch_size / n, 1.0)
            found = noise_multiplier(terms.target, sample_rate=rate, steps=self.steps, relation=terms.relation)
            return found.value, self.steps, rate
        if terms.relation is Relation.REPLACE_ONE:
            raise InvalidInput("relation must be add_remove or zero_out for the published constant; got replace_one.")
        epsilon, delta = approximate(terms, self.name)
        return math.sqrt(published_variance(1.0, n, epsilon, delta)) / n, min(n * n, self.cap * n), 1 / n

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the mean of the last half of the iterates."""
        bound = lipschitz(problem, self.name)
        multiplier, steps, rate = self.calibration(problem, terms)
        step = Gaussian(multiplier).poisson(rate)
        std = multiplier * bound
        sampler = PoissonSampler(problem.records, rate, terms.stream)
        theta, n = problem.zero(), problem.size
        tail = TailMean(steps, theta)
        for taken in range(1, steps + 1):
            rows = poisson_sample(problem, sampler)
            terms.charge(step, "noisy SGD", exact=True)
            gradient = clipped_sum(rows, theta, bound)
            noisy = terms.noisy(gradient, std=std, rounding=step_rounding(problem, theta, bound)) / rate
            eta = 1 / (problem.strength * taken + problem.loss.smoothness * n)
            theta = theta - eta * (noisy + problem.strength * theta)
            tail.add(taken, theta)
        return terms.release(tail.mean, step * steps, {"noise_std": std, "steps": steps, "sample_rate": rate})


@dataclass(frozen=True)
class Svrg(Method):
    """DP-SVRG: S rounds of a noisy full gradient at w_s and M steps on differences of gradients over Poisson samples.

        w <- w - eta ((sum over the sample of g_i(w) - g_i(w_s) + noise) / (q n) + (full + noise) / n + lambda w)

    A record's difference has norm <= 2 G, so the inner noise has std m 2 G and the outer one m G; both steps are
    Gaussian steps of multiplier m in the ledger, S full ones and S M sampled at rate q, m from their exact composition.

    Args:
        rounds: S >= 1.
        inner: M >= 1.
        batch_size: expected size of an inner sample, in [1, n].

    Source: Wang, Ye & Xu 2017, Algorithm 1, whose constant is unspecified; accounted here.

    Example:
        >>> Svrg(rounds=2, inner=3).mechanism(1.0, 0.1).steps[1][1]
        6
    """

    family: ClassVar[str] = "gradient"
    any_size: ClassVar[bool] = True
    name: ClassVar[str] = "svrg"
    rounds: int = 10
    inner: int = 20
    batch_size: float = 512.0

    def __post_init__(self) -> None:
        check.count("rounds", self.rounds)
        check.count("inner", self.inner)
        check.real("batch_size", self.batch_size, low=1.0)

    def mechanism(self, multiplier: float, rate: float) -> Compose:
        """All steps at noise multiplier m and sampling rate q."""
        step = Gaussian(multiplier)
        return Compose.of((step, self.rounds), (step.poisson(rate), self.rounds * self.inner))

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the last iterate."""
        bound, n = lipschitz(problem, self.name), problem.size
        rate = min(self.batch_size / n, 1.0)
        multiplier = terms.noise_multiplier(lambda value: self.mechanism(value, rate))
        step, mechanism = Gaussian(multiplier), self.mechanism(multiplier, rate)
        std = multiplier * bound
        sampler = PoissonSampler(problem.records, rate, terms.stream)
        eta = 1 / (problem.loss.smoothness + problem.strength / n)
        theta = problem.zero()
        for _ in range(self.rounds):
            anchor = theta
            terms.charge(step, "full gradient", exact=True)
            rounding = step_rounding(problem, anchor, bound)
            full = terms.noisy(clipped_sum(problem, anchor, bound), std=std, rounding=rounding)
            for _ in range(self.inner):
                rows = poisson_sample(problem, sampler)
                terms.charge(step.poisson(rate), "difference of gradients", exact=True)
                difference = clipped_sum(rows, theta, bound) - clipped_sum(rows, anchor, bound)
                rounding = max(step_rounding(problem, each, bound) for each in (theta, anchor))
                noisy = terms.noisy(difference, std=2 * std, rounding=rounding)
                theta = theta - eta / n * (noisy / rate + full + problem.strength * theta)
        steps = float(sum(times for _, times in mechanism.steps))
        return terms.release(theta, mechanism, {"noise_std": std, "inner_noise_std": 2 * std, "steps": steps})


class TailMean:
    """Mean of the second half of `steps` iterates."""

    def __init__(self, steps: int, zero: np.ndarray):
        self._steps, self._total, self._count = steps, np.zeros_like(zero), 0

    def add(self, taken: int, theta: np.ndarray) -> None:
        """Count the iterate after `taken` steps."""
        if 2 * taken > self._steps:
            self._total, self._count = self._total + theta, self._count + 1

    @property
    def mean(self) -> np.ndarray:
        """The mean of what was counted."""
        return self._total / self._count
