"""Gradient perturbation on samples: noisy SGD (Bassily, Smith & Thakurta, FOCS 2014)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.calibration import noise_multiplier
from tacit.erm.gradient import clipped_sum
from tacit.erm.problem import Problem
from tacit.erm.release import Method, Release, Terms, lipschitz
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.noise import gaussian
from tacit.relation import Relation
from tacit.sampling import PoissonSampler
from tacit.standing import Standing


def sample(problem: Problem, indices: np.ndarray) -> Problem:
    """The same loss on some of the records, without the regulariser."""
    return replace(problem, features=problem.features[indices], targets=problem.targets[indices], strength=0.0)


def published_variance(bound: float, records: int, epsilon: float, delta: float) -> float:
    """s^2 = 32 L^2 n^2 log(n / delta) log(1 / delta) / epsilon^2, of the noise on n times one record's gradient."""
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
        cap: of T / n with the published constant; the paper's own is n.

    Source: Bassily et al. 2014, Algorithm 1 and Theorem 2.1.
    """

    family: ClassVar[str] = "gradient"
    name: ClassVar[str] = "sgd"
    standing: ClassVar[Standing] = Standing.PROVEN
    verdict: ClassVar[str] = "exact composition of Poisson-sampled Gaussian steps"
    steps: int = 200
    batch_size: float = 1024.0
    paper_constant: bool = False
    cap: int = 50

    def __post_init__(self) -> None:
        check.count("steps", self.steps)
        check.real("batch_size", self.batch_size, low=1.0)
        check.count("cap", self.cap)

    def settled(self, problem: Problem, terms: Terms) -> tuple[float, int, float]:
        """(noise multiplier, T, q)."""
        n = problem.records
        if not self.paper_constant:
            rate = min(self.batch_size / n, 1.0)
            relation = terms.relation
            found = noise_multiplier(terms.target, sample_rate=rate, steps=self.steps, relation=relation)
            return found.value, self.steps, rate
        if terms.relation is Relation.REPLACE_ONE:
            raise InvalidInput("relation must be add_remove or zero_out for the published constant; got replace_one.")
        epsilon, delta = terms.approximate(self.name)
        return math.sqrt(published_variance(1.0, n, epsilon, delta)) / n, min(n * n, self.cap * n), 1 / n

    def release(self, problem: Problem, terms: Terms) -> Release:
        """See the class."""
        bound = lipschitz(problem, self.name)
        multiplier, steps, rate = self.settled(problem, terms)
        step = Gaussian(multiplier).poisson(rate)
        std = multiplier * bound
        sampler = PoissonSampler(problem.records, rate, terms.stream)
        theta, n = problem.zero(), problem.records
        total, kept = problem.zero(), 0
        for taken in range(1, steps + 1):
            batch = sampler.issue()
            sampler.redeem(batch)
            terms.charge(step, "noisy SGD")
            gradient = clipped_sum(sample(problem, batch.indices), theta, bound)
            noisy = (gradient + gaussian(terms.stream, problem.shape, std=std)) / rate
            eta = 1 / (problem.strength * taken + problem.loss.smoothness * n)
            theta = theta - eta * (noisy + problem.strength * theta)
            if 2 * taken > steps:
                total, kept = total + theta, kept + 1
        facts = {"noise_std": std, "steps": steps, "sample_rate": rate}
        mechanism = step * steps
        return Release(total / kept, mechanism, terms.relation, terms.standing, facts=facts)
