"""Gradient perturbation: full-batch gradient descent, SGD and DP-SVRG with noise in every step.

Sources: Wang, Ye & Xu (NeurIPS 2017) for gradient descent and DP-SVRG; Bassily, Smith & Thakurta (FOCS 2014) for SGD.

The rule by which a convex model chooses its features and its method: a function of public shape alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.calibration import noise_multiplier
from tacit.erm.losses import Loss, Squared
from tacit.erm.release import Method, Release, Terms, lipschitz
from tacit.erm.rounding import step_rounding
from tacit.erm.solver import Problem
from tacit.errors import InvalidInput
from tacit.mechanisms import Compose, Gaussian
from tacit.relation import Relation
from tacit.sampling import PoissonSampler

LEAST_RECORDS, LEAST_SIGNAL = 3000, 800.0
"""Records n, and n mu, from which private distribution functions pay for themselves."""
SIGNAL_OF_A_COLUMN = 3.0
"""n mu that every column needs."""
QUANTILE_SHARE = 0.1
"""Share of mu^2 for the distribution functions."""
_STEPS, _CLIP, _RATE = 100, 0.5, 4.0
_FULL_SIGNAL, _LEAST_RATE = 5000.0, 0.15


@dataclass(frozen=True)
class Shape:
    """What is public of a fit.

    Args:
        records: n, declared or public.
        columns: p.
        mu: of the target, in (0, inf); 0 for a pure one, which no Gaussian release meets.
    """

    records: int
    columns: int
    mu: float

    def cosines(self) -> bool:
        """Whether an additive model on cosines of private distribution functions is expected to be better.

        Example:
            >>> Shape(40_000, 14, 0.2).cosines(), Shape(400, 14, 0.2).cosines()
            (True, False)
        """
        signal = self.records * self.mu
        return self.records >= LEAST_RECORDS and signal >= max(LEAST_SIGNAL, SIGNAL_OF_A_COLUMN * self.columns)

    def additive(self, loss: Loss, largest: float) -> GradientDescent:
        """Full-batch steps for rows that were divided by `largest`: clip .5 and rate as for rows of norm 1.

        The rate grows with n mu, since noise moves theta by the rate over n mu, up to twice 4 / smoothness (a quarter
        for least squares, whose curvature does not fall with the scores).
        """
        most = 0.25 if isinstance(loss, Squared) else 2.0
        rate = _RATE * min(most, max(_LEAST_RATE, self.records * self.mu / _FULL_SIGNAL)) * largest**2
        return GradientDescent(steps=_STEPS, clip_norm=_CLIP / largest, step_scale=rate)


def method_name(*, pure: bool, binary: bool) -> str:
    """Family of "auto" on the rows as they are: objective perturbation for two classes, and wherever delta is 0.

    With more scores its noise grows with log det of a larger Hessian, and for least squares with a Huber bound; noisy
    gradients do better there (docs/accuracy.md).
    """
    return "objective" if pure or binary else "gradient"


Array = np.ndarray


def clipped_sum(problem: Problem, theta: Array, clip_norm: float) -> Array:
    """Sum of the records' loss gradients, each scaled down to norm <= clip_norm; the regulariser is left out.

    A gradient x slope^T has norm ||x|| ||slope||, so no record's matrix is ever formed.
    """
    slopes = problem.loss.slopes(problem.features @ theta, problem.targets)
    norms = np.sqrt(np.einsum("ij,ij->i", slopes, slopes) * np.einsum("ij,ij->i", problem.features, problem.features))
    factors = clip_norm / np.maximum(norms, clip_norm)
    return problem.features.T @ (slopes * factors[:, None])


@dataclass(frozen=True)
class GradientDescent(Method):
    """theta <- theta - (eta / n) (sum_i clip(g_i, C) + N(0, (m C)^2 I) + strength theta), T times from 0.

    T Gaussian steps of sensitivity C (2 C under replace-one): mu = s sqrt(T) / m exactly, so m is solved from the
    target itself. The paper leaves its constant open (its s^2 = c G^2 T log(1/delta) / (n^2 epsilon^2)); `constant`
    says which c the exact calibration amounts to. With `average`, the mean of the second half of the iterates is
    released, which is post-processing; with `momentum`, steps follow Nesterov, likewise.

    Args:
        steps: T >= 1, public.
        clip_norm: C > 0; None means the Lipschitz constant of the loss.
        step_scale: eta in units of 1 / (smoothness + strength / n), > 0.
        momentum: in [0, 1).
        average: release the mean of the last half of the iterates.

    Source: Wang, Ye & Xu 2017, Algorithm 1; exact composition by Dong, Roth & Su 2019, Corollary 2.

    Example:
        >>> GradientDescent(steps=10, clip_norm=1.0).steps
        10
    """

    family: ClassVar[str] = "gradient"
    any_size: ClassVar[bool] = True
    name: ClassVar[str] = "descent"
    verdict: ClassVar[str] = "exact Gaussian composition of full-batch steps"
    steps: int = 120
    clip_norm: float | None = 0.5
    step_scale: float = 1.0
    momentum: float = 0.9
    average: bool = True

    def __post_init__(self) -> None:
        check.count("steps", self.steps)
        if self.clip_norm is not None:
            check.positive("clip_norm", self.clip_norm)
        check.positive("step_scale", self.step_scale)
        check.real("momentum", self.momentum, low=0.0, high=1.0, open_high=True)

    def clip(self, problem: Problem) -> float:
        """Clipping norm C, at most the Lipschitz constant of the loss."""
        bound = problem.loss.lipschitz
        if self.clip_norm is None and math.isinf(bound):
            raise check.fail("clip_norm", "given for a loss without bounded gradients", None)
        return bound if self.clip_norm is None else min(self.clip_norm, bound)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release an average of the last iterates, or the last one."""
        clip = self.clip(problem)
        step = Gaussian(terms.gaussian(steps=self.steps))
        std = step.noise_multiplier * clip
        eta = self.step_scale / (problem.loss.smoothness + problem.strength / problem.size)
        theta, velocity = problem.zero(), problem.zero()
        tail = _TailMean(self.steps, theta)
        for taken in range(1, self.steps + 1):
            terms.charge(step, "gradient perturbation", exact=True)
            ahead = theta + self.momentum * velocity
            rounding = step_rounding(problem, ahead, clip)
            noisy = terms.noisy(clipped_sum(problem, ahead, clip), std=std, rounding=rounding)
            velocity = self.momentum * velocity - eta / problem.size * (noisy + problem.strength * ahead)
            theta = theta + velocity
            tail.add(taken, theta)
        facts = {"noise_std": std, "clip_norm": clip, "steps": self.steps, "step_size": eta}
        return terms.release(tail.mean if self.average else theta, step * self.steps, facts)


