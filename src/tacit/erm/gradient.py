"""Gradient perturbation: full-batch gradient descent with noise in every step (Wang, Ye & Xu, NeurIPS 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.erm.problem import Problem
from tacit.erm.release import Method, Release, Terms
from tacit.mechanisms import Gaussian
from tacit.noise import gaussian
from tacit.standing import Standing

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
    """

    family: ClassVar[str] = "gradient"
    name: ClassVar[str] = "descent"
    standing: ClassVar[Standing] = Standing.PROVEN
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
        """C; no larger than any gradient can be."""
        bound = problem.loss.lipschitz
        if self.clip_norm is None and math.isinf(bound):
            raise check.fail("clip_norm", "given for a loss without bounded gradients", None)
        return bound if self.clip_norm is None else min(self.clip_norm, bound)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """See the class."""
        clip = self.clip(problem)
        step = Gaussian(terms.gaussian(steps=self.steps))
        mechanism = step * self.steps
        std = step.noise_multiplier * clip
        eta = self.step_scale / (problem.loss.smoothness + problem.strength / problem.records)
        theta, velocity = problem.zero(), problem.zero()
        total, kept = problem.zero(), 0
        for taken in range(self.steps):
            terms.charge(step, "gradient perturbation")
            ahead = theta + self.momentum * velocity
            noisy = clipped_sum(problem, ahead, clip) + gaussian(terms.stream, problem.shape, std=std)
            velocity = self.momentum * velocity - eta / problem.records * (noisy + problem.strength * ahead)
            theta = theta + velocity
            if 2 * (taken + 1) > self.steps:
                total, kept = total + theta, kept + 1
        facts = {"noise_std": std, "clip_norm": clip, "steps": self.steps, "step_size": eta}
        released = total / kept if self.average else theta
        return Release(released, mechanism, terms.relation, terms.standing, facts=facts)


def constant(epsilon: float, delta: float) -> float:
    """The c with s^2 = c G^2 T log(1/delta) / (n^2 epsilon^2) of an exact replace-one calibration.

    c = 4 epsilon^2 / (mu^2 log(1/delta)), mu the largest that is (epsilon, delta)-DP; free of n and T.
    """
    from tacit.tradeoff.gaussian import gaussian_mu

    return 4 * epsilon**2 / (gaussian_mu(epsilon, delta) ** 2 * math.log(1 / delta))
