"""Output perturbation of gradient descent (Zhang, Zheng, Mou & Wang, IJCAI 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.erm.problem import Problem
from tacit.erm.release import Method, Release, Terms, lipschitz
from tacit.mechanisms import Gaussian
from tacit.noise import gaussian
from tacit.standing import Standing


@dataclass(frozen=True)
class GradientDescentOutput(Method):
    """theta_T + N(0, s^2 I), theta_{t+1} = theta_t - (eta / n) grad F(theta_t), theta_0 = 0, full batch.

    With eta = 1 / ((1 + 1/n) beta + lambda), lambda = strength / n, a step is a (1 - eta lambda)-contraction and one
    record moves it by at most eta G / n, so neighbours under add/remove end within

        S = (G / strength) (1 - (1 - eta lambda)^T)      (lambda -> 0:  eta T G / n)

    of each other, twice that under replace-one; mu = S / s exactly. `paper_constant` uses the published
    5 G (beta + lambda) / (n lambda beta) for replace-one instead, or 3 G T eta / n when lambda = 0: larger, hence also
    proven, with T steps of the same size.

    Args:
        steps: T >= 1, public.
        paper_constant: the published sensitivity.

    Source: Zhang et al. 2017, Theorems 1 and 4; the contraction bound is derived here.
    """

    family: ClassVar[str] = "output"
    name: ClassVar[str] = "zhang"
    standing: ClassVar[Standing] = Standing.PROVEN
    verdict: ClassVar[str] = "exact Gaussian mechanism on the last iterate of full-batch gradient descent"
    steps: int = 50
    paper_constant: bool = False

    def __post_init__(self) -> None:
        check.count("steps", self.steps)

    def step_size(self, problem: Problem) -> float:
        """eta, public: it depends on n and the constants of the loss alone."""
        return 1 / ((1 + 1 / problem.records) * problem.loss.smoothness + problem.strength / problem.records)

    def sensitivity(self, problem: Problem) -> float:
        """S under add/remove and zero-out; half of what one replacement can do."""
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
        """theta_T without noise."""
        theta, eta = problem.zero(), self.step_size(problem)
        for _ in range(self.steps):
            theta = theta - eta / problem.records * problem.gradient(theta)
        return theta

    def release(self, problem: Problem, terms: Terms) -> Release:
        """See the class."""
        unit = self.sensitivity(problem)
        mechanism = Gaussian(terms.gaussian())
        last = self.iterate(problem)
        terms.charge(mechanism, "output perturbation of gradient descent")
        std = mechanism.noise_multiplier * unit
        noise = gaussian(terms.stream, problem.shape, std=std)
        facts = {"sensitivity": unit * terms.relation.sensitivity, "noise_std": std, "steps": self.steps}
        return Release(last + noise, mechanism, terms.relation, terms.standing, facts=facts)