def constant(epsilon: float, delta: float) -> float:
    """Constant c with s^2 = c G^2 T log(1/delta) / (n^2 epsilon^2) of an exact replace-one calibration.

    c = 4 epsilon^2 / (mu^2 log(1/delta)), mu the largest that is (epsilon, delta)-DP; free of n and T.
    """
    from tacit.tradeoff.gaussian import gaussian_mu

    return 4 * epsilon**2 / (gaussian_mu(epsilon, delta) ** 2 * math.log(1 / delta))


class _TailMean:
    """Mean of the second half of `steps` iterates."""

    def __init__(self, steps: int, zero: Array):
        self._steps, self._total, self._count = steps, np.zeros_like(zero), 0

    def add(self, taken: int, theta: Array) -> None:
        """Count the iterate after `taken` steps."""
        if 2 * taken > self._steps:
            self._total, self._count = self._total + theta, self._count + 1

    @property
    def mean(self) -> Array:
        return self._total / self._count


def poisson_sample(problem: Problem, sampler: PoissonSampler) -> Problem:
    """The same loss on the next Poisson sample of the records, without the regulariser."""
    batch = sampler.issue()
    sampler.redeem(batch)
    chosen = batch.indices
    return replace(problem, features=problem.features[chosen], targets=problem.targets[chosen], strength=0.0)


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
    verdict: ClassVar[str] = "exact composition of Poisson-sampled Gaussian steps"
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
        epsilon, delta = terms.approximate(self.name)
        return math.sqrt(published_variance(1.0, n, epsilon, delta)) / n, min(n * n, self.cap * n), 1 / n

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the mean of the last half of the iterates."""
        bound = lipschitz(problem, self.name)
        multiplier, steps, rate = self.calibration(problem, terms)
        step = Gaussian(multiplier).poisson(rate)
        std = multiplier * bound
        sampler = PoissonSampler(problem.records, rate, terms.stream)
        theta, n = problem.zero(), problem.size
        tail = _TailMean(steps, theta)
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
    verdict: ClassVar[str] = "exact composition of full and Poisson-sampled Gaussian steps"
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
